"""Finding, fetching and verifying what a foreign domain publishes."""
