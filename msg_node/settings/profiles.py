"""Compatibility profiles: one line of the settings that stands for several.

A profile is a table of settings, put below what the operator wrote: what is written anywhere in the files wins. So each
member is an ordinary setting, checked, shown and reported like one.

`docs/dialects.md` says what each member weakens. Source: foreign nodes, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msg_node.settings.model import Settings
from protofly.limits import COMPAT_GRACE_SECONDS

PROFILES: Final[Mapping[str, Mapping[tuple[str, str], bool | int | float]]] = {
    "rethink": {
        ("compat", "echo"): True,
        ("compat", "keep_registered"): True,
        ("compat", "return_by_address"): True,
        ("compat", "sm_error"): 500,
        ("compat", "take_over"): True,
        ("allocation", "strict_release"): False,
        ("sessions", "grace_seconds"): COMPAT_GRACE_SECONDS,
    }
}
"""Members of each profile, by table and key."""


def apply_profile(values: dict[str, Any]) -> None:
    """Add the members of the profile that merged settings name, where they say nothing themselves.

    A profile or table of the wrong kind is left to the checks that follow.
    """
    compat = values.get("compat")
    name = compat.get("profile") if isinstance(compat, dict) else None
    if not isinstance(name, str):
        return
    for (table, key), value in PROFILES.get(name, {}).items():
        members = values.setdefault(table, {})
        if isinstance(members, dict):
            members.setdefault(key, value)


def members_set_otherwise(settings: Settings) -> list[str]:
    """The members of the profile in force that the operator set to another value, as `table.key`."""
    members = PROFILES.get(settings.compat.profile, {})
    return [
        f"{table}.{key}" for (table, key), value in members.items() if getattr(getattr(settings, table), key) != value
    ]
