"""Who and what can be found: domain registry, digital twin, catalogue, global registry, schemas."""
