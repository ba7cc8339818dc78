"""Other operators' services that the node asks: registries, providers, brokers, catalogues, push services."""
