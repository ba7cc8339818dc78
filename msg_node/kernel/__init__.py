"""Shared by all subjects of the node: changes, rules, resources, identifiers, deadlines, credentials. Pure."""
