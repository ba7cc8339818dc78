"""What a scene says, and what follows from what was seen: values and functions, without I/O or clock."""
