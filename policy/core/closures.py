"""From the condition of a rule to a closure that answers True, False or None.

None is *indeterminate*: an attribute was missing, and what the rest says does not settle the matter whatever its
value may be (Kleene's three-valued logic; so the order of the parts never changes the answer).
Source: data formats, section 6.1 (operators); trust and hosts, section 5.3, rule 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from policy.core.attributes import ATTRIBUTES, Attribute, AttributeKind, Value
from policy.core.model import AllOf, Condition, Facts, Not, Operator, Scalar, Test
from policy.core.parameters import (
    canonical_address_pattern,
    canonical_parameter,
    number_parameter,
    text_parameter,
)
from policy.core.patterns import DomainMatcher, DomainPattern, glob, parse_domain_pattern
from policy.core.zones import zoned
from protofly.errors import SettingsError
from protofly.limits import POLICY_NESTING_LEVELS

Predicate = Callable[[Facts], bool | None]
_Check = Callable[..., bool]  # takes the attribute's value, which is not None and of the attribute's kind

_ORDERED: Final = (Operator.EQUALS, Operator.MORE_THAN, Operator.LESS_THAN, Operator.BETWEEN)
_TEXTUAL: Final = (Operator.EQUALS, Operator.IN, Operator.LIKE, Operator.CONTAINS)
_OPERATORS: Final = {
    AttributeKind.DOMAIN: (Operator.EQUALS, Operator.IN, Operator.LIKE),
    AttributeKind.ADDRESS: _TEXTUAL,
    AttributeKind.TEXT: _TEXTUAL,
    AttributeKind.WORD: _TEXTUAL,
    AttributeKind.TEXTS: _TEXTUAL,
    AttributeKind.NUMBER: (*_ORDERED, Operator.IN),
    AttributeKind.FLAG: (Operator.EQUALS,),
    AttributeKind.TIME: _ORDERED,
    AttributeKind.DATE: (*_ORDERED, Operator.IN),
    AttributeKind.WEEKDAY: (Operator.EQUALS, Operator.IN),
}


def always(_facts: Facts) -> bool:
    """The condition that always holds."""
    return True


def unknown(_facts: Facts) -> None:
    """The condition of which it is settled that it cannot be settled."""
    return


def never(_facts: Facts) -> bool:
    """The condition that never holds."""
    return False


def compile_condition(condition: Condition, level: int = 0) -> Predicate:
    """Make the closure for a condition.

    Args:
        condition: What has to hold.
        level: How deep inside other conditions it stands; bounded, so that evaluation cannot overflow the stack.

    Raises:
        SettingsError: An attribute, operator or parameter that does not go together; too many levels.
    """
    if level > POLICY_NESTING_LEVELS:
        raise SettingsError(f"conditions are nested more than {POLICY_NESTING_LEVELS} deep: split the rule")
    if isinstance(condition, Test):
        return compile_test(condition)
    if isinstance(condition, Not):
        return _negate(compile_condition(condition.part, level + 1))
    parts = tuple(compile_condition(part, level + 1) for part in condition.parts)
    return all_of(parts) if isinstance(condition, AllOf) else any_of(parts)


def all_of(parts: tuple[Predicate, ...]) -> Predicate:
    """False as soon as one part is false, else None if one is unknown, else true."""
    if not parts:
        return always
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        return _both(*parts)

    def holds(facts: Facts) -> bool | None:
        answer: bool | None = True
        for part in parts:
            outcome = part(facts)
            if outcome is False:
                return False
            if outcome is None:
                answer = None
        return answer

    return holds


def _both(first: Predicate, second: Predicate) -> Predicate:
    """`all_of` for the usual two, without a loop."""

    def holds(facts: Facts) -> bool | None:
        outcome = first(facts)
        if outcome:
            return second(facts)
        return False if outcome is False or second(facts) is False else None

    return holds


def any_of(parts: tuple[Predicate, ...]) -> Predicate:
    """True as soon as one part is true, else None if one is unknown, else false."""
    if not parts:
        return never
    if len(parts) == 1:
        return parts[0]

    def holds(facts: Facts) -> bool | None:
        answer: bool | None = False
        for part in parts:
            outcome = part(facts)
            if outcome:
                return True
            if outcome is None:
                answer = None
        return answer

    return holds


def _negate(part: Predicate) -> Predicate:
    def holds(facts: Facts) -> bool | None:
        outcome = part(facts)
        return None if outcome is None else not outcome

    return holds


def tests_of(condition: Condition) -> Iterator[Test]:
    """Every comparison inside a condition."""
    if isinstance(condition, Test):
        yield condition
    elif isinstance(condition, Not):
        yield from tests_of(condition.part)
    else:
        for part in condition.parts:
            yield from tests_of(part)


def domain_patterns(test: Test) -> tuple[DomainPattern, ...]:
    """The patterns of a comparison with a domain.

    Raises:
        SettingsError: One of them is not a domain pattern.
    """
    return tuple(parse_domain_pattern(text_parameter(parameter)) for parameter in test.parameters)


def compile_test(test: Test) -> Predicate:
    """Make the closure for one comparison.

    Raises:
        SettingsError: As `compile_condition`.
    """
    attribute = ATTRIBUTES.get(test.attribute)
    if attribute is None:
        raise SettingsError(f'there is no attribute "{test.attribute}"')
    if test.zone:
        attribute = zoned(attribute, test.zone)
    if test.operator is Operator.PRESENT:
        return _presence(attribute, test)
    permitted = _OPERATORS[attribute.kind]
    if test.operator not in permitted:
        words = ", ".join(operator.value for operator in (*permitted, Operator.PRESENT))
        raise SettingsError(
            f'"{attribute.name}" is {attribute.kind.value}: use one of {words}, not {test.operator.value}'
        )
    if test.operator is Operator.EQUALS and "*" in test.parameters:
        return _checked(attribute, lambda _value: True)
    if test.operator in (Operator.EQUALS, Operator.IN) and attribute.kind not in (
        AttributeKind.DOMAIN,
        AttributeKind.TEXTS,
    ):
        return _one_of(attribute, frozenset(canonical_parameter(attribute, parameter) for parameter in test.parameters))
    return _checked(attribute, _check(attribute, test))


def _presence(attribute: Attribute, test: Test) -> Predicate:
    if len(test.parameters) != 1 or not isinstance(test.parameters[0], bool):
        raise SettingsError("present: expected true or false")
    read, wanted = attribute.read, test.parameters[0]
    return lambda facts: (read(facts) is not None) is wanted


def _checked(attribute: Attribute, check: _Check) -> Predicate:
    read = attribute.read

    def holds(facts: Facts) -> bool | None:
        value = read(facts)
        return None if value is None else check(value)

    return holds


def _one_of(attribute: Attribute, wanted: frozenset[Value]) -> Predicate:
    read = attribute.read

    def holds(facts: Facts) -> bool | None:
        value = read(facts)
        return None if value is None else value in wanted

    return holds


def _check(attribute: Attribute, test: Test) -> _Check:
    """The comparison of a known value, by the kind of the attribute."""
    if attribute.kind is AttributeKind.DOMAIN:
        return DomainMatcher(domain_patterns(test))
    if test.operator in (Operator.EQUALS, Operator.IN):
        wanted = frozenset(map(text_parameter, test.parameters))
        return lambda values: not wanted.isdisjoint(values)
    if attribute.kind in (AttributeKind.NUMBER, AttributeKind.TIME, AttributeKind.DATE):
        return _either([_ordered(attribute, test.operator, parameter) for parameter in test.parameters])
    check = _either([_textual(attribute, test.operator, text_parameter(parameter)) for parameter in test.parameters])
    return (lambda values: any(map(check, values))) if attribute.kind is AttributeKind.TEXTS else check


def _either(checks: list[_Check]) -> _Check:
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


def _textual(attribute: Attribute, operator: Operator, parameter: str) -> _Check:
    if operator is Operator.CONTAINS:
        if attribute.kind is AttributeKind.TEXTS:  # a list contains an element, a text contains a piece
            return lambda value: value == parameter
        return lambda value: parameter in value
    if attribute.kind is AttributeKind.ADDRESS:
        parameter = canonical_address_pattern(parameter)
    return glob(parameter.lower() if attribute.kind is AttributeKind.WORD else parameter)


def _ordered(attribute: Attribute, operator: Operator, parameter: Scalar) -> _Check:
    if operator is Operator.BETWEEN:
        return _between(attribute, parameter)
    bound = canonical_parameter(attribute, parameter)
    assert isinstance(bound, int)
    if operator is Operator.MORE_THAN:
        return lambda value: value > bound
    return lambda value: value < bound


def _between(attribute: Attribute, parameter: Scalar) -> _Check:
    """Exclusive at both ends; a time whose end comes before its start runs over midnight."""
    words = text_parameter(parameter).split()
    if len(words) != 2:
        raise SettingsError('between: expected "<start> <end>"')
    parsed = [number_parameter(word) if attribute.kind is AttributeKind.NUMBER else word for word in words]
    start, end = (canonical_parameter(attribute, word) for word in parsed)
    assert isinstance(start, int)
    assert isinstance(end, int)
    if start <= end:
        return lambda value: start < value < end
    if attribute.kind is not AttributeKind.TIME:
        raise SettingsError("between: the start comes after the end; exchange them")
    return lambda value: value > start or value < end
