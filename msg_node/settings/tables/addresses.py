"""Tables about addresses: `[allocation]`, `[subscriptions]` and `[routing]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.values import NonNegative
from protofly import limits


class PoolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses that sessions borrow instead of getting new ones, for example telephone numbers of a gateway."""

    scheme: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+.-]{0,63}$")],
        Meta(description="Requests for this scheme are served from the pool; no other pool may have it."),
    ]
    addresses: Annotated[
        tuple[str, ...],
        Meta(description="Addresses of the pool, used longest unused first: `sip:…` or `sip://user@domain`."),
    ]


class AllocationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allocation and release of addresses."""

    strict_release: Annotated[
        bool,
        Meta(
            description="Only the owner's runtime and operators release an address; off: any runtime of the domain "
            "does, if the owner has no credential."
        ),
    ] = True
    pool: Annotated[tuple[PoolSettings, ...], Meta(description="Addresses that are lent.")] = ()


class SubscriptionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Subscriptions to addresses and objects."""

    require_consent: Annotated[
        bool, Meta(description="Changes and children of an object are for those whom its reporter accepted.")
    ] = False
    expand_schema: Annotated[
        bool, Meta(description="A `schema` that is named without children is read, and its children are subscribed.")
    ] = False
    catch_up_seconds: Annotated[
        NonNegative,
        Meta(description="How long changes are kept for disconnected observers; 0: not at all."),
    ] = 0.0
    catch_up_messages: Annotated[
        Annotated[int, Meta(ge=1, le=limits.SESSION_QUEUE_MESSAGES)],
        Meta(description="How many of them for one runtime; it is notified when it missed more."),
    ] = limits.MISSED_MESSAGES
    taps: Annotated[
        bool, Meta(description="Operators may subscribe to `*`: they get a copy of every message, without its tokens.")
    ] = False


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Senders and recipients that routing accepts."""

    learn: Annotated[
        bool, Meta(description="A local address that nobody owns may be used as `from`, and is reachable for an hour.")
    ] = True
    users: Annotated[
        bool, Meta(description="Messages to `user://`, `user-guid://`, `acct://` go to the user's live hyperties.")
    ] = False
    reporter_only: Annotated[
        bool, Meta(description="Only the reporter, and observers in children, may send to the observers of an object.")
    ] = True
