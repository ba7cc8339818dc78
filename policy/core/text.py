"""Policy files: TOML or JSON text becomes policy sets, and the tests that a file brings along are run.

A file holds one set at its top, or several under `sets` (or, in JSON, as a list); a set may have its rules under
`policies` or, when one policy is enough, directly under `rules`. `lists` names lists that conditions use as `"@name"`,
`limits` what rules let pass at most; `tests` are examples with the decision that the file's author expects: a file that
fails one of its own tests is refused as a whole. Unknown keys are errors.
Source: data formats, section 6; message specification, section 15.3; trust and hosts, section 5.3, rules 2, 6
and 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from policy.core.conditions import NO_LISTS, ConditionParser, Lists, checked
from policy.core.document import Node, Syntax, read_document
from policy.core.engine import CompiledPolicies, compile_policies
from policy.core.examples import Example, parse_examples, run_examples
from policy.core.limits import LIMIT_KEYS, parse_limit
from policy.core.model import (
    ALWAYS,
    Algorithm,
    AllOf,
    AnyOf,
    Condition,
    Effect,
    Mode,
    Obligation,
    Operator,
    Policy,
    PolicySet,
    Rule,
    Scalar,
    Test,
)
from policy.core.obligations import check_obligations, label_text
from policy.core.zones import clock_of, in_zone
from protofly.errors import SettingsError

_ALGORITHMS: Final = {algorithm.value: algorithm for algorithm in Algorithm} | {
    "blockOverrides": Algorithm.DENY_OVERRIDES,
    "denyOverrides": Algorithm.DENY_OVERRIDES,
    "allowOverrides": Algorithm.PERMIT_OVERRIDES,
    "permitOverrides": Algorithm.PERMIT_OVERRIDES,
    "firstApplicable": Algorithm.FIRST_APPLICABLE,
}
_EFFECTS: Final = {"permit": Effect.PERMIT, "deny": Effect.DENY}
_MODES: Final = {mode.value: mode for mode in Mode}


def _keys(*names: str, **aliases: str) -> dict[str, str]:
    return {name: name for name in names} | aliases


_COMMON: Final = ("id", "target", "priority", "obligations", "description")
_SET_KEYS: Final = _keys(
    *_COMMON,
    "version",
    "update",
    "zone",
    "mode",
    "policies",
    "rules",
    "actions",
    key="id",
    policyCombiningAlgorithm="policy_combining_algorithm",
    policy_combining_algorithm="policy_combining_algorithm",
    ruleCombiningAlgorithm="rule_combining_algorithm",
    rule_combining_algorithm="rule_combining_algorithm",
    combiningAlgorithm="rule_combining_algorithm",
    combining_algorithm="rule_combining_algorithm",
)
_FILE_KEYS: Final = _SET_KEYS | _keys("sets", "lists", "limits", "tests")
_POLICY_KEYS: Final = _keys(
    *_COMMON,
    "rules",
    ruleCombiningAlgorithm="rule_combining_algorithm",
    rule_combining_algorithm="rule_combining_algorithm",
    combiningAlgorithm="rule_combining_algorithm",
    combining_algorithm="rule_combining_algorithm",
)
_RULE_KEYS: Final = _keys(*_COMMON, "condition", "effect", "decision", "scope", "mode")


class _FileParser(ConditionParser):
    """Reads what refers to the lists and limits of its file."""

    def __init__(self, lists: Lists, limits: Mapping[str, str]) -> None:
        super().__init__(lists)
        self.limits = limits
        self.zone = ""


class PolicyText(NamedTuple):
    """One policy file as it was read. `name` is for messages."""

    name: str
    text: str
    syntax: Syntax


class PolicyFile(NamedTuple):
    """The contents of one policy file. `notes` says where its meaning differs from the systems it may come from."""

    sets: tuple[PolicySet, ...]
    examples: tuple[Example, ...]
    notes: tuple[str, ...]


def load_policies(
    texts: Sequence[PolicyText], *, mode: Mode = Mode.ENFORCE, groups: Lists = NO_LISTS
) -> CompiledPolicies:
    """Parse files, run the tests of each, and compile them together in their order.

    Args:
        texts: The files.
        mode: REPORT makes all of them report what they would decide, and decide nothing.
        groups: Lists that each file has besides its own; its own of the same name counts.

    Raises:
        SettingsError: Anything wrong in any of them; nothing is loaded then.
    """
    sets: list[PolicySet] = []
    for text in texts:
        sets.extend(parse_policy_file(text, groups).sets)
    if mode is Mode.REPORT:
        sets = [replace(policy_set, mode=Mode.REPORT) for policy_set in sets]
    return compile_policies(sets)


def parse_policy_file(source: PolicyText, groups: Lists = NO_LISTS) -> PolicyFile:
    """Parse one file and run its tests; `groups` are lists that it has besides its own.

    Raises:
        SettingsError: What is wrong, as `file:line: message`.
    """
    document = read_document(source.text, name=source.name, syntax=source.syntax)
    if isinstance(document.value, list):
        return _checked_file(source, document.entries(), _FileParser(groups, {}), ())
    members = document.members(_FILE_KEYS)
    lists = {**groups, **_parse_lists(members.pop("lists", None))}
    parser = _FileParser(lists, _parse_limits(members.pop("limits", None)))
    examples = parse_examples(members.pop("tests", None))
    if "sets" not in members:
        inner = {key: value for key, value in _as_dict(document).items() if key not in ("lists", "limits", "tests")}
        return _checked_file(source, [document.with_value(inner)], parser, examples)
    if "zone" in members:
        parser.zone = _zone(members.pop("zone"))
    if len(members) > 1:
        next(node for name, node in members.items() if name != "sets").fail("belongs into one of the sets")
    return _checked_file(source, members["sets"].entries(), parser, examples)


def _as_dict(document: Node) -> dict[str, object]:
    assert isinstance(document.value, dict)
    return document.value


def _checked_file(
    source: PolicyText, nodes: Sequence[Node], parser: _FileParser, examples: tuple[Example, ...]
) -> PolicyFile:
    """Compile the file by itself, one that only reports as if it were enforced, and hold its tests against it."""
    if not nodes:
        raise SettingsError(f"{source.name}: there is no policy set in it; write one, or leave the file out")
    sets = tuple(_parse_set(node, parser, number) for number, node in enumerate(nodes, 1))
    try:
        if all(policy_set.mode is Mode.REPORT for policy_set in sets):
            compiled = compile_policies([replace(policy_set, mode=Mode.ENFORCE) for policy_set in sets])
        else:
            compiled = compile_policies(sets)
    except SettingsError as exc:
        raise SettingsError(f"{source.name}: {exc.detail}") from exc
    run_examples(examples, compiled)
    return PolicyFile(sets, examples, tuple(dict.fromkeys(parser.notes)))


def _parse_lists(node: Node | None) -> Lists:
    if node is None:
        return {}
    return {name: tuple(entry.scalar() for entry in member.entries()) for name, member in node.members().items()}


def _parse_limits(node: Node | None) -> dict[str, str]:
    """Limits as their obligations say them, by name."""
    if node is None:
        return {}
    found = dict[str, str]()
    for name, member in node.members().items():
        words = member.members({key: key for key in LIMIT_KEYS})
        found[name] = " ".join([name, *(f"{key}={words[key].scalar()}" for key in LIMIT_KEYS if key in words)])
        try:
            parse_limit(found[name])
        except SettingsError as exc:
            member.fail(exc.detail)
    return found


def _parse_set(node: Node, parser: _FileParser, number: int) -> PolicySet:
    members = node.members(_SET_KEYS)
    if "rules" in members and "policies" in members:
        members["rules"].fail("a set has either policies or rules of its own")
    if "rules" not in members and "policies" not in members:
        node.fail("a set needs policies or rules")
    rule_algorithm = _algorithm(members.get("rule_combining_algorithm"))
    if "rules" in members:
        policies: tuple[Policy, ...] = (
            Policy(id="", rules=_parse_rules(members["rules"], parser), algorithm=rule_algorithm),
        )
    else:
        if "rule_combining_algorithm" in members:
            members["rule_combining_algorithm"].fail("belongs into a policy, the set has a policy_combining_algorithm")
        entries = members["policies"].entries()
        policies = tuple(_parse_policy(entry, parser, place) for place, entry in enumerate(entries, 1))
    found = PolicySet(
        id=members["id"].text() if "id" in members else f"set-{number}",
        version=members["version"].text() if "version" in members else "",
        update=str(members["update"].scalar()) if "update" in members else "",
        priority=members["priority"].whole_number() if "priority" in members else number,
        target=_condition(members.get("target"), parser),
        policies=policies,
        algorithm=_algorithm(members.get("policy_combining_algorithm")),
        mode=members["mode"].choose(_MODES, "mode") if "mode" in members else Mode.ENFORCE,
        obligations=(
            *_obligations(members.get("obligations"), None, parser),
            *_forwarding(members.get("actions"), parser),
        ),
    )
    zone = _zone(members["zone"]) if "zone" in members else parser.zone
    return _in_zone(found, zone) if zone else found


def _zone(node: Node) -> str:
    """The name of a time zone; UTC needs none."""
    name = node.text()
    try:
        clock_of(name)
    except SettingsError as exc:
        node.fail(exc.detail)
    return "" if name == "UTC" else name


def _in_zone(policy_set: PolicySet, zone: str) -> PolicySet:
    """A set whose conditions read times by the clocks of a zone."""
    policies = tuple(
        replace(
            policy,
            target=in_zone(policy.target, zone),
            rules=tuple(
                replace(rule, target=in_zone(rule.target, zone), condition=in_zone(rule.condition, zone))
                for rule in policy.rules
            ),
        )
        for policy in policy_set.policies
    )
    return replace(policy_set, target=in_zone(policy_set.target, zone), policies=policies)


def _parse_policy(node: Node, parser: _FileParser, number: int) -> Policy:
    members = node.members(_POLICY_KEYS)
    if "rules" not in members:
        node.fail("a policy needs rules")
    return Policy(
        id=members["id"].text() if "id" in members else f"policy-{number}",
        priority=members["priority"].whole_number() if "priority" in members else number,
        target=_condition(members.get("target"), parser),
        rules=_parse_rules(members["rules"], parser),
        algorithm=_algorithm(members.get("rule_combining_algorithm")),
        obligations=_obligations(members.get("obligations"), None, parser),
    )


def _parse_rules(node: Node, parser: _FileParser) -> tuple[Rule, ...]:
    """Rules; one without a priority comes after all before it. Source: data formats, section 6.1."""
    rules: list[Rule] = []
    last_priority = -1
    for number, entry in enumerate(node.entries(), 1):
        rule = _parse_rule(entry, parser, number, last_priority + 1)
        last_priority = max(last_priority, rule.priority)
        rules.append(rule)
    return tuple(rules)


def _parse_rule(node: Node, parser: _FileParser, number: int, next_priority: int) -> Rule:
    members = node.members(_RULE_KEYS)
    effect = _effect(node, members)
    if "scope" in members:
        target = _scope(members["scope"], members.get("target"), parser)
    else:
        target = _condition(members.get("target"), parser)
    return Rule(
        id=members["id"].text() if "id" in members else str(number),
        effect=effect,
        priority=members["priority"].whole_number() if "priority" in members else next_priority,
        target=target,
        condition=_condition(members.get("condition"), parser),
        mode=members["mode"].choose(_MODES, "mode") if "mode" in members else Mode.ENFORCE,
        obligations=_obligations(members.get("obligations"), effect, parser),
    )


def _effect(node: Node, members: dict[str, Node]) -> Effect:
    if ("effect" in members) is ("decision" in members):
        node.fail('a rule needs either an effect ("permit" or "deny") or a decision (true or false)')
    if "effect" in members:
        return members["effect"].choose(_EFFECTS, "effect")
    return Effect.PERMIT if members["decision"].flag() else Effect.DENY


def _scope(scope: Node, target: Node | None, parser: _FileParser) -> Condition:
    """`scope` and `target` of the runtime language as a condition."""
    word = scope.text()
    if word == "global":
        return ALWAYS
    if target is None or word not in ("identity", "hyperty"):
        scope.fail('scope is "global", or "identity" or "hyperty" with a target')
    name = target.text()
    if word == "identity":
        parser.notes.append("scope identity: the verified identity of the sender, not the owner of an address")
        return checked(Test(attribute="identity.user", operator=Operator.EQUALS, parameters=(name,)), target)
    sides = (Test(attribute=side, operator=Operator.EQUALS, parameters=(name,)) for side in ("msgFrom", "msgTo"))
    return checked(AnyOf(parts=tuple(sides)), target)


def _condition(node: Node | None, parser: _FileParser) -> Condition:
    if node is None:
        return ALWAYS
    condition = checked(parser.parse(node), node)
    return ALWAYS if isinstance(condition, AllOf) and not condition.parts else condition


def _algorithm(node: Node | None) -> Algorithm:
    return Algorithm.DENY_OVERRIDES if node is None else node.choose(_ALGORITHMS, "combining algorithm")


def _obligations(node: Node | None, effect: Effect | None, parser: _FileParser) -> tuple[Obligation, ...]:
    """Obligations under the effect to which they belong; a rule's may stand by themselves, it has only one effect."""
    if node is None:
        return ()
    found: list[Obligation] = []
    for key, member in node.members().items():
        if key in _EFFECTS:
            inner = member.members()
            found += [_obligation(_EFFECTS[key], name, value, parser) for name, value in inner.items()]
        elif effect is None:
            member.refuse_word(key, "effect", _EFFECTS)
        else:
            found.append(_obligation(effect, key, member, parser))
    return tuple(found)


def _forwarding(node: Node | None, parser: _FileParser) -> tuple[Obligation, ...]:
    """The `actions` of a set in the runtime language: `forwardToID` redirects to a user what the set permits."""
    entries = [] if node is None else node.entries()
    for entry in entries[1:]:
        entry.fail("a message is forwarded once: give one action")
    found = []
    for entry in entries:
        members = entry.members({"method": "method", "param": "param"})
        if "method" not in members or "param" not in members:
            entry.fail('an action needs "method" and "param"')
        if members["method"].text() != "forwardToID":
            members["method"].fail("of the actions forwardToID is carried out; for an answer use the obligation answer")
        user, has_at, domain = members["param"].text().partition("@")
        if not (user and has_at and domain):
            members["param"].fail("expected a user, such as alice@idp.example")
        address = members["param"].with_value(f"user://{domain}/{user}")
        found.append(_obligation(Effect.PERMIT, "redirect", address, parser))
        parser.notes.append("forwardToID: redirects what the set permits, to what the user has registered")
    return tuple(found)


def _obligation(effect: Effect, name: str, node: Node, parser: _FileParser) -> Obligation:
    """One obligation; an answer may be a table with code and description, a label a list; limits are of the file."""
    if name == "answer" and isinstance(node.value, dict):
        members = node.members({"code": "code", "description": "description"})
        if "code" not in members:
            node.fail('an answer needs a "code"')
        words = [str(members["code"].whole_number()), members["description"].text() if "description" in members else ""]
        return Obligation(on=effect, name=name, value=" ".join(filter(None, words)))
    if name == "label" and isinstance(node.value, list):
        value: Scalar = label_text(entry.text() for entry in node.entries())
    else:
        value = node.choose(parser.limits, "limit") if name in ("limit", "mark") else node.scalar()
    found = Obligation(on=effect, name=name, value=value)
    try:
        check_obligations((found,))
    except SettingsError as exc:
        node.fail(exc.detail)
    return found
