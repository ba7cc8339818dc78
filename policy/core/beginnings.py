"""The prefixes that an attribute must have for a rule to apply: one comparison rules out many rules.

Lists of addresses become adjacent rules, each of which would be evaluated for every message. If all of them need the
same attribute to start with one of a few texts, and it starts with none of them, none of these rules applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from policy.core.attributes import ATTRIBUTES, AttributeKind, Value
from policy.core.model import Condition, Facts, Operator, Test
from policy.core.parameters import canonical_address_pattern, canonical_parameter, text_parameter
from policy.core.rule_index import conjuncts

_KINDS: Final = frozenset({AttributeKind.ADDRESS, AttributeKind.TEXT})
_OPERATORS: Final = frozenset({Operator.EQUALS, Operator.IN, Operator.LIKE})
_MOST_TEXTS: Final = 16
"""A rule with a longer list has a set to look in, which is faster."""


class Beginning(NamedTuple):
    """An attribute, and the texts of which it begins with one wherever a rule applies."""

    attribute: str
    read: Callable[[Facts], Value | None]
    texts: tuple[str, ...]


def find_beginning(conditions: Iterable[Condition]) -> Beginning | None:
    """The first necessary beginning among conditions that all have to hold; they must have been compiled already."""
    for part in (inner for condition in conditions for inner in conjuncts(condition)):
        if not isinstance(part, Test) or part.operator not in _OPERATORS:
            continue
        attribute = ATTRIBUTES[part.attribute]
        if attribute.kind in _KINDS and 0 < len(part.parameters) <= _MOST_TEXTS:
            texts = _beginnings(part)
            if all(texts):
                return Beginning(part.attribute, attribute.read, texts)
    return None


def _beginnings(test: Test) -> tuple[str, ...]:
    """Return the text before the first wildcard; "" where a parameter fits anything."""
    attribute = ATTRIBUTES[test.attribute]
    if test.operator is not Operator.LIKE:
        if "*" in test.parameters:
            return ("",)
        return tuple(str(canonical_parameter(attribute, parameter)) for parameter in test.parameters)
    patterns = [text_parameter(parameter) for parameter in test.parameters]
    if attribute.kind is AttributeKind.ADDRESS:
        patterns = [canonical_address_pattern(pattern) for pattern in patterns]
    return tuple(pattern.partition("*")[0] for pattern in patterns)
