"""Pure part: what an entry is, and which one has to go."""
