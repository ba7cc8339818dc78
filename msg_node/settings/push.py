"""Settings of wake-up calls for runtimes that are away: `[push]`.

Source: feature row HM-04; RFC 8030 and 8292.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from msg_node.settings.problem import Problem
from msg_node.settings.registries import backend_problems
from msg_node.settings.tables.push import PushServiceSettings, PushSettings


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
