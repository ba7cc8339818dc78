"""Settings of older versions that are gone, and what to do about a file that still has one.

A setting that is renamed or removed gets a row here: `check`, `serve` and a reload then say what became of it, where
they would otherwise guess at a word that is spelt alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RETIRED: Final[Mapping[str, str]] = {
    "global_registry.read_seconds": "renamed: write `attempt_seconds`, the time limit of one attempt",
    "limits.module_bytes": "removed, it had no effect: take the line out; the size of modules has a fixed limit",
    "limits.request_ttl_seconds": "removed, it had no effect: take the line out",
    "sandbox.mode": "removed: stubs always run in the sandbox; take the line out",
}
"""What to do, by the name of the setting with its tables; entries of `[[…]]` without their numbers."""


def retired_hint(place: tuple[str | int, ...]) -> str:
    """Say what became of a setting of an older version; "" for names that were never one."""
    hint = RETIRED.get(".".join(key for key in place if isinstance(key, str)))
    return "" if hint is None else f"a setting of an older version, {hint}"
