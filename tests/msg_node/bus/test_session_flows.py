"""Messages of a flow are treated exactly as if each went the whole way, whatever changes between two of them."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.links.flow_table import FLOWS_PER_SESSION, FlowMode
from federation.links.outward_flow import OutwardFlow
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.bus.middleware import rate
from msg_node.bus.session_flow import ListenerWay
from policy.core.gate import Gate, PeerRule
from policy.core.rates import RateLimit, TypeRate
from policy.core.session_class import SessionClass
from protofly.errors import Code
from protofly.message import NO_PEEK
from tests.support.flow_rig import ANA, BO, BOB, FlowRig, event, flow_rig
from tests.support.policies import deny, one_policy, permit
from tests.support.policies import test as condition
from tests.support.runtime_rig import FOREIGN, SM, a_message, runtime_address

Change = Callable[[FlowRig], object]


def warm(rig: FlowRig) -> None:
    """The flow of `event` is kept, and used."""
    rig.say("ana", event(1), event(2), event(3))
    assert is_of_flow(rig)


def is_of_flow(rig: FlowRig) -> bool:
    """True if the message that was sent last was one of a flow."""
    return list(rig.link.queue)[-1].message.peek is NO_PEEK


async def test_from_the_third_message_on_what_was_decided_is_used(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        rig.say("ana", event(1))
        assert not is_of_flow(rig)
        rig.say("ana", *map(event, range(2, 300)))
        assert is_of_flow(rig)
        assert [body["n"] for body in rig.queued()] == list(range(300))


def subscribe(rig: FlowRig) -> None:
    rig.node.state.listeners.add(rig.sid("bob"), [Subscription(BO, BO, "")])


def reopen(rig: FlowRig) -> None:
    """The session ends; another one, of another runtime, begins on the same connection."""
    rig.say("ana", a_message("close", runtime_address("ana"), "mn:/session", id_=9))
    rig.say("ana", a_message("open", runtime_address("zoe"), "mn:/session", id_=9))


def release(rig: FlowRig) -> None:
    rig.node.state.owners.release([rig.sid("ana")], ANA)


def give_to_another(rig: FlowRig) -> None:
    release(rig)
    rig.give("eve", ANA)


def configure(rig: FlowRig, rule: PeerRule, *denied: str) -> None:
    rig.gate.configure({"*": rule}, allow=None, deny=denied)


def learn(rig: FlowRig) -> None:
    rig.learned.learn(BO, rig.sid("guest"), 9e9)


def lose_carrier(rig: FlowRig) -> None:
    for link in rig.federation.links:
        for carrier in list(link.machine.carriers):
            carrier.cut()  # type: ignore[attr-defined]


def refuse(rig: FlowRig) -> None:
    lose_carrier(rig)
    for link in rig.federation.links:
        link.machine.refusal, link.machine.refuse_until = Code.CIRCUIT_OPEN, 1e9


def set_class(rig: FlowRig) -> None:
    rig.ports["ana"].roles = SessionClass.USER.alone


def set_roles(rig: FlowRig) -> None:
    rig.ports["ana"].roles = frozenset({"operator"})


BARRED = one_policy(deny("no"))
NIGHT = one_policy(deny("no", condition("size", "lessThan", 10)), permit("yes"))
CHANGES: dict[str, tuple[Change, str]] = {
    "nothing": (lambda _rig: None, "sent"),
    "a policy that denies": (lambda rig: rig.gate.replace(BARRED), "policy"),
    "another rule that permits": (lambda rig: rig.gate.replace(one_policy(permit("other"))), "sent"),
    "a policy that reads the size": (lambda rig: rig.gate.replace(NIGHT), "sent"),
    "an entry that denies": (partial(configure, rule=PeerRule(default="deny")), "domain-blocked"),
    "a list": (lambda rig: configure(rig, PeerRule(), FOREIGN), "domain-blocked"),
    "a block": (lambda rig: rig.gate.cut_off([FOREIGN]), "domain-blocked"),
    "a rate": (partial(configure, rule=PeerRule(rate=RateLimit(messages_per_second=1e-9, burst_seconds=2e9))), "rate"),
    "the link cut off": (lambda rig: rig.federation.cut_off(FOREIGN, Code.LINK_LOST, "gone"), "new link"),
    "the carrier lost": (lose_carrier, "sent"),
    "a stub that failed": (refuse, "circuit-open"),
    "a local listener": (subscribe, "sent and heard"),
    "the address released": (release, "learned"),
    "the address given to another session": (give_to_another, "not-owner"),
    "the session closed": (reopen, "learned"),
    "a guest with the address of the recipient": (learn, "to the guest"),
    "other roles": (set_roles, "sent"),
    "another class": (set_class, "sent"),
    "the node fenced": (lambda rig: rig.node.bus.from_sessions.fence(5.0), "sent"),
    "the node stops": (lambda rig: rig.node.bus.refuse_new(5.0), "sent"),
}


async def outcome_of(folder: Path, flows: FlowMode, change: Change, type_: str) -> dict[str, Any]:
    async with flow_rig(folder, flows=flows) as rig:
        say = partial(event, type_=type_)
        rig.say("ana", say(1), say(2), say(3))
        change(rig)
        rig.say("ana", say(4), say(5))
        change(rig)
        rig.say("ana", say(6))
        return rig.outcome()


@pytest.mark.parametrize("type_", ["event", "read"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_messages_counts_from_the_next_one_on(name: str, type_: str) -> None:
    change, _ = CHANGES[name]
    outcomes = []
    for mode in ("off", "on", "verify"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(trio.run(outcome_of, Path(folder), mode, change, type_))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("name", [name for name, (_, effect) in CHANGES.items() if "-" in effect or effect == "policy"])
async def test_a_change_that_forbids_a_flow_ends_it_at_once(tmp_path: Path, name: str) -> None:
    change, word = CHANGES[name]
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        before = len(rig.queued())
        change(rig)
        rig.say("ana", event(4), event(5))
        assert len(rig.queued()) == before
        assert rig.node.counters[f"refused {word}"] == 2


async def test_a_draining_node_refuses_requests_of_a_flow(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        for number in range(1, 5):
            rig.say("ana", event(number, type_="read"))
        assert is_of_flow(rig)
        rig.node.bus.refuse_new(5.0)
        rig.say("ana", event(5, type_="read"))
        assert rig.node.counters["refused draining"] == 1


async def test_a_rate_is_counted_for_each_message_of_a_flow(tmp_path: Path) -> None:
    limit = RateLimit(messages_per_second=1e-3, burst_seconds=20_000.0)  # twenty, then none for long
    rule = PeerRule(rate=limit, rates=(TypeRate(types=("event",), limit=limit),))
    async with flow_rig(tmp_path, gate=Gate(peers={"*": rule})) as rig:
        rig.say("ana", *map(event, range(1, 40)))
        assert len(rig.queued()) == 20
        assert rig.node.counters["refused rate"] == 20


async def test_steps_of_the_session_see_each_message_of_a_flow(tmp_path: Path) -> None:
    step = rate(RateLimit(messages_per_second=1e-3, burst_seconds=20_000.0))
    async with flow_rig(tmp_path, steps=[("rate", step)]) as rig:
        rig.say("ana", *map(event, range(1, 40)))
        assert len(rig.queued()) == 20
        assert rig.node.counters["refused rate"] == 20


async def test_what_a_rule_reads_of_each_message_is_read_of_each(tmp_path: Path) -> None:
    gate = Gate(one_policy(deny("long", condition("size", "moreThan", 300)), permit("rest")), {"*": PeerRule()})
    async with flow_rig(tmp_path, gate=gate) as rig:
        rig.say("ana", event(1), event(2), event(3), event(4, text="x" * 300), event(5))
        assert [body["n"] for body in rig.queued()] == [0, 1, 2, 3, 5]
        assert not is_of_flow(rig)


async def test_a_rule_that_cannot_apply_may_read_what_it_likes(tmp_path: Path) -> None:
    rules = (
        deny(
            "in",
            condition("hook", "equals", "in"),
        ),
        permit("rest"),
    )
    late = deny("late", condition("linkDomain", "equals", "c.example"))
    gate = Gate(one_policy(*rules, late), {"*": PeerRule()})
    async with flow_rig(tmp_path, gate=gate) as rig:
        warm(rig)


async def test_hostile_variety_keeps_no_more_flows_than_are_permitted(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        for number in range(100 * FLOWS_PER_SESSION):
            one = event(number, to=f"{BO}-{number}")
            rig.say("ana", one, one, one)
            rig.link.queue._waiting.clear()
        table = rig.ports["ana"].flows
        assert len(table._flows) == FLOWS_PER_SESSION
        assert len(table._seen) <= 2 * FLOWS_PER_SESSION


async def test_a_sender_of_ever_new_recipients_makes_few_flows_and_looks_for_none(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        table = rig.ports["ana"].flows
        rig.say("ana", *[event(number, to=f"{BO}-{number}") for number in range(40)])
        assert (len(table._flows), table.last) == (1, None)
        rig.say("ana", *[event(number, to=f"{BO}-{number // 2}") for number in range(100, 300)])
        assert len(table._flows) < 10
        rig.say("ana", event(1), event(2))
        assert is_of_flow(rig)


async def test_flows_of_several_recipients_go_side_by_side(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        rig.say("ana", *[event(number, to=f"{BO}-{number % 5}") for number in range(200)])
        assert all(one.message.peek is NO_PEEK for one in list(rig.link.queue)[-100:])
        assert [body["n"] for body in rig.queued()[1:]] == list(range(200))


# Within the domain.


def heard_by_bob(rig: FlowRig) -> list[int]:
    rig.ports["bob"].queue.flush()  # when it is written depends on how busy the node is, by the clock
    return [one["body"]["n"] for one in rig.heard("bob")]


async def test_a_flow_to_one_runtime_here_goes_to_its_queue_in_order(tmp_path: Path) -> None:
    async with flow_rig(tmp_path, has_own_gate=False) as rig:
        rig.say("ana", *[event(number, to=BOB) for number in range(300)])
        flow = rig.ports["ana"].flows.last
        assert flow is not None
        assert isinstance(flow.outward, ListenerWay)
        assert heard_by_bob(rig) == list(range(300))
        assert rig.node.counters["delivered"] >= 300


def silence(rig: FlowRig) -> None:
    """Bob reads nothing more, and has little room."""
    rig.ports["bob"].queue.flush()  # whether a turn ended with a write depends on the clock
    rig.channels["bob"].takes_more = False
    rig.ports["bob"].queue._waiting.max_messages = 5


def release_bob(rig: FlowRig) -> None:
    rig.node.state.owners.release([rig.sid("bob")], BOB)


def give_bob_to_eve(rig: FlowRig) -> None:
    release_bob(rig)
    rig.give("eve", BOB)


def hang_up(rig: FlowRig) -> None:
    rig.node.bus.runtimes.disconnected(rig.ports["bob"])


def make_bob_a_guest(rig: FlowRig) -> None:
    rig.ports["bob"].guest_of = FOREIGN


def listen_with_eve(rig: FlowRig) -> None:
    rig.node.state.listeners.add(rig.sid("eve"), [Subscription(BOB, BOB, "")])


LOCAL_CHANGES: dict[str, Change] = {
    "nothing": lambda _rig: None,
    "the recipient does not read": silence,
    "the address of the recipient released": release_bob,
    "the address of the recipient given to another": give_bob_to_eve,
    "the recipient disconnected": hang_up,
    "the recipient a guest": make_bob_a_guest,
    "another listener": listen_with_eve,
    "the address of the sender released": release,
    "the address of the sender given to another": give_to_another,
    "the session of the sender closed": reopen,
    "other roles": set_roles,
    "the node fenced": lambda rig: rig.node.bus.from_sessions.fence(5.0),
    "the node stops": lambda rig: rig.node.bus.refuse_new(5.0),
}


async def local_outcome_of(folder: Path, flows: FlowMode, change: Change, type_: str) -> dict[str, Any]:
    async with flow_rig(folder, flows=flows, has_own_gate=False) as rig:
        say = partial(event, type_=type_, to=BOB)
        rig.say("ana", *map(say, range(1, 6)))
        change(rig)
        rig.say("ana", *map(say, range(6, 20)))
        rig.channels["bob"].takes_more = True
        return rig.outcome()


@pytest.mark.parametrize("type_", ["event", "read", "update", "response", "delete"])
@pytest.mark.parametrize("name", LOCAL_CHANGES)
def test_a_change_counts_from_the_next_message_to_a_runtime_here_on(name: str, type_: str) -> None:
    outcomes = []
    for mode in ("off", "on", "verify"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(trio.run(local_outcome_of, Path(folder), mode, LOCAL_CHANGES[name], type_))
    assert outcomes[0] == outcomes[1] == outcomes[2]


async def test_a_message_that_was_not_delivered_here_is_reported_as_a_difference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with flow_rig(tmp_path, flows="verify", has_own_gate=False) as rig:
        rig.say("ana", *[event(number, to=BOB) for number in range(4)])
        assert not caplog.records
        flow = rig.ports["ana"].flows.last
        assert flow is not None
        assert flow.outward.difference(flow.like, flow.outward.sent) == "it was not delivered"


async def test_a_difference_is_reported_and_the_whole_way_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with flow_rig(tmp_path, flows="verify") as rig:
        rig.say("ana", event(1), event(2), event(3))
        assert not caplog.records
        flow = rig.ports["ana"].flows.last
        assert flow is not None
        assert isinstance(flow.outward, OutwardFlow)
        flow.outward._revision = "something else"
        rig.say("ana", event(4))
        [record] = caplog.records
        assert (record.levelname, record.code) == ("ERROR", "flow-differs")  # type: ignore[attr-defined]
        assert "revision" in record.message
        assert list(rig.link.queue)[-1].revision == rig.gate.policies.revision


# Any messages and changes, in any order.

_TYPES = st.sampled_from(["event", "update", "read", "create", "execute", "ping", "subscribe", "response", "forward"])
_FROM = st.sampled_from([ANA, f"{ANA}/x", runtime_address("ana"), "hyperty://alpha.example/eve", BO, "local"])
_TO = st.sampled_from(
    [BO, BOB, f"{BO}/changes", "comm://beta.example/o/children/c", ANA, SM, "user://beta.example/u", "x"]
)
_BODY = st.dictionaries(
    st.sampled_from(["n", "ttl", "receipt", "source", "auth", "class", "resource", "code", "via", "trace"]),
    st.sampled_from([1, "x", True, ANA, BO, [], "event"]),
    max_size=2,
)
_MESSAGE = st.fixed_dictionaries(
    {"type": _TYPES, "from": _FROM, "to": _TO}, optional={"id": st.integers(0, 9) | st.just("x")}
)
_USUAL = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["event", "read"]),
        "from": st.just(ANA),
        "to": st.sampled_from([BO, BOB]),
        "id": st.just(7),
    }
)
_SAID = st.lists(st.tuples(_USUAL | _USUAL | _MESSAGE, _BODY, st.integers(1, 3)), min_size=1, max_size=6)
_ALL_CHANGES = CHANGES | {name: (change, "") for name, change in LOCAL_CHANGES.items()}
_CHANGES = st.none() | st.sampled_from(sorted(_ALL_CHANGES))


def frames_of(said: list[tuple[dict[str, Any], dict[str, Any], int]]) -> list[bytes]:
    return [
        json.dumps({**header, "body": body}, separators=(",", ":")).encode()
        for header, body, times in said
        for _ in range(times)
    ]


async def play(
    folder: Path, flows: FlowMode, steps: list[tuple[Any, str | None]], has_own_gate: bool
) -> dict[str, Any]:
    limit = RateLimit(messages_per_second=1e-3, burst_seconds=30_000.0)
    gate = Gate(one_policy(permit("read", condition("actionType", "equals", "read"))), {"*": PeerRule(rate=limit)})
    async with flow_rig(folder, gate=gate, flows=flows, has_own_gate=has_own_gate) as rig:
        for said, change in steps:
            rig.write("ana", *frames_of(said))
            if change is not None:
                _ALL_CHANGES[change][0](rig)
        return rig.outcome()


@settings(max_examples=60)
@given(st.lists(st.tuples(_SAID, _CHANGES), min_size=1, max_size=5), st.booleans())
def test_flows_do_and_record_what_the_whole_way_does(steps: list[tuple[Any, str | None]], has_own_gate: bool) -> None:
    outcomes = []
    for mode in ("off", "on"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(trio.run(play, Path(folder), mode, steps, has_own_gate))
    assert outcomes[0] == outcomes[1]
