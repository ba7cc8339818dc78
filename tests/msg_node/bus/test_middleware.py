"""Steps between sender check and delivery: each refuses with its code, in the order of the settings."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from federation.links.link_context import Refusal
from msg_node.bus.middleware import MessageStep, log, make_stack, rate
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.own_names import OwnNames
from msg_node.node_state import make_state
from msg_node.settings.load import load_settings
from msg_node.settings.middleware import active_steps
from msg_node.wiring.meaning import build_gate
from msg_node.wiring.session_steps import LocalGate, SessionSteps
from policy.core.gate import Gate
from policy.core.model import Mode
from policy.core.rates import UNLIMITED, RateLimit, TypeRate
from policy.core.session_class import SessionClass
from policy.files import read_policies
from protofly.errors import Code, SettingsError
from protofly.message import Message
from tests.support.http_runtime import opened_http
from tests.support.policies import unrecorded
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    NODE,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

HEAD = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'
MESSAGE = parsed(a_message("read", runtime_address("ana"), NODE, id_=1))
NOBODY = frozenset[str]()
POLICY = """
id = "roles"
target = { hook = { in = ["local"] } }

[[rules]]
id = "viewers-only-read"
effect = "deny"
condition = { "session.roles" = { contains = "viewer" }, not = { actionType = { in = ["read", "open"] } } }
"""


def settings_of(folder: Path, text: str) -> Path:
    (folder / "node.toml").write_text(HEAD + text)
    return folder / "node.toml"


def refusing(code: Code) -> MessageStep:
    def step(_message: Message, _sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        return Refusal(code)

    return step


def passing(seen: list[str], name: str) -> MessageStep:
    def step(_message: Message, _sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        seen.append(name)
        return None

    return step


# The stack.


def test_without_steps_there_is_nothing_to_ask() -> None:
    assert make_stack([]).judge is None


def test_the_first_step_that_refuses_ends_it() -> None:
    seen: list[str] = []
    steps = [("a", passing(seen, "a")), ("b", refusing(Code.RATE)), ("c", refusing(Code.POLICY))]
    stack = make_stack(steps)
    assert stack.judge is not None
    assert stack.judge(MESSAGE, 1, NOBODY, "", 0.0) == Refusal(Code.RATE)
    assert (seen, stack.names) == (["a"], ("a", "b", "c"))


def test_a_single_step_is_the_stack_itself() -> None:
    step = refusing(Code.POLICY)
    assert make_stack([("x", step)]).judge is step


# Settings.


def test_settings_that_ask_for_nothing_give_no_steps(tmp_path: Path) -> None:
    settings = load_settings(settings_of(tmp_path, ""))
    gate = LocalGate(unrecorded(Gate(read_policies((), mode=Mode.ENFORCE), {})))
    stack = SessionSteps(gate, make_state(OwnNames.of(()))).stack(settings)
    assert (stack.judge, stack.names) == (None, ())


def test_policies_in_force_are_asked_whatever_the_settings_say(tmp_path: Path) -> None:
    gate = Gate(read_policies((), mode=Mode.ENFORCE), {})
    settings = load_settings(settings_of(tmp_path, '[middleware]\norder = ["rate"]\n'))
    steps = SessionSteps(LocalGate(unrecorded(gate)), make_state(OwnNames.of(())))
    assert steps.stack(settings).names == ()
    (tmp_path / "p.toml").write_text(POLICY)
    gate.replace(read_policies([tmp_path / "p.toml"], mode=Mode.ENFORCE))  # a bundle, that no setting names
    assert steps.stack(settings).names == ("authorisation",)


def test_a_step_with_settings_as_before_keeps_what_it_has_counted(tmp_path: Path) -> None:
    text = "[middleware.rate]\nmessages_per_second = 0.001\nburst_seconds = 1000.0\n"
    steps = SessionSteps(
        LocalGate(unrecorded(Gate(read_policies((), mode=Mode.ENFORCE), {}))), make_state(OwnNames.of(()))
    )

    def passes(more: str) -> bool:
        judge = steps.stack(load_settings(settings_of(tmp_path, text + more))).judge
        assert judge is not None
        return judge(MESSAGE, 1, NOBODY, "", 0.0) is None

    assert [passes(""), passes("[middleware.logging]\nevery = 5\n")] == [True, False]
    assert passes('[[middleware.rate.by_type]]\ntypes = ["read"]\nbytes_per_second = 1.0\n')


def test_steps_stand_in_the_order_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("")
    text = (
        '[policy]\nfiles = ["p.toml"]\n[middleware]\norder = ["authorisation", "rate", "logging"]\n'
        "[middleware.rate]\nbytes_per_second = 10.0\n[middleware.logging]\nevery = 5\n"
    )
    settings = load_settings(settings_of(tmp_path, text))
    assert active_steps(settings, has_policies=True) == ("authorisation", "rate", "logging")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[middleware]\norder = ["rate", "rate"]\n', "middleware.order[2]: `rate` is there twice"),
        ('[middleware]\norder = ["magic"]\n', "middleware.order"),
        (
            "[middleware]\norder = []\n[middleware.rate]\nmessages_per_second = 1.0\n",
            "[middleware.rate] is there, but no step `rate`",
        ),
        (
            '[policy]\nfiles = ["p.toml"]\n[middleware]\norder = []\n',
            "[policy] files are there, but no step `authorisation`",
        ),
        ("[middleware.rate]\nmessages_per_second = 0\n", "middleware.rate.messages_per_second"),
        (
            '[middleware]\norder = []\n[[middleware.rate.by_type]]\ntypes = ["read"]\nbytes_per_second = 1.0\n',
            "[middleware.rate] is there, but no step `rate`",
        ),
        ('[[middleware.rate.by_type]]\ntypes = ["read"]\n', "`messages_per_second` or `bytes_per_second`"),
        ("[[middleware.rate.by_type]]\ntypes = []\nbytes_per_second = 1.0\n", "types"),
        ('[[middleware.rate.by_type]]\ntypes = ["READ"]\nbytes_per_second = 1.0\n', "types"),
        (
            '[[peer]]\ndomain = "b.example"\n[[peer.rate]]\ntypes = ["read", "read"]\nbytes_per_second = 1.0\n',
            "two rates for messages of type read",
        ),
        ('[middleware.authentication]\nopen_to = ["/*"]\n', "not an address"),
    ],
)
def test_settings_that_would_protect_nothing_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(settings_of(tmp_path, text))
    assert problem in refused.value.detail


# Steps, through the bus.


async def test_a_session_that_proved_nothing_writes_only_where_it_is_open_to_all(tmp_path: Path) -> None:
    credential = Credential(digest_of("secret"), runtime_address("bob"))
    rig: RuntimeRig
    text = f'[middleware.authentication]\nrequired = true\nopen_to = ["domain://msg-node.{DOMAIN}/*"]\n'
    settings = load_settings(settings_of(tmp_path, text))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        gate = Gate(read_policies((), mode=Mode.ENFORCE), {})
        rig.bus.from_sessions.judge_by(SessionSteps(LocalGate(unrecorded(gate)), rig.state).stack(settings))
        ana, bob = await rig.opened("ana"), await rig.runtime(bearer="secret")
        await bob.open("bob")
        assert code_and_reason(await ana.ask("read", bob.address)) == (401, "no-credentials")
        assert code_and_reason(await ana.ask("read", "hyperty://beta.example/h")) == (401, "no-credentials")
        assert (await ana.ask("create", ALLOCATION, {"value": {"number": 1}}))["body"]["code"] == 200
        assert code_and_reason(await bob.ask("read", runtime_address("nobody"))) == (404, "no-route")
        assert rig.counters["refused no-credentials"] == 2


async def test_roles_decide_by_the_policies_of_the_own_bus(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text(POLICY)
    settings = load_settings(settings_of(tmp_path, '[policy]\nfiles = ["roles.toml"]\n'))
    credential = Credential(digest_of("secret"), runtime_address("ana"), frozenset({"viewer"}))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        gate = LocalGate(unrecorded(build_gate(settings)))
        rig.bus.from_sessions.judge_by(SessionSteps(gate, rig.state).stack(settings))
        ana, bob = await rig.runtime(bearer="secret"), await rig.opened("bob")
        await ana.open("ana")
        refused = await ana.ask("create", ALLOCATION, {"value": {"number": 1}})
        assert code_and_reason(refused) == (403, "policy")
        assert refused["body"]["value"].items() >= {"rule": "roles/viewers-only-read"}.items()
        assert (await ana.ask("read", f"domain://msg-node.{DOMAIN}"))["body"]["code"] == 200
        assert (await bob.ask("create", ALLOCATION, {"value": {"number": 1}}))["body"]["code"] == 200


async def test_the_class_of_a_session_decides_from_its_open_to_the_change_of_its_roles(tmp_path: Path) -> None:
    deny_class = '{ "session.class" = { equals = "anonymous" } }'
    (tmp_path / "class.toml").write_text(POLICY.replace(POLICY.splitlines()[-1], f"condition = {deny_class}"))
    settings = load_settings(settings_of(tmp_path, '[policy]\nfiles = ["class.toml"]\n'))
    credential = Credential(digest_of("secret"), runtime_address("ana"))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        gate = LocalGate(unrecorded(build_gate(settings)))
        rig.bus.from_sessions.judge_by(SessionSteps(gate, rig.state).stack(settings))
        ana, bob = await rig.runtime(bearer="secret"), await rig.opened("bob")
        await ana.open("ana")
        assert (await ana.ask("create", ALLOCATION, {"value": {"number": 1}}))["body"]["code"] == 200
        assert code_and_reason(await bob.ask("create", ALLOCATION, {"value": {"number": 1}})) == (403, "policy")
        assert {rig.port_of(name).roles for name in ("ana", "bob")} == {
            SessionClass.PROVED.alone,
            SessionClass.ANONYMOUS.alone,
        }


async def test_what_is_beyond_the_rate_is_refused_over_every_binding(tmp_path: Path) -> None:
    limit = RateLimit(messages_per_second=0.001, burst_seconds=3000.0)
    async with runtime_rig(tmp_path, steps=[("rate", rate(limit))]) as rig:
        for runtime in (await rig.opened("ana"), await opened_http(rig, "bob")):
            replies = [await runtime.ask("read", runtime_address("nobody")) for _ in range(4)]
            assert [one["body"]["code"] for one in replies] == [404, 404, 404, 429]
            assert replies[-1]["body"]["reason"] == "rate"
            assert 0 < replies[-1]["body"]["value"]["retryAfter"] <= 1000


async def test_a_type_of_message_has_a_rate_of_its_own(tmp_path: Path) -> None:
    limit = RateLimit(messages_per_second=0.001, burst_seconds=1000.0)
    step = rate(UNLIMITED, [TypeRate(types=("subscribe", "unsubscribe"), limit=limit)])
    async with runtime_rig(tmp_path, steps=[("rate", step)]) as rig:
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        assert (await ana.subscribed(f"{ana.address}/status"))["body"]["code"] == 200
        refused = await ana.subscribed(f"{ana.address}/status")
        assert code_and_reason(refused) == (429, "rate")
        assert refused["body"]["value"]["retryAfter"] > 0
        assert (await ana.ask("create", ALLOCATION, {"value": {"number": 1}}))["body"]["code"] == 200
        assert (await bob.subscribed(f"{bob.address}/status"))["body"]["code"] == 200


async def test_a_session_that_comes_back_still_has_its_debt(tmp_path: Path) -> None:
    limit = RateLimit(messages_per_second=0.001, burst_seconds=1000.0)
    async with runtime_rig(tmp_path, steps=[("rate", rate(limit))]) as rig:
        ana = await rig.opened("ana")
        await ana.ask("read", runtime_address("nobody"))
        await ana.wire.cut()
        again = await rig.runtime()
        again.address = ana.address
        assert (await again.ask("re-open", "mn:/session", from_=ana.session_address))["body"]["code"] == 200
        assert code_and_reason(await again.ask("read", runtime_address("nobody"))) == (429, "rate")


def test_debts_are_remembered_for_a_bounded_number_of_sessions() -> None:
    step = rate(RateLimit(messages_per_second=1.0, burst_seconds=1.0), max_sessions=2)
    assert [step(MESSAGE, sid, NOBODY, "", 5.0) is None for sid in (1, 1, 2, 3, 1)] == [True, False, True, True, True]


def test_a_rate_of_nothing_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError):
        rate(RateLimit(messages_per_second=0.0))


def test_every_nth_message_is_logged_without_its_body(caplog: pytest.LogCaptureFixture) -> None:
    step = log(2)
    hostile = parsed(a_message("read", "x\ny z", NODE, {"secret": "s3cret"}, id_="a b\u2028"))
    with caplog.at_level(logging.INFO, "msg_node.messages"):
        for _ in range(4):
            assert step(hostile, 7, NOBODY, "beta.example", time.time()) is None
    assert len(caplog.messages) == 2
    line = caplog.messages[0]
    assert line.split()[0] == "session=7"
    assert len(line.splitlines()) == 1
    assert len(line.split()) == 7
    assert "domain=beta.example" in line
    assert "s3cret" not in line
