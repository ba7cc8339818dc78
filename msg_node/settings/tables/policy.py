"""Settings of the gates between domains: `[policy]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.tables.block_lists import PublicKey


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
    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(
            max_length=8,
            description="Public Ed25519 keys, base64url; a bundle is refused unless one has signed it.",
        ),
    ] = ()
    two_persons: Annotated[
        bool,
        Meta(
            description="A bundle is activated with another credential than it was added with; other changes of "
            "policies, groups and gates for a time wait until another credential confirms them."
        ),
    ] = False
    documents: Annotated[
        bool,
        Meta(
            description="Owners of objects may name a policy of our own catalogue for them in `body.policy`; it can "
            "only deny what would pass."
        ),
    ] = False
    allow: Annotated[
        tuple[str, ...] | None,
        Meta(description="If given, no other domains pass, whatever rules and peers say; `[]`: nobody. `*.b.example`."),
    ] = None
    lists_agree: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="How many of the `[[block_list]]` in mode `enforce` have to name a domain until it is blocked.",
        ),
    ] = 1
    lists_exempt: Annotated[
        tuple[str, ...],
        Meta(description="Domains that no `[[block_list]]` ever blocks; `*.b.example` for those below one."),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        Meta(description="Domains that do not pass, whatever rules and peers say; the most specific name decides."),
    ] = ()
