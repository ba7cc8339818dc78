"""The table `[compat]`: what older runtimes need."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class CompatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Behaviour of the reference nodes that old runtimes or their test suites may need; see `docs/dialects.md`."""

    profile: Annotated[
        Literal["", "rethink"],
        Meta(
            description="`rethink`: all that existing runtimes rely on, in one line: every switch of this section, "
            "`allocation.strict_release = false` and a long `sessions.grace_seconds`. What you set yourself wins."
        ),
    ] = ""
    sm_error: Annotated[
        Literal[400, 500], Meta(description="The code for runtimes of dialect A when a subscription names nothing.")
    ] = 400
    echo: Annotated[
        bool, Meta(description="Runtimes of dialect A get copies of what they send to addresses they listen to.")
    ] = False
    return_by_address: Annotated[
        bool,
        Meta(description="A lost runtime of dialect B, C or socket.io that proves nothing comes back by its address."),
    ] = False
    take_over: Annotated[
        bool,
        Meta(
            description="A second `open` of a runtime that proves nothing takes its session over, in every dialect of "
            "the reference nodes, while the first connection is live too; off: 409."
        ),
    ] = False
    keep_registered: Annotated[
        bool,
        Meta(
            description="Registry entries stay `live` until they expire when the session of their runtime ends; off: "
            "they are `disconnected`."
        ),
    ] = False
