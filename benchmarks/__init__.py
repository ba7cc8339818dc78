"""Benchmarks: the whole trapezoid beside the same path without sandbox and beside a plain relay."""
