"""Makes the parts of a node from its settings and connects them: the only package that knows all others."""
