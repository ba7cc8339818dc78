"""What an operator may write about the bindings beside the WebSocket, and about the digital twin.

Source: message specification, sections 19.1 and 19.5.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from protofly import limits


class HttpsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runtimes that post their messages (`/messages`), on the address of `[listen]`; see `docs/bindings.md`."""

    serve: Annotated[bool, Meta(description="Whether there are any; off: `/messages` is answered 404.")] = True
    poll_seconds: Annotated[
        Annotated[float, Meta(ge=1.0, le=limits.HTTP_POLL_SECONDS_MAX)],
        Meta(
            description="The rhythm that runtimes are told to poll in; three without stream or poll, and one is lost."
        ),
    ] = limits.HTTP_POLL_SECONDS
    queue_messages: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="Messages waiting for one runtime between polls.")
    ] = limits.HTTP_QUEUE_MESSAGES


class TwinSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digital twin: descriptions and latest values of things; see `docs/twin.md`."""

    objects: Annotated[
        tuple[str, ...],
        Meta(description="Objects whose attributes are kept as well; `/*` at the end of one means all below it."),
    ] = ()
