"""Conformance between domains: a partner of our own, honest and hostile, against any node that claims the protocol."""
