"""One link per other domain: what goes out and comes in over it, and its records."""
