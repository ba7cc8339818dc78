"""What all subjects of the node share: changes, rules, resources, identifiers, deadlines, credentials. Pure."""
