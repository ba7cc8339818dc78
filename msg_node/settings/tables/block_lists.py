"""Settings of block lists of other operators: `[[block_list]]`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from msg_node.settings.tables.registries import BackendSettings

PublicKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}\Z")]


class BlockListSettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of domains that another operator advises to block, signed by it. See `docs/operating.md`."""

    author: Annotated[str, Meta(description="Domain of the operator whose list it is.")]
    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(min_length=1, max_length=4, description="Its public Ed25519 keys, base64url; one of them has signed it."),
    ]
    mode: Annotated[
        Literal["report", "enforce"],
        Meta(description="`report` shows what would be blocked; `enforce` blocks it while the list is valid."),
    ] = "report"
    exempt: Annotated[
        tuple[str, ...], Meta(description="Domains that this list never blocks; `*.b.example` for those below one.")
    ] = ()
    poll_seconds: Annotated[
        Annotated[float, Meta(ge=1.0, le=86_400.0)], Meta(description="Interval of asking for the list.")
    ] = 900.0
