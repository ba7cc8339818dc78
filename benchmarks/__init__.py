"""Benchmarks: the whole trapezoid beside its parts, and what a node does inside its own domain beside plain relays."""
