"""Status and changes for operators while the node runs."""
