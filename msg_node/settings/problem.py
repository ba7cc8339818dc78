"""What a check of settings finds."""

from __future__ import annotations

Problem = tuple[tuple[str | int, ...], str]
"""Where in the settings, and what is wrong."""
