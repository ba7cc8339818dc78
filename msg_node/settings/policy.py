"""Settings of the gates between domains: `[policy]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct


class PolicySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policy files, and domains that pass or do not pass regardless of them."""

    files: Annotated[tuple[Path, ...], Meta(description="Policy set files, TOML or JSON, in order.")] = ()
    mode: Annotated[
        Literal["enforce", "report"], Meta(description="`report` records what would be denied and lets it pass.")
    ] = "enforce"
    local_default: Annotated[
        Literal["permit", "deny"],
        Meta(description="On the own bus, where no rule says anything: with `deny`, `open` needs a rule as well."),
    ] = "permit"
    allow: Annotated[
        tuple[str, ...] | None,
        Meta(description="If given, no other domains pass, whatever rules and peers say; `[]`: nobody. `*.b.example`."),
    ] = None
    deny: Annotated[
        tuple[str, ...],
        Meta(description="Domains that do not pass, whatever rules and peers say; the most specific name decides."),
    ] = ()
