from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.core.document import Syntax, read_document
from policy.core.engine import Effect, Mode
from policy.core.gate import Gate
from policy.core.line_map import LineMap
from policy.core.text import PolicyFile, PolicyText, load_policies, parse_policy_file
from policy.files import read_policies, read_policy_text
from protofly.errors import SettingsError
from protofly.limits import POLICY_FILE_BYTES
from tests.support.policies import a_message, some_facts

_SHOWN = 60
EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"


def parse(text: str, syntax: Syntax = "toml") -> PolicyFile:
    return parse_policy_file(PolicyText("p", text, syntax))


def decide(text: str, syntax: Syntax = "toml") -> tuple[str, str]:
    decision = load_policies([PolicyText("p", text, syntax)]).decide(some_facts())
    return decision.effect.value, decision.rule_id


def with_condition(condition: str) -> str:
    return f'id = "s"\n[[rules]]\nid = "r"\neffect = "deny"\ncondition = {condition}\n'


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_examples_load_and_pass_their_own_tests(path: Path) -> None:
    assert read_policies([path]).sets


def test_original_message_node_file_is_read_as_it_is() -> None:
    policies = read_policies([EXAMPLES / "office-hours.json"])
    message = a_message(from_="hyperty://b.example/h", to="hyperty://a.example/h")
    decision = policies.decide(some_facts(message, hook="in"))
    assert decision.rule_id == "inter-domain/b-office-hours/1"
    sunday = policies.decide(some_facts(message, hook="in", now=1_772_359_200.0))
    assert sunday.rule_id == "inter-domain/b-office-hours/2"
    assert [(obligation.name, obligation.value) for obligation in sunday.obligations] == [("log", "blocked")]


@pytest.mark.parametrize("user", ["alice@idp.example", "Alice.B@idp.example"])
def test_an_action_of_the_runtime_language_forwards_what_its_set_permits(user: str) -> None:
    rules = [{"condition": {"attribute": "time", "operator": "between", "params": [900, 1700]}, "decision": True}]
    text = {"key": "away", "rules": rules, "actions": [{"method": "forwardToID", "param": user}]}
    source = PolicyText("away.json", json.dumps(text), "json")
    assert any(note.startswith("forwardToID") for note in parse_policy_file(source).notes)
    gate = Gate(load_policies([source]))
    name, _, domain = user.partition("@")
    message = a_message(from_="hyperty://a.example/h", to="hyperty://a.example/g")
    noon, night = (gate.judge(some_facts(message, hook="local", now=1_772_366_400.0 + hours)) for hours in (0, 36_000))
    assert noon.instead is not None
    assert noon.instead.address == f"user://{domain}/{name}"
    assert (night.permitted, night.instead) == (True, None)


def test_runtime_language_file_shows_where_its_meaning_changes() -> None:
    file = parse_policy_file(read_policy_text(EXAMPLES / "quiet-evenings.json"))
    assert len(file.notes) == 3
    assert any("verified" in note for note in file.notes)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('{ dstDomain = { equals = "b.example" }, actionType = { equals = "create" } }', "deny"),
        ('{ dstDomain = { equals = "b.example" }, actionType = { equals = "read" } }', "not-applicable"),
        ('[{ actionType = { equals = "read" } }, { srcDomain = { equals = "a.example" } }]', "deny"),
        ("[]", "deny"),
        ("{}", "deny"),
        ('{ anyOf = [{ actionType = { equals = "read" } }, { size = { moreThan = 1 } }] }', "deny"),
        ('{ allOf = [{ actionType = { equals = "read" } }, { size = { moreThan = 1 } }] }', "not-applicable"),
        ('{ not = { actionType = { equals = "read" } } }', "deny"),
        ('{ actionType = { not = { in = ["read", "create"] } } }', "not-applicable"),
        ('{ actionType = [{ equals = "read" }, { like = "cre*" }] }', "deny"),
        ('{ actionType = { anyOf = [{ equals = "read" }, { equals = "create" }] } }', "deny"),
        ('{ actionType = { allOf = [{ like = "c*" }, { like = "*x" }] } }', "not-applicable"),
        ("{ size = { moreThan = 1, lessThan = 3 } }", "not-applicable"),
        ("{ identity.verified = { equals = true } }", "not-applicable"),
        ("{ identity.verified = { equals = false }, identity.user = { present = false } }", "deny"),
        ('{ "session.roles" = { contains = "x" } }', "not-applicable"),
        ("{ date = { equals = 2026-01-05 } }", "deny"),
        ("{ time = { equals = 12:00:00 } }", "deny"),
    ],
)
def test_conditions_in_all_their_forms(condition: str, expected: str) -> None:
    assert decide(with_condition(condition))[0] == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"attribute": "time", "operator": "between", "params": [1100, 1300]}, "deny"),
        ({"attribute": "time", "operator": "greaterThan", "params": 1300}, "not-applicable"),
        ({"attribute": "weekday", "operator": "equals", "params": 1}, "deny"),
        ({"attribute": "time", "operator": "greaterThan", "params": "11:00"}, "deny"),
        ({"attribute": "date", "operator": "equals", "params": "05/01/2026"}, "deny"),
        ({"attribute": "date", "operator": "equals", "params": "2026-01-05"}, "deny"),
        ({"attribute": "scheme", "operator": "in", "params": ["comm", "hyperty"]}, "deny"),
        (["not", {"attribute": "scheme", "operator": "equals", "params": "comm"}], "deny"),
        (
            [
                "and",
                {"attribute": "scheme", "operator": "equals", "params": "hyperty"},
                ["or", {"attribute": "weekday", "operator": "equals", "params": 1}, {}],
            ],
            "deny",
        ),
        ({"attribute": "source", "operator": "in", "params": "friends"}, "deny"),
    ],
)
def test_conditions_of_the_runtime_language(condition: object, expected: str) -> None:
    rule = {"scope": "global", "target": "global", "condition": condition, "decision": False}
    text = json.dumps(
        {"key": "k", "rules": [rule], "combiningAlgorithm": "firstApplicable", "lists": {"friends": ["ana"]}}
    )
    assert decide(text, "json")[0] == expected


CREATE, READ = ({"attribute": "actionType", "operator": "equals", "params": word} for word in ("create", "read"))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (["and", CREATE, CREATE], "deny"),
        (["and", CREATE, READ], "not-applicable"),
        (["or", READ, READ], "not-applicable"),
        (["or", READ, CREATE], "deny"),
        (["not", READ], "deny"),
        (["not", CREATE], "not-applicable"),
    ],
)
def test_logic_of_the_runtime_language(condition: object, expected: str) -> None:
    rules = [{"condition": condition, "decision": False}]
    assert decide(json.dumps({"key": "k", "rules": rules}), "json")[0] == expected


def test_a_condition_of_the_runtime_language_without_params_is_refused() -> None:
    condition = {"attribute": "actionType", "operator": "equals"}
    with pytest.raises(SettingsError, match="has attribute, operator and params"):
        decide(json.dumps({"key": "k", "rules": [{"condition": condition, "decision": False}]}), "json")


@pytest.mark.parametrize("condition", [["not"], ["not", CREATE, READ]])
def test_not_takes_one_condition(condition: object) -> None:
    with pytest.raises(SettingsError, match='"not" takes one condition'):
        decide(json.dumps({"key": "k", "rules": [{"condition": condition, "decision": False}]}), "json")


IN_CONDITIONS: dict[str, Callable[[object], object]] = {
    "list": lambda inner: [inner],
    "not": lambda inner: {"not": inner},
    "allOf": lambda inner: {"allOf": [inner]},
    "anyOf": lambda inner: {"anyOf": [inner]},
    "and": lambda inner: ["and", inner],
    "runtime not": lambda inner: ["not", inner],
}
IN_EXPRESSIONS = {name: IN_CONDITIONS[name] for name in ("list", "not", "allOf", "anyOf")}


@pytest.mark.parametrize(
    ("kind", "is_expression"), [*((kind, False) for kind in IN_CONDITIONS), *((kind, True) for kind in IN_EXPRESSIONS)]
)
def test_conditions_of_a_file_stand_inside_each_other_up_to_32_levels(kind: str, is_expression: bool) -> None:
    def text(levels: int) -> str:
        condition: object = {"equals": "create"} if is_expression else {"actionType": {"equals": "create"}}
        for _ in range(levels):
            condition = IN_CONDITIONS[kind](condition)
        if is_expression:
            condition = {"actionType": condition}
        return json.dumps({"id": "s", "rules": [{"id": "r", "effect": "deny", "condition": condition}]})

    assert decide(text(32), "json")[0] == "deny"
    with pytest.raises(SettingsError, match="nested more than 32 deep"):
        decide(text(33), "json")
    with pytest.raises(SettingsError, match="nested more than 32 deep"):  # more than could be read to the end
        decide(text(600 if kind in ("list", "not") else 470), "json")


def runtime_condition(attribute: str, operator: str, params: object) -> PolicyText:
    condition = {"attribute": attribute, "operator": operator, "params": params}
    rules = [{"condition": condition, "decision": False}]
    return PolicyText("p", json.dumps({"key": "k", "rules": rules, "lists": {"friends": ["ana"]}}), "json")


@pytest.mark.parametrize(("user", "expected"), [("ana", Effect.DENY), ("friends", Effect.NOT_APPLICABLE)])
def test_a_group_of_the_runtime_language_is_a_list(user: str, expected: Effect) -> None:
    policies = load_policies([runtime_condition("source", "in", "friends")])
    assert policies.decide(some_facts(identity_user=user, identity_verified=True)).effect is expected


def test_a_text_of_the_runtime_language_that_is_no_date_keeps_its_slashes() -> None:
    policies = load_policies([runtime_condition("resource", "equals", "/rooms/x")])
    assert policies.decide(some_facts(a_message(resource="/rooms/x"))).effect is Effect.DENY
    assert policies.decide(some_facts(a_message(resource="x-rooms-"))).effect is Effect.NOT_APPLICABLE


@pytest.mark.parametrize(("attribute", "params"), [("time", True), ("date", 5), ("date", "5/1"), ("time", [1100])])
def test_values_of_the_runtime_language_that_make_no_sense_are_refused(attribute: str, params: object) -> None:
    load_policies([runtime_condition("time", "greaterThan", 1100)])
    with pytest.raises(SettingsError):
        load_policies([runtime_condition(attribute, "between", params)])
    if not isinstance(params, list):
        with pytest.raises(SettingsError):
            load_policies([runtime_condition(attribute, "equals", params)])


@pytest.mark.parametrize(
    ("target", "expected"), [("hyperty://b.example/h-bo", "deny"), ("hyperty://x.example/h", "not-applicable")]
)
def test_scope_of_the_runtime_language(target: str, expected: str) -> None:
    rule = {"scope": "hyperty", "target": target, "decision": False}
    assert decide(json.dumps({"key": "k", "rules": [rule]}), "json")[0] == expected


def test_several_sets_in_one_file_keep_their_order() -> None:
    text = """
    [[sets]]
    id = "b"
    target = { dstSPDomain = { equals = "b.example" } }
    rules = [{ effect = "permit" }]
    [[sets]]
    id = "rest"
    rules = [{ effect = "deny" }]
    """
    assert decide(text) == ("permit", "b/1")


def test_rule_without_priority_comes_after_those_before_it() -> None:
    (policy_set,) = parse(
        'rules = [{ effect = "deny", priority = 4 }, { effect = "deny" }, { effect = "deny", priority = 1 }]'
    ).sets
    assert [rule.priority for rule in policy_set.policies[0].rules] == [4, 5, 1]
    assert policy_set.id == "set-1"


def test_snake_case_and_camel_case_are_the_same_keys() -> None:
    snake = 'policies = [{ rule_combining_algorithm = "first-applicable", rules = [{ effect = "deny" }] }]'
    camel = 'policies = [{ ruleCombiningAlgorithm = "firstApplicable", rules = [{ effect = "deny" }] }]'
    assert parse(snake).sets == parse(camel).sets


def test_report_mode_for_all_files_decides_nothing() -> None:
    policies = load_policies([PolicyText("p", 'rules = [{ effect = "deny" }]', "toml")], mode=Mode.REPORT)
    decision = policies.decide(some_facts())
    assert decision.effect is Effect.NOT_APPLICABLE
    assert decision.shadow[0].effect is Effect.DENY


def test_file_in_report_mode_is_tested_as_if_it_were_enforced() -> None:
    text = """
    mode = "report"
    rules = [{ effect = "deny" }]
    tests = [{ from = "comm://a.example/r", to = "comm://b.example/r", expect = "deny" }]
    """
    assert parse(text).sets[0].mode is Mode.REPORT


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('id = "s"\n\n[[rules]]\nefect = "deny"\n', 4, 'did you mean "effect"'),
        (with_condition("{ acttionType = {} }"), 5, 'did you mean "actionType"'),
        (with_condition('{ actionType = { eqals = "x" } }'), 5, 'did you mean "equals"'),
        (
            with_condition('{\n  linkDomain = {\n    like = "*b.example"\n} }')
            .replace("{\n", "{ ")
            .replace("\n}", "}"),
            5,
            "whole labels",
        ),
        (with_condition('{ actionType = { in = "@nobody" } }'), 5, "unknown list"),
        (with_condition("{ allOf = 7 }"), 5, "expected a list"),
        (with_condition("7"), 5, "expected a table"),
        (with_condition("{ identity = 7 }"), 5, 'unknown attribute "identity"'),
        ('rules = [\n  { effect = "deny" },\n  { effect = "dney" },\n]\n', 3, 'did you mean "deny"'),
        ('rules = [\n  { id = """a\nb""", effect = "deny" },\n  { effect = 7 },\n]\n', 4, "unknown effect"),
        ("[[rules]]\n[[rules]]\n# no effect\n", 1, "either an effect"),
        ('[[rules]]#first\neffect = "dney"', 2, 'did you mean "deny"'),
        ('[obligations.permit]#all\nlog = [1]\n[[rules]]\neffect = "deny"', 2, "expected a text"),
        ('rules = [{ effect = "deny", decision = true }]', 1, "either an effect"),
        ('rules = [{ decision = "no" }]', 1, "true or false"),
        ('rules = [{ effect = "deny", mode = "maybe" }]', 1, "unknown mode"),
        ('rules = [{ effect = "deny", priority = "high" }]', 1, "whole number"),
        ('rules = [{ effect = "deny", scope = "planet" }]', 1, "scope is"),
        ('rules = [{ effect = "deny", scope = "planet", target = "x" }]', 1, "scope is"),
        ('rules = [{ effect = "deny", scope = "identity" }]', 1, "scope is"),
        ('rules = [{ effect = "deny", scope = "hyperty" }]', 1, "scope is"),
        ('rules = [{ effect = "deny", obligations = { log = [1] } }]', 1, "expected a text"),
        ('id = "s"\nid2 = "t"\nrules = []', 2, "unknown key"),
        ("id = true\nrules = []", 1, "expected a text"),
        ('id = "s"\nkey = "t"\nrules = []', 2, "given twice"),
        ("rules = []\n\n[[policies]]\nrules = []", 1, "either policies or rules"),
        ('id = "s"\n[[policies]]\nid = "p"\n', 2, "needs rules"),
        ('policy_combining_algorithm = "majority"\nrules = []', 1, "combining algorithm"),
        ('policies = []\nrule_combining_algorithm = "first-applicable"', 2, "belongs into a policy"),
        ('rules = []\nactions = [{ method = "forwardToID" }]', 2, 'needs "method" and "param"'),
        ('rules = []\nactions = [{ method = "forwardToID", param = "alice" }]', 2, "expected a user"),
        ('rules = []\nactions = [{ method = "forwardToID", param = "alice@b c" }]', 2, "redirect"),
        ('rules = []\nactions = [{ method = "sendAutoMessage", param = "x" }]', 2, "obligation answer"),
        ('rules = []\nactions = [{ method = "forwardToID", param = 1, to = 2 }]', 2, "unknown key"),
        ('rules = []\n[[actions]]\nmethod = "forwardToID"\nparam = "a@b"\n[[actions]]\nmethod = "x"', 5, "once"),
        ('[obligations.permitt]\nlog = 1\n[[rules]]\neffect="deny"', 1, 'did you mean "permit"'),
        ('rules = []\n[[tests]]\nfrom = "a"\nto = "b"\n', 2, 'needs "expect"'),
        ('rules = []\n[[tests]]\nfrom = "a b"\nto = "b"\nexpect = "deny"', 3, "not an address"),
        ('rules = []\n[[tests]]\nfrom = "a:b"\nto = "b"\nexpect = "deny"\nat = "soon"', 6, "expected a moment"),
        ('id = "x"\nsets = [{ rules = [] }]', 1, "one of the sets"),
        ('sets = [{ rules = [] }]\nid = "x"', 2, "one of the sets"),
        ("id = [1]\nrules = []", 1, r"expected a text, not \[1\]"),
        ("id = 1.5\nrules = []", 1, "expected a text"),
        ('rules = [{ effect = "deny", priority = true }]', 1, "whole number, not True"),
        (with_condition('{ actionType = { in = "@nobody" } }'), 5, 'unknown list "nobody"; known: '),
        (with_condition('{ attribute = "size" }'), 5, 'unknown attribute "attribute"'),
        (with_condition('{ operator = "equals" }'), 5, 'unknown attribute "operator"'),
        (f'rules = [{{ effect = "deny", priority = "{"x" * (_SHOWN - 2)}" }}]', 1, f"not '{'x' * (_SHOWN - 2)}'$"),
        (f'rules = [{{ effect = "deny", priority = "{"x" * _SHOWN}" }}]', 1, f"not '{'x' * (_SHOWN - 1)}…$"),
    ],
)
def test_mistakes_are_found_with_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        parse(text)
    assert caught.value.detail.startswith(f"p:{line}: ")


def test_json_mistakes_have_lines_too() -> None:
    text = """{
  "id": "s",
  "rules": [
    {"effect": "deny"},
    {"id": "\\"x\\"", "effect": "deny",
     "condition": {"size": {"like": "5"}}}
  ]
}"""
    with pytest.raises(SettingsError, match=r"^settings: p:6: .*size"):
        parse(text, "json")


def test_a_mistake_inside_a_long_condition_has_the_line_of_the_mistake() -> None:
    parts = '{"actionType": {"equals": "create"}},\n{"size":\n{"like": "5"}}'
    text = f'{{"rules": [{{"id": "x", "effect": "deny", "condition":\n{{"anyOf": [\n{parts}]}}}}]}}'
    with pytest.raises(SettingsError, match=r"^settings: p:5: "):
        parse(text, "json")


@pytest.mark.parametrize(
    ("condition", "line", "words"),
    [
        ('{"attribute":\n"weather", "operator": "equals", "params": 1}', 2, 'does not know the attribute "weather"'),
        ('{"attribute": "size", "operator": "equals",\n"params": [\n"a",\n"b"]}', 4, "whole number"),
        ('{"attribute": "time", "operator": "between",\n"params": [\n"a",\n"b"]}', 4, "time"),
    ],
)
def test_mistakes_of_the_runtime_language_have_the_line_of_the_first_value(
    condition: str, line: int, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        parse(f'{{"key": "k", "rules": [{{"decision": false,\n"condition": {condition}}}]}}', "json")
    assert caught.value.detail.startswith(f"p:{line}: ")


@pytest.mark.parametrize(
    ("condition", "extra", "is_right"),
    [
        ("viaLength = { equals = 0 }", "", True),
        ("viaLength = { equals = 0 }", "via_length = 2", False),
        ("viaLength = { equals = 2 }", "viaLength = 2", True),
        ('time = { equals = "22:30" }', 'at = "2026-03-02T22:30:00"', True),
        ('time = { equals = "22:30" }', 'at = "2026-03-02T22:30:00Z"', True),
        ('time = { equals = "20:30" }', 'at = "2026-03-02T22:30:00+02:00"', True),
        ('time = { equals = "12:00" }', "", True),
    ],
)
def test_a_test_of_a_file_has_passed_no_node_at_noon_in_utc_unless_it_says_otherwise(
    condition: str, extra: str, *, is_right: bool
) -> None:
    ends = 'from = "comm://a.example/r"\nto = "comm://b.example/r"'
    text = f'[[rules]]\neffect = "deny"\ncondition = {{ {condition} }}\n[[tests]]\n{ends}\nexpect = "deny"\n{extra}\n'
    with (
        contextlib.nullcontext() if is_right else pytest.raises(SettingsError, match="the policies say not-applicable")
    ):
        parse(text)


@pytest.mark.parametrize(
    ("extra", "decision"),
    [
        ('user = "ana@idp.example"\ngroups = ["staff"]', "permit"),
        ('user = "ana@idp.example"\ngroups = ["guests"]', "not-applicable"),
        ('user = "ana@idp.example"\ngroups = []', "not-applicable"),
        ('user = "ana@idp.example"', "indeterminate"),
        ('groups = ["staff"]', "indeterminate"),
    ],
)
def test_a_test_of_a_file_knows_groups_only_of_a_sender_who_proved_them(extra: str, decision: str) -> None:
    text = f"""
rules = [{{ effect = "permit", condition = {{ identity.groups = {{ equals = "staff" }} }} }}]
[[tests]]
from = "comm://a.example/r"
to = "comm://b.example/r"
expect = "deny"
{extra}
"""
    with pytest.raises(SettingsError, match=f"the policies say {decision}"):
        parse(text)


def test_failing_test_of_a_file_refuses_it_and_says_what_was_decided() -> None:
    text = """
rules = [{ id = "r", effect = "deny" }]
[[tests]]
name = "optimist"
from = "comm://a.example/r"
to = "comm://b.example/r"
expect = "permit"
"""
    with pytest.raises(SettingsError, match=r'p:3: test "optimist" expects permit, the policies say deny by set-1/r'):
        parse(text)
    with pytest.raises(SettingsError, match="expects deny by set-1/other"):
        parse(text.replace("permit", "deny") + 'rule = "set-1/other"')


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ("", "toml"),
        ("  \n", "json"),
        ("# nothing\n", "toml"),
        ("[]", "json"),
        ("{}", "json"),
        ("7", "json"),
        ('{"rules": [], "rules": []}', "json"),
        ('{"rules": [NaN]}', "json"),
        ('{"rules": ' + "[" * 100_000, "json"),
        ("rules = " + "[" * 100_000, "toml"),
        ('{"rules": [], "priority": ' + "9" * 10_000 + "}", "json"),
        ("rules = [\n{ effect = ", "toml"),
        ('{"rules": [{"effect": "deny"', "json"),
        ('{"rules": [{"effect": "deny", "condition": ' + '{"not":' * 60 + "{}" + "}" * 60 + "}]}", "json"),
        ('{"rules": [{"effect": "deny", "condition": {"size":' + '{"not":' * 60 + "{}" + "}" * 60 + "}}]}", "json"),
    ],
)
def test_files_that_are_none_are_refused(text: str, syntax: Syntax) -> None:
    with pytest.raises(SettingsError):
        parse(text, syntax)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_not_json_are_refused_wherever_they_stand(constant: str) -> None:
    text = '{"rules": [{"effect": "deny"}], "description": %s}'
    assert parse(text % '"x"', "json").sets
    with pytest.raises(SettingsError, match=f"{constant} is not JSON"):
        parse(text % constant, "json")


@pytest.mark.parametrize(("text", "syntax"), [("", "toml"), ("", "json"), (" \n", "toml")])
def test_an_empty_file_is_refused_as_such(text: str, syntax: Syntax) -> None:
    with pytest.raises(SettingsError, match="the file is empty"):
        parse(text, syntax)


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_refused() -> None:
    largest = "{}".ljust(POLICY_FILE_BYTES)
    assert read_document(largest, name="p", syntax="json").value == {}
    with pytest.raises(SettingsError, match="p: larger than"):
        read_document(largest + " ", name="p", syntax="json")


@pytest.mark.parametrize("lost", ["= 2", "b 2", "b", "[b", "b = [", "b = {"])
def test_lines_end_where_the_text_is_not_understood(lost: str) -> None:
    lines = LineMap(f"\na = 1\n{lost}\n", is_toml=True)
    assert lines.line_of(("a",)) == 2
    assert lines.line_of(("c",)) is None


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="[]{}=\"',.#\n abrules01", max_size=60), syntax=st.sampled_from(["toml", "json"]))
def test_any_text_gives_a_policy_file_or_a_settings_error(text: str, syntax: Syntax) -> None:
    with contextlib.suppress(SettingsError):
        assert parse(text, syntax).sets


_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["not", "allOf", "size", "actionType", "equals", "in", "attribute", "operator", "params", "between"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(condition=_JSON)
def test_any_condition_gives_a_rule_or_a_settings_error(condition: object) -> None:
    text = json.dumps({"rules": [{"effect": "deny", "condition": condition}]})
    try:
        policies = load_policies([PolicyText("p", text, "json")])
    except SettingsError:
        return
    policies.decide(some_facts())
    assert policies.faults == 0


def test_files_are_read_in_order_and_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.json"
    first.write_text(
        'id = "a"\ntarget = { hook = { equals = "in" } }\nrules = [{ effect = "deny" }]\n', encoding="utf-8"
    )
    second.write_text('\ufeff{"id": "b", "rules": [{"effect": "permit"}]}', encoding="utf-8")
    policies = read_policies([first, second])
    assert policies.decide(some_facts()).rule_id == "b/1"
    assert policies.decide(some_facts(hook="in")).rule_id == "a/1"


def test_no_files_are_no_rules() -> None:
    assert read_policies([]).sets == ()


@pytest.mark.parametrize("text", ["a b\n", "a\n", "[x]\na b = 1\n", 'a "b" = 1\n'])
def test_a_line_that_assigns_nothing_has_no_place(text: str) -> None:
    lines = LineMap(text, is_toml=True)
    assert (lines.line_of(("a",)), lines.line_of(("x", "a"))) == (None, 1 if "[x]" in text else None)


def test_values_of_a_json_text_are_found_at_the_lines_of_their_keys() -> None:
    lines = LineMap('{"a":\n1,\n"b":[\n1,\n{"c":\n2}],"d" :\n\n{}}', is_toml=False)
    paths = [("a",), ("b",), ("b", 0), ("b", 1), ("b", 1, "c"), ("d",), ("b", 2), ("nobody",)]
    assert [lines.line_of(path) for path in paths] == [1, 3, 4, 5, 5, 6, 3, None]


def test_values_of_a_toml_text_are_found_however_closely_it_is_written() -> None:
    text = 'a=1\nb=[1,\n2]\n[t]\nc="x"\n[[x]]\ny=1\n[[x]]\ny={z=2}\n[x.w]\nv=3\n'
    lines = LineMap(text, is_toml=True)
    found = {
        ("a",): 1,
        ("b",): 2,
        ("b", 0): 2,
        ("b", 1): 3,
        ("t",): 4,
        ("t", "c"): 5,
        ("x", 0): 6,
        ("x", 0, "y"): 7,
        ("x", 1): 8,
        ("x", 1, "y"): 9,
        ("x", 1, "y", "z"): 9,
        ("x", 1, "w"): 10,
        ("x", 1, "w", "v"): 11,
    }
    assert {path: lines.line_of(path) for path in found} == found
