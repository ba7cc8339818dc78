"""From a scene that fails to the smallest one that fails in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from interop.lab.core.scene import LabScene, problems_of
from tests.simulation.play import Outcome
from tests.simulation.seeds import with_what_can_break

MOST_TRIES: Final = 80
_TABLES: Final = ("domain", "runtime", "load", "object", "action", "fault")


def kinds_of(outcome: Outcome) -> frozenset[str]:
    """What was broken: names of promises, or the last line of a defect."""
    return frozenset(_kind(one) for one in outcome.findings)


def _kind(finding: str) -> str:
    name, _, text = finding.partition(": ")
    return f"{name}: {text.splitlines()[-1]}" if name == "defect" else name


def shrunk(scene: LabScene, outcome: Outcome, play: Callable[[LabScene], Outcome]) -> tuple[LabScene, Outcome]:
    """Leave out and lessen what can be, as long as one of the findings stays."""
    wanted, tries = kinds_of(outcome), 0
    is_smaller = True
    while is_smaller and tries < MOST_TRIES:
        is_smaller = False
        for candidate in _smaller(scene):
            if any(problems_of(candidate)):
                continue
            tries += 1
            tried = play(candidate)
            if kinds_of(tried) & wanted:
                scene, outcome, is_smaller = candidate, tried, True
                break
            if tries >= MOST_TRIES:
                break
    return scene, outcome


def _smaller(scene: LabScene) -> Iterator[LabScene]:
    """Scenes with one thing less, the greatest steps first."""
    for table in ("fault", "action", "load", "runtime", "object"):
        entries: tuple[Any, ...] = getattr(scene, table)
        for index in range(len(entries)):
            yield with_what_can_break(msgspec.structs.replace(scene, **{table: entries[:index] + entries[index + 1 :]}))
    for index, load in enumerate(scene.load):
        lesser = [
            msgspec.structs.replace(load, bytes=0),
            msgspec.structs.replace(load, per_second=load.per_second / 2),
            msgspec.structs.replace(load, seconds=round(load.seconds / 2, 2)),
        ]
        for one in lesser:
            if one != load and one.per_second >= 1.0 and one.seconds >= 1.0:
                yield msgspec.structs.replace(scene, load=(*scene.load[:index], one, *scene.load[index + 1 :]))


def as_toml(scene: LabScene) -> str:
    """The scene as a file that `trapezoid lab run` and `./run simulate --scene` read, without what are defaults."""
    lines = [f"title = {json.dumps(scene.title)}"]
    for table in _TABLES:
        for entry in getattr(scene, table):
            lines += ["", f"[[{table}]]", *_members(entry)]
    return "\n".join([*lines, "", "[promise]", *_members(scene.promise), ""])


def _members(entry: msgspec.Struct) -> list[str]:
    return [
        f"{one.encode_name} = {json.dumps(msgspec.to_builtins(getattr(entry, one.name)))}"
        for one in msgspec.structs.fields(entry)
        if getattr(entry, one.name) != one.default
    ]
