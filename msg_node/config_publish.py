"""What an operator may write about the endpoints of the domain's own stubs: `[[publish.endpoint]]`.

A messaging node has one, where other domains' nodes connect to it. The stub of a legacy service has others: places of
that service, which the node that publishes it never talks to itself. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from protofly.documents import Endpoint, EndpointName, EndpointUrl

if TYPE_CHECKING:
    from msg_node.config import PublishSettings, Settings

Problem = tuple[tuple[str | int, ...], str]
"""Where in the settings, and what is wrong."""


class EndpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more endpoint that `live` names, for stubs that connect elsewhere than to this node."""

    name: Annotated[EndpointName, Meta(description="Its name, as manifests and stubs say it.")]
    url: Annotated[EndpointUrl, Meta(description="`wss://`, `tls://` or `https://`, host in lower case, port, path.")]
    spki: Annotated[
        tuple[str, ...], Meta(description="Key pins (base64url SHA-256 of SubjectPublicKeyInfo) for its certificate.")
    ] = ()


def published_endpoints(publish: PublishSettings) -> tuple[Endpoint, ...]:
    """All endpoints that `live` names."""
    own = Endpoint(name=publish.endpoint_name, url=publish.endpoint_url, spki=list(publish.endpoint_spki))
    return (own, *(Endpoint(name=one.name, url=one.url, spki=list(one.spki)) for one in publish.endpoint))


def endpoint_problems(settings: Settings) -> Iterator[Problem]:
    """What types cannot say: names that are there twice, lines without encryption."""
    if settings.publish is None:
        return
    seen = {settings.publish.endpoint_name}
    for index, one in enumerate(settings.publish.endpoint):
        place = ("publish", "endpoint", index)
        if one.name in seen:
            yield (*place, "name"), f"a second endpoint {one.name}"
        seen.add(one.name)
        if one.url.startswith("ws:"):
            yield (*place, "url"), "not encrypted"
