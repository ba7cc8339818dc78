"""The commands of the program, a module per group."""

from trapezoid.commands.program import app

__all__ = ["app"]
