"""What a partner publishes and sends, as values: no I/O, no clock."""
