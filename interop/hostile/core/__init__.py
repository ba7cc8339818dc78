"""Misdeeds of hostile domains, as data and pure functions."""
