"""A check for a running node: the same steps, in the thread that the node gives it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import trio

from msg_node.settings.model import Settings
from trapezoid.peer_check.run import check_domain


def check_beside(settings: Settings, domain: str) -> dict[str, object]:
    """The report of a check that runs no stub, as JSON can say it. Blocks; changes and remembers nothing."""
    report = trio.run(partial(check_domain, settings, domain, connects=False))
    facts: dict[str, Any] = {"domain": report.domain, "verdict": report.verdict.value, "steps": report.results}
    plain: dict[str, object] = msgspec.to_builtins(facts, enc_hook=str)
    return plain
