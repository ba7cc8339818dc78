"""What the twins of several nodes say about one thing, object, value or page, as one answer.

A thing is described where its agent is, or was: of two descriptions that of a connected agent counts, then the newer
one; of two values the newer one. A page has what each node gives on a page of its own. Source: message specification,
section 19.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

_Shown = Mapping[str, object]


def joined_twins(answers: Sequence[object]) -> object:
    """Join values of answers, of which there is at least one; what is not of the form of the first has no part."""
    shown = [cast("_Shown", one) for one in answers if isinstance(one, dict)]
    if not shown:
        return answers[0]
    first = shown[0]
    if "things" in first:
        return _page([one for one in shown if isinstance(one.get("things"), list)])
    if "status" in first:
        return max((one for one in shown if "status" in one), key=_rank)
    if "values" in first:
        return {**first, "values": _values([one for one in shown if "status" not in one])}
    return max(shown, key=_received)


def _rank(thing: _Shown) -> tuple[bool, float]:
    return thing.get("status") == "live", _number(thing, "modified")


def _received(value: _Shown) -> float:
    return _number(value, "received")


def _number(shown: _Shown, name: str) -> float:
    number = shown.get(name)
    return number if isinstance(number, int | float) else 0.0


def _values(shown: Sequence[_Shown]) -> dict[str, object]:
    values: dict[str, _Shown] = {}
    for one in shown:
        for name, value in cast("dict[str, _Shown]", one.get("values") or {}).items():
            if name not in values or _received(value) > _received(values[name]):
                values[name] = value
    return dict(values)


def _page(pages: Sequence[_Shown]) -> dict[str, object]:
    things: dict[object, _Shown] = {}
    count = 0
    for page in pages:
        for thing in cast("list[_Shown]", page["things"]):
            count += 1
            known = things.get(thing.get("resource"))
            if known is None or _rank(thing) > _rank(known):
                things[thing.get("resource")] = thing
    total = int(sum(_number(page, "total") for page in pages)) - (count - len(things))
    most = max(int(_number(page, "pages")) for page in pages)
    return {"things": list(things.values()), "page": pages[0]["page"], "pages": most, "total": total}
