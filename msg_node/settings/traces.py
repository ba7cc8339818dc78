"""Settings of traces: `[traces]`, spans of messages between domains for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def traces_problems(settings: Settings) -> Iterator[Problem]:
    """Find what is wrong with the settings of traces."""
    traces = settings.traces
    if traces is None:
        return
    if traces.file is None and not traces.endpoint:
        yield ("traces",), "needs `file`, `endpoint` or both: where spans go"
    if traces.endpoint:
        parts = urlsplit(traces.endpoint)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not parts.hostname or not (parts.scheme == "https" or is_local):
            yield ("traces", "endpoint"), "not an https:// URL (http:// is for a collector on this machine)"
    elif traces.token_file is not None or traces.ca_file is not None:
        yield ("traces",), "`token_file` and `ca_file` are for an `endpoint`"
