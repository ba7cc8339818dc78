"""Tables about the node itself: `[node]`, `[log]` and `[debug]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.tables.values import Name, NonNegative
from protofly import limits


class NodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of this node, and the folder of its data."""

    domain: Annotated[str, Meta(description="The domain of this node: lower-case A-labels, at least two.")]
    name: Annotated[Name, Meta(description="Name of this node inside its domain; part of record files and proofs.")] = (
        "mn-1"
    )
    aliases: Annotated[
        tuple[str, ...],
        Meta(description="Additional domains whose addresses are local here; the published root must name them."),
    ] = ()
    processes: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description="Processes that serve together on this machine, each with a core; 0: one for each core. "
            "More than one need `storage.engine`; see `docs/cluster.md`.",
        ),
    ] = 1
    data_dir: Annotated[
        Path, Meta(description="Folder for state, trust marks and the stubs cache; made with mode 0700.")
    ]
    drain_seconds: Annotated[
        NonNegative,
        Meta(description="Time in which a node that stops answers requests under way and hands over its messages."),
    ] = limits.DRAIN_SECONDS
    gather_seconds: Annotated[
        float,
        Meta(
            ge=0.0,
            le=0.01,
            description="Where more than a thousand messages a second come one by one, how long a busy node waits for "
            "further input, to do the work for several at once; 0: never.",
        ),
    ] = 0.001


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the log on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least level that is printed.")] = (
        "info"
    )
    format: Annotated[Literal["text", "json"], Meta(description="One line of text, or one JSON object, per event.")] = (
        "text"
    )


class DebugSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For those who look for a defect of the node."""

    flows: Annotated[
        Literal["on", "verify", "off"],
        Meta(
            description="Whether what messages of one sender, recipient and type have in common is decided once; "
            "`verify`: every message is judged by itself, and a difference is an error `flow-differs` in the log."
        ),
    ] = "on"
