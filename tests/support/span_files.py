"""Files of spans, as `[traces] file` has them written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_spans(path: Path) -> list[dict[str, Any]]:
    """All spans in a file of OTLP/JSON lines, in their order."""
    return [
        span
        for line in path.read_text(encoding="utf-8").splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
