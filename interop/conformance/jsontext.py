"""JSON as the suite reads it: numbers keep every digit, members keep their order, duplicates are seen.

Source: message specification, sections 1.1 and 1.5; RFC 8259.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

_LONE: Final = re.compile("[\ud800-\udfff]")
"""Half of a pair: a node may write it escaped, and no UTF-8 holds it."""
Json = object
"""Whatever `parse` returns: dict, list, str, int, Decimal, bool, None."""


class NotJsonError(ValueError):
    """A text is not JSON, or not as a node may write it."""


def parse(text: str, *, allow_duplicates: bool = False) -> Json:
    """Read one JSON text.

    Args:
        text: As received.
        allow_duplicates: The last of several members with the same name wins, instead of being an error.

    Raises:
        NotJsonError: not JSON; `NaN` and `Infinity`, which are not JSON either; duplicate members; too deep to read.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=dict if allow_duplicates else _unique_members,
            parse_float=Decimal,
            parse_constant=_refuse_constant,
        )
    except RecursionError as exc:
        raise NotJsonError("nested too deeply to be read") from exc
    except ValueError as exc:
        raise NotJsonError(str(exc)) from exc


def _unique_members(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise NotJsonError(f"duplicate member {', '.join(twice)}")
    return members


def _refuse_constant(word: str) -> Json:
    raise NotJsonError(f"{word} is not JSON")


def write(value: Json) -> str:
    """One JSON text without spaces, which UTF-8 can hold; decimals keep their digits."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except TypeError:  # a decimal, which the library does not write
        return _write_with_decimals(value)
    return json.dumps(value, separators=(",", ":")) if _LONE.search(text) else text


def _write_with_decimals(value: Json) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{write(name)}:{write(entry)}" for name, entry in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(write(entry) for entry in value) + "]"
        case Decimal():
            return str(value)
        case _:
            raise TypeError(f"not JSON: {value!r}")


def shorten(text: str, limit_chars: int = 400) -> str:
    """A text of a stranger for people: its beginning, how much more there is, and nothing that moves a terminal."""
    shown = text if len(text) <= limit_chars else f"{text[:limit_chars]}… ({len(text)} characters)"
    if shown.isprintable():
        return shown
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown)
