"""The classes of messages on which two sides do not agree, or not yet."""

from __future__ import annotations

from typing import Final

CASES: Final = ("pending", "unprovable", "lost", "orphan", "duplicated", "altered", "size", "outcome", "skewed")
"""Classes of messages on which the sides do not agree (yet)."""
BLAMELESS: Final = ("pending", "unprovable")
"""Classes that blame nobody: they are never findings."""
