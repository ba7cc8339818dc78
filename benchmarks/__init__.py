"""Benchmarks of the whole path between two domains, its parts, and one domain alone. A program: nothing is public."""

__all__: list[str] = []
