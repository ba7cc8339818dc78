"""The report: what the lake says, as one page that works without a network."""
