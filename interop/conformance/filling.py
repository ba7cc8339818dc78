"""From a case to one run of it: names filled in, replies spelled out for the dialect and the profile."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from interop.conformance.jsontext import Json
from interop.conformance.matching import Maybe, Number, OneOf, Open, Placeholder, Text
from interop.conformance.model import ABSENT, NODE_ADDRESS, Dialect, Profile, Refusal, Success

HINTS: Final = Maybe(OneOf(({"member": Text()}, {"retryAfter": Number()})))
"""What the specification puts into the `value` of refusals. Source: message specification, sections 1.7 and 4."""
_NAME: Final = re.compile(r"\{([a-z][a-z0-9_.]*)\}")


def fill_text(text: str, names: Mapping[str, str]) -> str:
    """Put names into a text.

    Raises:
        KeyError: the case uses a name that no step has kept.
    """
    return _NAME.sub(lambda match: names[match[1]], text)


def fill(value: Json, names: Mapping[str, str]) -> Json:
    """Put names into all texts of a JSON value."""
    match value:
        case str():
            return fill_text(value, names)
        case dict():
            return {fill_text(name, names): fill(entry, names) for name, entry in value.items()}
        case list() | tuple():
            return [fill(entry, names) for entry in value]
        case _:
            return value


@dataclasses.dataclass(frozen=True, slots=True)
class Manner:
    """Profile and dialect by which the answers of a node are expected."""

    dialect: Dialect
    profile: Profile

    def expect(self, pattern: Json, names: Mapping[str, str]) -> Json:
        """A pattern of a case as one for this run."""
        match pattern:
            case Success() | Refusal():
                spelled = self._success(pattern) if isinstance(pattern, Success) else self._refusal(pattern)
                return self.expect(spelled, names)
            case Text(expression, name):
                return Text(_NAME.sub(lambda match: re.escape(names[match[1]]), expression), fill_text(name, names))
            case Placeholder():
                return self._expect_inside(pattern, names)
            case dict():
                return {fill_text(name, names): self.expect(entry, names) for name, entry in pattern.items()}
            case list():
                return [self.expect(entry, names) for entry in pattern]
            case tuple():
                return tuple(self.expect(entry, names) for entry in pattern)
            case _:
                return fill(pattern, names)

    def _expect_inside(self, pattern: Placeholder, names: Mapping[str, str]) -> Placeholder:
        held = {
            part.name: self.expect(getattr(pattern, part.name), names)
            for part in dataclasses.fields(pattern)
            if part.name != "name"
        }
        return dataclasses.replace(pattern, **held)

    def _success(self, success: Success) -> Json:
        value = {} if success.value is ABSENT else {"value": success.value}
        if self.profile is Profile.REFERENCE:
            return Open({"code": 200, **value})
        words = {"desc": Maybe("OK")} if self.dialect.has_session_messages else {}
        return {"code": 200, "description": "OK", **words, **value}

    def _refusal(self, refusal: Refusal) -> Json:
        if self.profile is Profile.REFERENCE:
            return Open({"code": OneOf(("error", Number(300, 599)))})
        words = Text(refusal.text)
        body: dict[str, Json] = {"code": refusal.code, "description": words, "reason": OneOf(refusal.reasons)}
        if self.dialect.has_session_messages:
            body["desc"] = words
        body["source"] = NODE_ADDRESS if refusal.in_place_of_target else Maybe(NODE_ADDRESS)
        return {**body, "value": HINTS if refusal.value is ABSENT else refusal.value}
