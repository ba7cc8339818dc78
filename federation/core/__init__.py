"""The quiet inner room: no I/O, no clock, no randomness, no logging."""
