"""Registries of users, hyperties and things: domain registry, digital twin, catalogue, global registry, schemas."""
