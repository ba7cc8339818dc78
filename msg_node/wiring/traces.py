"""Makes the export of spans, where its optional library is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msg_node.services import VERSION
from msg_node.settings.model import Settings
from msg_node.settings.tables.traces import TracesSettings
from msg_node.storage.file_checks import read_private
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from msg_node.admin.span_export import SpanExport, SpanTarget


def build_span_export(settings: Settings) -> SpanExport | None:
    """The export that the settings ask for, None when they ask for none.

    Raises:
        SettingsError: A file cannot be used, or the library is not installed.
    """
    if settings.traces is None:
        return None
    target = span_target(settings.traces)
    from msg_node.admin.span_export import SpanExport

    return SpanExport(settings.node_id, VERSION, target)


def span_target(traces: TracesSettings) -> SpanTarget:
    """Build the destination of spans from the settings.

    Raises:
        SettingsError: The file of the token cannot be used, or the library is not installed.
    """
    try:
        from msg_node.admin.span_export import SpanTarget
    except ModuleNotFoundError as exc:
        text = f"[traces] needs a library that is not installed: pip install 'trapezoid[traces]' ({exc})"
        raise SettingsError(text) from exc
    token = "" if traces.token_file is None else read_private(traces.token_file).decode("utf-8", "replace").strip()
    return SpanTarget(traces.share, traces.per_second, traces.file, traces.endpoint, token, traces.ca_file)
