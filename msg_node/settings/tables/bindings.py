"""Settings of the bindings beside the WebSocket, and of the digital twin.

Source: message specification, sections 19.1 and 19.5.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from protofly import limits


class HttpsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runtimes that post their messages (`/messages`), on the address of `[listen]`; see `docs/bindings.md`."""

    serve: Annotated[bool, Meta(description="Offer this binding; off: `/messages` is answered 404.")] = True
    poll_seconds: Annotated[
        Annotated[float, Meta(ge=1.0, le=limits.HTTP_POLL_SECONDS_MAX)],
        Meta(description="Polling interval announced to runtimes; a session without stream or poll for three is lost."),
    ] = limits.HTTP_POLL_SECONDS
    queue_messages: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="Messages waiting for one runtime between polls.")
    ] = limits.HTTP_QUEUE_MESSAGES


class MqttSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runtimes behind an MQTT broker; needs `pip install trapezoid[mqtt]`; see `docs/bindings.md`."""

    host: Annotated[str, Meta(min_length=1, description="The broker.")]
    port: Annotated[Annotated[int, Meta(ge=1, le=65_535)], Meta(description="Its TCP port.")] = 8883
    version: Annotated[
        Literal["5", "3.1.1"], Meta(description="Version of MQTT that the node speaks; runtimes may speak another.")
    ] = "5"
    ca_file: Annotated[
        Path | None,
        Meta(description="PEM file with the authorities that the broker's certificate may be of."),
    ] = None
    certificate: Annotated[Path | None, Meta(description="PEM file with the node's client certificate.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with its private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Connect without TLS: a broker on the same machine, or a laboratory.")
    ] = False
    username: Annotated[str, Meta(description="User name at the broker.")] = ""
    password_file: Annotated[Path | None, Meta(description="File with the password, mode 0600.")] = None
    prefix: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$")],
        Meta(description="First levels of all topics."),
    ] = "trapezoid"
    tokens: Annotated[
        Literal["required", "at-open"],
        Meta(description="`at-open`: later messages need none; the broker's access rules alone say who sent them."),
    ] = "required"


class TwinSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digital twin: descriptions and latest values of things; see `docs/twin.md`."""

    objects: Annotated[
        tuple[str, ...],
        Meta(description="Objects whose attributes are kept as well; `/*` at the end of one means all below it."),
    ] = ()
