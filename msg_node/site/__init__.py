"""The node's own web site: documents, catalogue, health, status."""
