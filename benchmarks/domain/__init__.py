"""What a node does inside its own domain: pairs, address allocation, observers, many sessions."""
