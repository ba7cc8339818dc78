"""Conditions as files write them: the message-node language, and the triples of the runtime language.

Message-node language: `{"<attribute>": {"<operator>": parameter}}`; pairs in one table all have to hold, of a list
one; `allOf`, `anyOf` and `not` anywhere; a list as parameter means any of them. Runtime language: `{"attribute",
"operator", "params"}` and `["and" | "or" | "not", left, right]`. Both become the same conditions.
Source: data formats, sections 6.1 and 6.2; message specification, section 15.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from policy.core.attributes import ALIASES, ATTRIBUTES, AttributeKind
from policy.core.closures import compile_condition, compile_test
from policy.core.document import Node, walk_texts
from policy.core.model import ALWAYS, AllOf, AnyOf, Condition, Not, Operator, Scalar, Test
from protofly.errors import SettingsError
from protofly.limits import POLICY_NESTING_LEVELS

Lists = Mapping[str, tuple[Scalar, ...]]
NO_LISTS: Final[Lists] = {}

_ATTRIBUTES: Final = {name: name for name in ATTRIBUTES} | ALIASES
_SPLIT_NAMES: Final = frozenset(name.partition(".")[0] for name in ATTRIBUTES if "." in name)
_OPERATORS: Final = {operator.value: operator for operator in Operator} | {"greaterThan": Operator.MORE_THAN}
_LOGIC: Final = ("allOf", "anyOf", "not")
_RUNTIME_ATTRIBUTES: Final = {
    "source": "identity.user",
    "domain": "srcIDPDomain",
    "scheme": "dstScheme",
    "date": "date",
    "weekday": "weekday",
    "time": "time",
}


class ConditionParser:
    """Turns nodes into conditions. `notes` collects every place where the meaning differs from the original systems."""

    def __init__(self, lists: Lists) -> None:
        self.notes: list[str] = []
        self._lists = lists

    def parse(self, node: Node, level: int = 0) -> Condition:
        """Read a condition or target.

        Raises:
            SettingsError: What cannot be understood, with its line.
        """
        if level > POLICY_NESTING_LEVELS:
            node.fail(f"conditions are nested more than {POLICY_NESTING_LEVELS} deep")
        if _is_runtime_form(node.value):
            return self._runtime(node, level)
        if isinstance(node.value, list):
            parts = tuple(self.parse(entry, level + 1) for entry in node.entries())
            return AnyOf(parts=parts) if parts else ALWAYS
        parts = tuple(self._member(key, member, level) for key, member in node.members().items())
        return parts[0] if len(parts) == 1 else AllOf(parts=parts)

    def _member(self, key: str, node: Node, level: int) -> Condition:
        if key == "not":
            return Not(part=self.parse(node, level + 1))
        if key in ("allOf", "anyOf"):
            parts = tuple(self.parse(entry, level + 1) for entry in node.entries())
            return AllOf(parts=parts) if key == "allOf" else AnyOf(parts=parts)
        if key in _SPLIT_NAMES and isinstance(node.value, dict):  # TOML reads identity.user as a table in a table
            members = node.members()
            return AllOf(parts=tuple(self._member(f"{key}.{name}", member, level) for name, member in members.items()))
        if key not in _ATTRIBUTES:
            node.refuse_word(key, "attribute", (*_ATTRIBUTES, *_LOGIC))
        return self._expression(_ATTRIBUTES[key], node, level)

    def _expression(self, attribute: str, node: Node, level: int) -> Condition:
        if level > POLICY_NESTING_LEVELS:
            node.fail(f"conditions are nested more than {POLICY_NESTING_LEVELS} deep")
        if isinstance(node.value, list):
            return AnyOf(parts=tuple(self._expression(attribute, entry, level + 1) for entry in node.entries()))
        parts: list[Condition] = []
        for key, member in node.members().items():
            if key == "not":
                parts.append(Not(part=self._expression(attribute, member, level + 1)))
            elif key in ("allOf", "anyOf"):
                inner = tuple(self._expression(attribute, entry, level + 1) for entry in member.entries())
                parts.append(AllOf(parts=inner) if key == "allOf" else AnyOf(parts=inner))
            elif key in _OPERATORS:
                parts.append(self._test(attribute, _OPERATORS[key], member))
            else:
                member.refuse_word(key, "operator", (*_OPERATORS, *_LOGIC))
        return parts[0] if len(parts) == 1 else AllOf(parts=tuple(parts))

    def _test(self, attribute: str, operator: Operator, node: Node) -> Test:
        parameters = tuple(parameter for entry in walk_texts(node) for parameter in self._parameters(entry))
        test = Test(attribute=attribute, operator=operator, parameters=parameters)
        try:
            compile_test(test)
        except SettingsError as exc:
            node.fail(exc.detail)
        return test

    def _parameters(self, node: Node) -> tuple[Scalar, ...]:
        value = node.scalar()
        if isinstance(value, str) and value.startswith("@"):
            if value[1:] not in self._lists:
                node.refuse_word(value[1:], "list", self._lists)
            return self._lists[value[1:]]
        return (value,)

    def _runtime(self, node: Node, level: int) -> Condition:
        if isinstance(node.value, dict):
            return self._triple(node)
        word, *rest = node.entries()
        parts = tuple(self.parse(entry, level + 1) for entry in rest)
        if word.value == "not":
            if len(parts) != 1:
                node.fail('"not" takes one condition')
            return Not(part=parts[0])
        return AllOf(parts=parts) if word.value == "and" else AnyOf(parts=parts)

    def _triple(self, node: Node) -> Condition:
        members = node.members({"attribute": "attribute", "operator": "operator", "params": "params"})
        if len(members) != 3:
            node.fail("a condition of the runtime language has attribute, operator and params")
        name = members["attribute"].text()
        attribute = _RUNTIME_ATTRIBUTES.get(name) or _ATTRIBUTES.get(name)
        if attribute is None:
            members["attribute"].fail(f'a node does not know the attribute "{name}" of a runtime')
        operator = members["operator"].choose(_OPERATORS, "operator")
        if name in ("source", "domain"):
            self.notes.append(f"{name}: the identity that this node verified, not the one that the message claims")
        return self._test(attribute, operator, self._runtime_parameters(attribute, operator, members["params"]))

    def _runtime_parameters(self, attribute: str, operator: Operator, node: Node) -> Node:
        """Parameters as the message-node language writes them: times as text, ranges as one text, groups as lists."""
        kind = ATTRIBUTES[attribute].kind
        values = node.value if isinstance(node.value, list) else [node.value]
        texts = [_runtime_value(kind, value) for value in values]
        if operator is Operator.BETWEEN:
            return node.at(0, " ".join(map(str, texts)))
        if operator is Operator.IN and isinstance(node.value, str):
            return node.at(0, f"@{node.value}")
        return node.at(0, texts)


def _runtime_value(kind: AttributeKind, value: object) -> object:
    if kind is AttributeKind.TIME and isinstance(value, int) and not isinstance(value, bool):
        return f"{value // 100:02d}:{value % 100:02d}"
    if kind is AttributeKind.DATE and isinstance(value, str) and value.count("/") == 2:
        day, month, year = value.split("/")
        return f"{year}-{month}-{day}"
    return value


def _is_runtime_form(value: object) -> bool:
    if isinstance(value, dict):
        return "attribute" in value and "operator" in value
    return isinstance(value, list) and bool(value) and value[0] in ("and", "or", "not")


def checked(condition: Condition, node: Node) -> Condition:
    """A condition of which it is known that it compiles.

    Raises:
        SettingsError: It does not, with its line.
    """
    try:
        compile_condition(condition)
    except SettingsError as exc:
        node.fail(exc.detail)
    return condition
