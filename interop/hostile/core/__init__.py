"""What hostile domains do, as data and pure functions."""
