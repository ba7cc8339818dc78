"""Record files: segments, their writer, recovery after a crash, quarantined messages."""
