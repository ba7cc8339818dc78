"""A messaging node for one domain: doors, bus, services, state, site. `app` wires the whole house."""
