"""Decides what may pass: the policy engine, the gate in front of each domain, rates, and policy files."""
