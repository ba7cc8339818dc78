"""Files of the node: the state store and its log, keys, certificates, and what has to hold of each file."""
