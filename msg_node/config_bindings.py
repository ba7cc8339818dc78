"""What an operator may write about the bindings beside the WebSocket: `[https]`.

Source: message specification, section 19.5.
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
