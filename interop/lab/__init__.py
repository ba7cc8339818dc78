"""The laboratory as a product: domains that are kept running, and scenes with faults that end in a verdict."""
