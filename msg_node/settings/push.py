"""Settings of wake-up calls for runtimes that are away: `[push]`.

Source: feature row HM-04; RFC 8030 and 8292.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from msg_node.settings.registries import BackendSettings, Problem, backend_problems


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


def origin_of(service: PushServiceSettings) -> str:
    """Scheme, host and port of a push service, as endpoints begin."""
    parts = urlsplit(service.url)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def push_problems(push: PushSettings | None) -> Iterator[Problem]:
    """Check the fields of `[push]` against each other."""
    if push is None:
        return
    if not push.subject.startswith(("mailto:", "https://")):
        yield ("push", "subject"), "`mailto:…` or `https://…`"
    if not push.service:
        yield ("push", "service"), "no push service is named: nobody could be woken"
    for index, service in enumerate(push.service):
        for (*_, key), text in backend_problems("push.service", service):
            yield ("push", "service", index, key), text
        if urlsplit(service.url).path not in ("", "/"):
            yield ("push", "service", index, "url"), "an origin: `https://host[:port]`"
