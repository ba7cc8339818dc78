"""Whole nodes in one process, under a clock that jumps: `./run simulate`, described in docs/simulation.md."""
