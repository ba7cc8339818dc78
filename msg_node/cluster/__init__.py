"""Several nodes of one domain: the links between them, who owns which address, and where messages go."""
