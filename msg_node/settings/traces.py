"""Settings of traces: `[traces]`, spans of messages between domains for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from msg_node.settings.model import Settings

Problem = tuple[tuple[str | int, ...], str]
"""Where in the settings, and what is wrong."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class TracesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans of messages between domains, for OpenTelemetry; needs `pip install trapezoid[traces]`."""

    share: Annotated[
        Annotated[float, Meta(ge=0.0, le=1.0)],
        Meta(
            description="Share of messages between domains that are traced. Chosen by the id of the message, so two "
            "nodes with the same share choose the same ones. Messages with a `traceparent` in `body.trace` follow its "
            "flag instead."
        ),
    ] = 0.01
    per_second: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="Most messages from and to one domain that are traced in a second; the rest is counted."),
    ] = 100
    file: Annotated[
        Path | None,
        Meta(description="File of OTLP/JSON lines; at 64 MiB it is renamed to `<name>.1`, and begun anew."),
    ] = None
    endpoint: Annotated[
        str, Meta(description="URL of a collector for OTLP over HTTP, such as `https://collector.lan:4318/v1/traces`.")
    ] = ""
    token_file: Annotated[Path | None, Meta(description="File with the bearer token for the collector, mode 0600.")] = (
        None
    )
    ca_file: Annotated[Path | None, Meta(description="Authorities of the collector; absent: those of the system.")] = (
        None
    )


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
