"""Settings of deferred delivery: `[delivery]`.

Source: message specification, section 19.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from protofly import limits

Seconds = Annotated[float, Meta(ge=1.0)]
Count = Annotated[int, Meta(ge=1)]


class DeliverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Actions that wait for agents and other domains, and later reports to their senders; see `docs/delivery.md`."""

    expires_seconds: Annotated[
        Seconds, Meta(description="How long an action waits when neither its agent nor its `ttl` says less.")
    ] = limits.PARKED_SECONDS
    longest_seconds: Annotated[Seconds, Meta(description="The longest that agents and senders may ask for.")] = (
        limits.PARKED_MAX_SECONDS
    )
    unanswered: Annotated[
        Annotated[int, Meta(ge=1, le=limits.AGENT_UNANSWERED)],
        Meta(description="Actions that an agent has at a time, when it announces no number of its own."),
    ] = limits.AGENT_UNANSWERED_DEFAULT
    per_agent: Annotated[Count, Meta(description="Open actions of one agent, or for one other domain.")] = (
        limits.PARKED_PER_AGENT
    )
    per_sender: Annotated[Count, Meta(description="Open actions of one sender (runtime or domain).")] = (
        limits.PARKED_PER_SENDER
    )
    bytes: Annotated[
        Count, Meta(description="Maximum size of all open actions together; one sender may fill an eighth.")
    ] = limits.PARKED_BYTES
    inbox_seconds: Annotated[Seconds, Meta(description="How long an inbox keeps entries without acknowledgement.")] = (
        limits.INBOX_SECONDS
    )
    inbox_entries: Annotated[Count, Meta(description="Entries of one inbox.")] = limits.INBOX_PER_OWNER
    thing_roles: Annotated[
        tuple[str, ...],
        Meta(description="Roles that may subscribe to things; none named: every session of the domain may."),
    ] = ()
