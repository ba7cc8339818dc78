"""The files for Prometheus and Grafana, and the names of metrics that they use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "trapezoid.rules.yml"
RULE_TESTS = DEPLOY / "prometheus" / "trapezoid.rules.test.yml"
BOARD = DEPLOY / "grafana" / "trapezoid.json"
_NAME = re.compile(r"\btrapezoid_[a-z0-9_]+")


def expressions() -> Iterator[str]:
    """The expressions of the board, with values in place of its variables."""
    for panel in json.loads(BOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression: str = target["expr"]
            for variable, value in {"$instance": ".*", "$domain": ".*", "$__rate_interval": "1m"}.items():
                expression = expression.replace(variable, value)
            yield expression


def names_used() -> set[str]:
    """The metrics that rules and board use, without the endings of histograms."""
    rules = [line for line in RULES.read_text(encoding="utf-8").splitlines() if "summary:" not in line]
    texts = [*rules, *expressions(), BOARD.read_text(encoding="utf-8")]
    found = {name for text in texts for name in _NAME.findall(text)}
    return {name.removesuffix("_bucket") for name in found}
