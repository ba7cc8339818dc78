"""Parameters of comparisons, brought into the form in which the attributes' values come.

Source: data formats, sections 6.1 and 6.2; message specification, section 15.3 (accepted aliases).
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from policy.core.attributes import TYPE_ALIASES, Attribute, AttributeKind, Value
from policy.core.model import HOOKS, Scalar
from protofly.address import canonical_key, scheme_of
from protofly.errors import PeerError, SettingsError

_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_HOOK_ALIASES: Final = {"domain-out": "out", "domain-in": "in"}


def canonical_parameter(attribute: Attribute, parameter: Scalar) -> Value:
    """A parameter in the form in which the attribute's value comes.

    Raises:
        SettingsError: It cannot be one of this attribute.
    """
    match attribute.kind:
        case AttributeKind.NUMBER:
            return number_parameter(parameter)
        case AttributeKind.FLAG:
            return _flag(parameter)
        case AttributeKind.TIME:
            return _time(text_parameter(parameter))
        case AttributeKind.DATE:
            return _date(text_parameter(parameter))
        case AttributeKind.WEEKDAY:
            return _weekday(parameter)
        case AttributeKind.ADDRESS:
            return _canonical_address(text_parameter(parameter))
        case AttributeKind.WORD:
            return _word(attribute.name, text_parameter(parameter).lower())
        case _:
            return text_parameter(parameter)


def text_parameter(parameter: Scalar) -> str:
    """A text; a number counts as its digits.

    Raises:
        SettingsError: It is neither.
    """
    if isinstance(parameter, bool | float):
        raise SettingsError(f"expected a text, not {parameter}")
    return str(parameter)


def number_parameter(parameter: Scalar) -> int:
    """A whole number, or a text of digits.

    Raises:
        SettingsError: It is neither.
    """
    try:
        if isinstance(parameter, bool | float):
            raise ValueError
        return int(parameter)
    except ValueError as exc:
        raise SettingsError(f'expected a whole number, not "{parameter}"') from exc


def _flag(parameter: Scalar) -> bool:
    flag = {"true": True, "false": False}.get(str(parameter).lower())
    if flag is None:
        raise SettingsError(f'expected true or false, not "{parameter}"')
    return flag


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if not found:
        raise SettingsError(f'expected a time as "22:30:00" (UTC), not "{text}"')
    hours, minutes, seconds = (int(group or 0) for group in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _date(text: str) -> int:
    try:
        return dt.date.fromisoformat(text).toordinal()
    except ValueError as exc:
        raise SettingsError(f'expected a date as "2026-03-01", not "{text}"') from exc


def _weekday(parameter: Scalar) -> int:
    text = str(parameter).lower()
    if text in _WEEKDAYS:
        return _WEEKDAYS.index(text)
    if text.isdecimal() and len(text) == 1 and int(text) < 7:
        return int(text)
    raise SettingsError(f'expected a weekday by its English name or 0 (Sunday) to 6, not "{parameter}"')


def _word(name: str, word: str) -> str:
    if name == "hook":
        word = _HOOK_ALIASES.get(word, word)
        if word not in HOOKS:
            raise SettingsError(f'there is no hook "{word}"; there are {", ".join(HOOKS)}')
    elif name == "actionType":
        return TYPE_ALIASES.get(word, word)
    elif word == "hyperty-runtime":
        return "runtime"
    return word


def _canonical_address(text: str) -> str:
    if "*" in text:
        raise SettingsError(f'"{text[:80]}" holds a wildcard: use like')
    try:
        return canonical_key(text)
    except PeerError as exc:
        raise SettingsError(f'"{text[:80]}" is not an address') from exc


def canonical_address_pattern(pattern: str) -> str:
    """Scheme and authority as canonical keys write them; the path keeps its case.

    Raises:
        SettingsError: It begins with what cannot be a scheme.
    """
    scheme, colon, rest = pattern.partition("://")
    if not colon:
        return pattern
    authority, slash, path = rest.partition("/")
    try:
        scheme = scheme if "*" in scheme else scheme_of(f"{scheme}://x")
    except PeerError as exc:
        raise SettingsError(f'"{pattern[:80]}" does not begin with an address scheme') from exc
    return f"{scheme}://{authority if scheme == 'user-guid' else authority.lower()}{slash}{path}"
