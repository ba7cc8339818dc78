"""The figures of several processes in one text of Prometheus: each sample gets a label `process`.

In that format, version 0.0.4, the lines of one metric stand together, below its `# HELP` and `# TYPE`.
"""

from __future__ import annotations

from collections.abc import Mapping


def of_processes(texts: Mapping[int, bytes]) -> bytes:
    """Put texts together.

    Args:
        texts: As each process has written it, by its number.
    """
    heads: dict[str, dict[str, None]] = {}  # in order, each once
    samples: dict[str, list[str]] = {}
    for number, text in sorted(texts.items()):
        family = ""
        for line in text.decode().splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, {})[line] = None
            elif line:
                samples.setdefault(family, []).append(_labelled(line, number))
    lines = [line for family, head in heads.items() for line in (*head, *samples.get(family, ()))]
    return "".join(f"{line}\n" for line in lines).encode()


def _labelled(line: str, number: int) -> str:
    label = f'process="{number}"'
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}"
