"""Documents and messages of a partner, as values: no I/O, no clock."""
