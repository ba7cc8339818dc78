"""The table `[limits]`: bounds of the node."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.values import PositiveInt, Rate
from protofly import limits


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds that an operator may change. All others are fixed in `protofly/limits.py`."""

    frame_bytes: Annotated[
        Annotated[int, Meta(ge=4_096, le=limits.FRAME_BYTES_MAX)],
        Meta(description="Largest message of a runtime or a peer."),
    ] = limits.FRAME_BYTES
    max_hops: Annotated[
        Annotated[int, Meta(ge=1, le=limits.VIA_ENTRIES)], Meta(description="Domains a message may pass.")
    ] = limits.MAX_HOPS
    session_queue_messages: Annotated[PositiveInt, Meta(description="Messages waiting for one slow runtime.")] = (
        limits.SESSION_QUEUE_MESSAGES
    )
    session_queue_bytes: Annotated[PositiveInt, Meta(description="Bytes waiting for one slow runtime.")] = (
        limits.SESSION_QUEUE_BYTES
    )
    allocation_per_session: Annotated[PositiveInt, Meta(description="Addresses one session may own.")] = (
        limits.ALLOCATION_PER_SESSION
    )
    allocation_per_guest_domain: Annotated[
        PositiveInt, Meta(description="Addresses that all guests of one other domain may own together.")
    ] = limits.ALLOCATION_PER_GUEST_DOMAIN
    subscriptions_per_session: Annotated[PositiveInt, Meta(description="Subscriptions one session may hold.")] = (
        limits.SUBSCRIPTIONS_PER_SESSION
    )
    waiting_messages: Annotated[
        PositiveInt, Meta(description="Messages waiting for one domain during its look-up.")
    ] = limits.WAITING_MESSAGES
    waiting_bytes: Annotated[PositiveInt, Meta(description="Bytes waiting for one domain during its look-up.")] = (
        limits.WAITING_BYTES
    )
    waiting_seconds: Annotated[
        Rate, Meta(description="How long a message waits for its domain before it is answered.")
    ] = limits.WAITING_SECONDS
    sessions: Annotated[
        PositiveInt,
        Meta(
            description="Runtimes connected or in grace at the same time. When all places are taken, the network with "
            "the most that have proved nothing gives way."
        ),
    ] = 20_000
    links: Annotated[
        PositiveInt,
        Meta(
            description="Foreign domains with a link at the same time; peers that are named in full always have theirs."
        ),
    ] = 256
