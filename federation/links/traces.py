"""The way of single messages, for operators: which hop when.

Only messages whose sender set `body.trace` are followed, and only the last few are kept. These are no audit records.
"""

from __future__ import annotations

import time
from collections import OrderedDict

import msgspec

MAX_TRACES = 200
_MAX_HOPS = 32
_MAX_TRACE_CHARS = 128


class Traces:
    """Hops of recently traced messages.

    Times are µs of the system's monotonic clock, equal for all processes of one machine.
    """

    def __init__(self) -> None:
        self._hops: OrderedDict[str, list[tuple[str, int]]] = OrderedDict()

    def hop(self, trace: bytes, name: str, at_seconds: float | None = None) -> None:
        """A message passed a place; `trace` is the raw JSON text of `body.trace`, `at_seconds` monotonic."""
        try:
            key = msgspec.json.decode(trace, type=str)[:_MAX_TRACE_CHARS]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        hops = self._hops.setdefault(key, [])
        if len(hops) < _MAX_HOPS:
            hops.append((name, int((time.monotonic() if at_seconds is None else at_seconds) * 1e6)))
        while len(self._hops) > MAX_TRACES:
            self._hops.popitem(last=False)

    def snapshot(self) -> list[dict[str, object]]:
        """Oldest first."""
        return [
            {"id": key, "hops": [{"name": name, "at_us": at_us} for name, at_us in hops]}
            for key, hops in self._hops.items()
        ]
