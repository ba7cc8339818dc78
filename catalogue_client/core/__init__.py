"""Pure part: given bytes and a time, what may be believed."""
