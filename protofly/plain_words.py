"""What our libraries say about types and encodings, in words that people who write settings and documents know."""

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
_TYPES = re.compile(r"(?<=[Ee]xpected )`(\w+(?: \| \w+)*)`|(?<=got )`(\w+)`")
_ENCODING = re.compile(r"'(utf-8|ascii)' codec can't decode byte.*?: [a-z][a-z ()0-9]*")


def without_types(text: str) -> str:
    """The same complaint without names of types: "Expected `str`, got `int`" asks for a text and got a whole number."""
    text = _ENCODING.sub(lambda found: f"not {found[1].upper()} text", text) if " codec " in text else text
    return _TYPES.sub(_worded, text) if "`" in text else text


def _worded(found: re.Match[str]) -> str:
    names = (found[1] or found[2]).split(" | ")
    return " or ".join(_WORDS[name] for name in names) if all(name in _WORDS for name in names) else found[0]
