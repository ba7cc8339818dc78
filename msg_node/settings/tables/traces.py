"""Settings of traces: `[traces]`, spans of messages between domains for OpenTelemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


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
