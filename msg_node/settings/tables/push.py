"""Settings of wake-up calls for runtimes that are away: `[push]`.

Source: feature row HM-04; RFC 8030 and 8292.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.registries import BackendSettings


class PushServiceSettings(BackendSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One push service that runtimes may be woken through; of `url`, the origin."""


class PushSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runtimes that are away are woken through their push service; absent: none is. See `docs/delivery.md`."""

    key: Annotated[
        Path, Meta(description="PEM file with a private key on P-256, mode 0600; runtimes subscribe for it.")
    ]
    subject: Annotated[str, Meta(description="Contact for push services, for example `mailto:ops@a.example`.")]
    ttl_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=2_419_200)],
        Meta(description="How long a push service keeps a call for a device that is off."),
    ] = 86_400
    rest_seconds: Annotated[
        Annotated[float, Meta(ge=1.0)], Meta(description="Least time between two calls to one endpoint.")
    ] = 30.0
    service: Annotated[tuple[PushServiceSettings, ...], Meta(description="Push services that may be used.")] = ()
