"""Stubs of other domains while they run here: provided, started, watched, replaced, and what they may do."""
