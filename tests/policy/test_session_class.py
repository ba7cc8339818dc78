"""The class of a session goes with its roles, no credential can name it, and rules, tests and records read it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from policy.core.attributes import ATTRIBUTES
from policy.core.recorded_facts import AlikeFacts, record_facts
from policy.core.session_class import (
    SESSION_CLASSES,
    SessionClass,
    asked_about,
    class_in,
    roles_in,
    shown_to_rules,
)
from policy.core.text import PolicyText, load_policies
from protofly.errors import SettingsError
from tests.support.policies import deny, one_policy, permit, some_facts, test
from trapezoid.commands.program import app

READS = frozenset({"session.class"})
WORDS = st.sampled_from(["", "operator", "staff", "user", "session.class=", "session.class=operator", "class=guest"])


def test_the_classes_are_those_that_documents_name() -> None:
    assert SESSION_CLASSES == ("anonymous", "proved", "user", "guest", "operator")


@given(roles=st.frozensets(WORDS), class_=st.sampled_from(SessionClass))
@example(roles=frozenset({"session.class=operator"}), class_=SessionClass.GUEST)
def test_class_and_roles_come_out_as_they_went_in_and_no_role_gives_a_class(
    roles: frozenset[str], class_: SessionClass
) -> None:
    shown = shown_to_rules(roles, class_)
    assert class_in(shown) == class_.value
    assert {word for word in shown if word.startswith("session.class=")} == {class_.mark}
    assert roles_in(shown) == {role for role in roles if not role.startswith("session.class=")}


@pytest.mark.parametrize(
    ("roles", "found"), [(set(), ""), ({"staff"}, "proved"), ({"staff", "operator"}, "operator"), ({""}, "proved")]
)
def test_without_a_class_the_roles_give_it(roles: set[str], found: str) -> None:
    assert class_in(frozenset(roles)) == found


@pytest.mark.parametrize("word", ["", *SESSION_CLASSES])
def test_an_operator_may_ask_about_every_class(word: str) -> None:
    assert class_in(asked_about(frozenset(), word)) == word


def test_a_rule_reads_the_class_and_is_never_indeterminate_by_it() -> None:
    policies = one_policy(deny("strangers", test("session.class", "equals", "anonymous")), permit("others"))
    facts = some_facts()
    found = {
        word: policies.decide(some_facts(session_roles=asked_about(frozenset({"r"}), word))).rule_id
        for word in SESSION_CLASSES
    }
    assert found == dict.fromkeys(SESSION_CLASSES, "s/others") | {"anonymous": "s/strangers"}
    assert policies.decide(facts).rule_id == "s/others"  # a link, or the node


def test_rules_about_roles_do_not_see_the_class() -> None:
    shown = SessionClass.OPERATOR.alone
    assert ATTRIBUTES["session.roles"].read(some_facts(session_roles=shown)) == frozenset()


@pytest.mark.parametrize("reads", [READS, frozenset[str]()])
@pytest.mark.parametrize("class_", SessionClass)
def test_a_record_has_the_class_only_while_policies_read_it(class_: SessionClass, reads: frozenset[str]) -> None:
    facts = some_facts(session_roles=class_.alone)
    recorded = record_facts(facts, "a.example", "b.example", reads)
    packed = None if recorded is None else msgspec.json.encode(recorded)
    again = AlikeFacts.read("out", "a.example", "b.example", "create", packed).of("hyperty://a/x", "y", 1, None, 1)
    assert class_in(again.session_roles) == (class_.value if reads else "")
    assert recorded is None or (reads and recorded.session_class == class_.value and recorded.roles == ())


@pytest.mark.parametrize("word", ["", "owner", "session.class=operator"])
def test_a_record_with_a_class_that_is_none_gives_nobody_a_class(word: str) -> None:
    packed = msgspec.json.encode({"session.class": word})
    again = AlikeFacts.read("out", "a.example", "b.example", "create", packed).of("hyperty://a/x", "y", 1, None, 1)
    assert class_in(again.session_roles) == ""


POLICY = """
id = "own-bus"
target = { hook = { equals = "local" } }

[[rules]]
id = "people-only"
effect = "deny"
condition = { "session.class" = { in = ["anonymous", "proved"] } }

[[tests]]
name = "a client"
hook = "local"
from = "hyperty://a.example/h"
to = "comm://a.example/c"
session_class = "CLASS"
roles = ["staff"]
expect = "EXPECT"
"""


def policy_text(word: str, expect: str) -> PolicyText:
    return PolicyText("own-bus.toml", POLICY.replace("CLASS", word).replace("EXPECT", expect), "toml")


@pytest.mark.parametrize(("word", "expect"), [("proved", "deny"), ("user", "not-applicable")])
def test_tests_of_a_policy_file_say_the_class(word: str, expect: str) -> None:
    load_policies([policy_text(word, expect)])


def test_a_test_of_a_policy_file_with_a_class_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="class"):
        load_policies([policy_text("owner", "deny")])


DENIED_TO_CLIENTS = POLICY[: POLICY.index("[[tests]]")]
MESSAGE = '{"id":1,"type":"create","from":"hyperty://a.example/h","to":"comm://a.example/c"}'


@pytest.mark.parametrize(
    ("roles", "exit_code"), [(["class=proved"], 1), (["class=user", "staff"], 0), ([], 0), (["class=owner"], 2)]
)
def test_the_command_asks_about_a_class(tmp_path: Path, roles: list[str], exit_code: int) -> None:
    (tmp_path / "p.toml").write_text(DENIED_TO_CLIENTS)
    asked = [word for role in roles for word in ("--role", role)]
    result = CliRunner().invoke(
        app, ["policy", "test", str(tmp_path / "p.toml"), "--hook", "local", "--message", MESSAGE, *asked]
    )
    assert result.exit_code == exit_code, result.output
