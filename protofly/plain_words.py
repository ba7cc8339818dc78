"""What msgspec says about types, in words that people who write settings and documents know."""

from __future__ import annotations

import re

_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_TYPES = re.compile(r"`(\w+(?: \| \w+)*)`")


def without_types(text: str) -> str:
    """The same complaint without names of types: "Expected `str`, got `int`" asks for a text and got a whole number."""
    return _TYPES.sub(_worded, text)


def _worded(found: re.Match[str]) -> str:
    names = found[1].split(" | ")
    return " or ".join(_WORDS[name] for name in names) if all(name in _WORDS for name in names) else found[0]
