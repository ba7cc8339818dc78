"""Scenes, observations and verdicts: values and functions, without I/O or clock."""
