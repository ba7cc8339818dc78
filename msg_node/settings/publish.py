"""Settings of what the domain publishes, and of endpoints of its stubs: `[[publish.endpoint]]`.

A messaging node has one, where other domains' nodes connect to it. The stub of a legacy service has others: places of
that service, which the node that publishes it never talks to itself. Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from msg_node.settings.tables.publish import PublishSettings
from protofly.documents import Endpoint


def published_endpoints(publish: PublishSettings) -> tuple[Endpoint, ...]:
    """All endpoints that `live` names."""
    own = Endpoint(name=publish.endpoint_name, url=publish.endpoint_url, spki=list(publish.endpoint_spki))
    return (own, *(Endpoint(name=one.name, url=one.url, spki=list(one.spki)) for one in publish.endpoint))


def endpoint_problems(settings: Settings) -> Iterator[Problem]:
    """Check endpoints: no name twice, no line without encryption."""
    if settings.publish is None:
        return
    seen = {settings.publish.endpoint_name}
    for index, one in enumerate(settings.publish.endpoint):
        place = ("publish", "endpoint", index)
        if one.name in seen:
            yield (*place, "name"), f"a second endpoint {one.name}"
        seen.add(one.name)
        if one.url.startswith(("ws:", "http:")):
            yield (*place, "url"), "not encrypted"
