"""Messages of a flow that a link brings are treated exactly as if each went the whole way, whatever changes."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core.carrier import CarrierProved
from federation.links.flow_table import FlowMode, FlowTable
from federation.links.inward_flow import InwardFlow
from msg_node.addresses.core.subscriptions import Subscription
from policy.core.gate import Gate, PeerRule
from policy.core.rates import RateLimit, TypeRate
from policy.core.text import PolicyText, load_policies
from protofly.codec import decode
from protofly.header_text import header_text
from tests.support.flow_rig import ANA, BO, HOPS, FlowRig, flow_rig, from_bo, with_trailer
from tests.support.policies import deny, one_policy, permit
from tests.support.policies import test as condition
from tests.support.runtime_rig import FOREIGN, SESSION, SM, a_message, runtime_address

Change = Callable[[FlowRig], object]
_MODES: tuple[FlowMode, ...] = ("off", "on")


def table(rig: FlowRig) -> FlowTable[InwardFlow]:
    """The flows of the carrier that is up, or of none."""
    return rig.link.inward._side_now.flows._table


def warm(rig: FlowRig) -> None:
    rig.bring(from_bo(1), from_bo(2), from_bo(3))
    assert table(rig).last is not None


def heard(rig: FlowRig) -> list[int]:
    return [one["body"]["n"] for one in rig.heard("ana") if "n" in one["body"]]


async def test_from_the_second_message_on_a_flow_is_kept(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        rig.bring(from_bo(1))
        rig.bring(from_bo(2))
        assert table(rig).last is None
        rig.bring(from_bo(3))
        assert table(rig).last is not None
        rig.bring(*map(from_bo, range(4, 300)))
        assert heard(rig) == list(range(1, 300))


def configure(rig: FlowRig, rule: PeerRule, *denied: str) -> None:
    rig.gate.configure({"*": rule}, allow=None, deny=denied)


def subscribe(rig: FlowRig) -> None:
    rig.node.state.listeners.add(rig.sid("bob"), [Subscription(ANA, ANA, "")])


def release(rig: FlowRig) -> None:
    rig.node.state.owners.release([rig.sid("ana")], ANA)


def give_to_another(rig: FlowRig) -> None:
    release(rig)
    rig.give("eve", ANA)


def close(rig: FlowRig) -> None:
    rig.say("ana", a_message("close", runtime_address("ana"), SESSION, id_=9))


def prove(rig: FlowRig, *domains: str) -> None:
    for carrier in rig.link.machine.carriers:
        rig.link.handle(CarrierProved(carrier, frozenset(domains)))


def lose_carrier(rig: FlowRig) -> None:
    for carrier in list(rig.link.machine.carriers):
        carrier.cut()  # type: ignore[attr-defined]


def another_carrier(rig: FlowRig) -> None:
    lose_carrier(rig)
    rig.carry()


def carry_another_way(rig: FlowRig) -> None:
    rig.link.records.carried(channel="peer", peer_node=HOPS[0], stub_version="9")


BARRED = one_policy(deny("no"))
SIZES = one_policy(deny("no", condition("size", "moreThan", 400)), permit("yes"))
CHANGES: dict[str, tuple[Change, bool]] = {
    "nothing": (lambda _rig: None, True),
    "a policy that denies": (lambda rig: rig.gate.replace(BARRED), False),
    "another rule that permits": (lambda rig: rig.gate.replace(one_policy(permit("other"))), True),
    "a policy that reads the size": (lambda rig: rig.gate.replace(SIZES), True),
    "an entry that denies": (partial(configure, rule=PeerRule(default="deny")), False),
    "a list": (lambda rig: configure(rig, PeerRule(), FOREIGN), False),
    "a block": (lambda rig: rig.gate.cut_off([FOREIGN]), False),
    "a rate": (partial(configure, rule=PeerRule(rate=RateLimit(messages_per_second=1e-9, burst_seconds=2e9))), True),
    "another proof": (lambda rig: prove(rig, "c.example"), True),
    "the carrier lost": (lose_carrier, True),
    "another carrier": (another_carrier, True),
    "another way": (carry_another_way, True),
    "a second listener": (subscribe, True),
    "the address released": (release, False),
    "the address given to another session": (give_to_another, False),
    "the session closed": (close, False),
    "the node fenced": (lambda rig: rig.node.bus.from_links.fence(5.0), True),
    "the node stops": (lambda rig: rig.node.bus.refuse_new(5.0), True),
}


async def outcome_of(folder: Path, flows: FlowMode, change: Change, type_: str) -> dict[str, Any]:
    async with flow_rig(folder, flows=flows) as rig:
        one = partial(from_bo, type_=type_)
        rig.bring(one(1), one(2), one(3))
        change(rig)
        rig.bring(one(4), one(5))
        change(rig)
        rig.bring(one(6))
        return rig.outcome()


@pytest.mark.parametrize("type_", ["event", "read"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_messages_counts_from_the_next_one_on(
    name: str, type_: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = []
    for mode in ("off", "on", "verify"):
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(trio.run(outcome_of, Path(folder), mode, CHANGES[name][0], type_))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert not [one for one in caplog.records if "flow-differs" in one.message]


@pytest.mark.parametrize("name", [name for name, (_, is_heard) in CHANGES.items() if not is_heard])
async def test_a_change_that_forbids_a_flow_ends_it_at_once(tmp_path: Path, name: str) -> None:
    async with flow_rig(tmp_path) as rig:
        warm(rig)
        CHANGES[name][0](rig)
        rig.bring(from_bo(4), from_bo(5))
        assert heard(rig) == [1, 2, 3]


async def test_an_alias_that_is_proved_no_more_speaks_no_more(tmp_path: Path) -> None:
    alias = partial(from_bo, from_="hyperty://c.example/bo")
    async with flow_rig(tmp_path) as rig:
        prove(rig, "c.example")
        rig.bring(*map(alias, range(1, 5)))
        assert heard(rig) == [1, 2, 3, 4]
        assert table(rig).last is not None
        prove(rig)
        rig.bring(alias(5), from_bo(6))
        assert heard(rig) == [1, 2, 3, 4, 6]
        assert rig.link.counters.shown()["spoofed"] == 1


async def test_a_rate_is_counted_for_each_message_of_a_flow(tmp_path: Path) -> None:
    limit = RateLimit(messages_per_second=1e-3, burst_seconds=20_000.0)  # twenty, then none for long
    rule = PeerRule(rate=limit, rates=(TypeRate(types=("event",), limit=limit),))
    async with flow_rig(tmp_path, gate=Gate(peers={"*": rule})) as rig:
        rig.bring(*map(from_bo, range(1, 40)))
        assert heard(rig) == list(range(1, 21))
        assert rig.gate.denied == 19


LIMITED = """
id = "s"
[limits]
some = {{ by = "{by}", per = "day", messages = 20 }}
[[rules]]
id = "r"
effect = "permit"
condition = {{ hook = {{ equals = "in" }} }}
obligations = {{ limit = "some" }}
"""


@pytest.mark.parametrize("flows", _MODES)
@pytest.mark.parametrize("by", ["all", "sender"])
async def test_a_limit_of_a_rule_is_counted_for_each_message_of_a_flow(
    tmp_path: Path, by: str, flows: FlowMode
) -> None:
    policies = load_policies([PolicyText("p.toml", LIMITED.format(by=by), "toml")])
    async with flow_rig(tmp_path, gate=Gate(policies, {"*": PeerRule()}), flows=flows) as rig:
        rig.bring(*map(from_bo, range(1, 40)))
        rig.bring(*[from_bo(number, from_=f"{BO}-2") for number in range(40, 70)])
        others = range(40, 60) if by == "sender" else ()
        assert heard(rig) == [*range(1, 21), *others]
        assert rig.gate.denied == 69 - 20 - len(others)


async def test_what_a_rule_reads_of_each_message_is_read_of_each(tmp_path: Path) -> None:
    async with flow_rig(tmp_path, gate=Gate(SIZES, {"*": PeerRule()})) as rig:
        rig.bring(from_bo(1), from_bo(2), from_bo(3), from_bo(4, text="x" * 300), from_bo(5))
        assert heard(rig) == [1, 2, 3, 5]
        assert table(rig).last is None


async def test_the_verdict_of_our_gate_goes_with_each_message_of_a_flow(tmp_path: Path) -> None:
    async with flow_rig(tmp_path, gate=Gate(one_policy(permit("yes")), {"*": PeerRule()})) as rig:
        rig.bring(*map(from_bo, range(1, 9)))
        assert [one["body"]["auth"] for one in rig.heard("ana")] == [True] * 8


async def test_a_flow_of_more_than_a_runtime_may_leave_unread_is_dropped_like_any_other(tmp_path: Path) -> None:
    outcomes = []
    for mode in _MODES:
        (tmp_path / mode).mkdir()
        async with flow_rig(tmp_path / mode, flows=mode) as rig:
            rig.channels["ana"].takes_more = False
            rig.bring(*[from_bo(number, text="x" * 200) for number in range(1, 12_000)])
            rig.channels["ana"].takes_more = True
            rig.ports["ana"].queue.flush()
            outcomes.append((heard(rig), rig.node.counters.shown()))
    assert outcomes[0] == outcomes[1]
    assert 0 < len(outcomes[0][0]) < 11_999


async def test_variety_makes_few_flows_and_looks_for_none(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        for number in range(1_000):
            one = from_bo(number, from_=f"{BO}-{number}")
            rig.bring(one, one, one)
        assert 0 < len(table(rig)._flows) < 100
        rig.bring(*[from_bo(number, from_=f"{BO}-{number}") for number in range(100_000, 100_040)])
        assert table(rig).last is None


async def test_flows_of_a_hundred_senders_stay_side_by_side(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        for _ in range(80):
            rig.bring(*[from_bo(number, from_=f"{BO}-{number}") for number in range(100)])
        assert len(table(rig)._flows) == 100
        assert heard(rig) == list(range(100)) * 80


@given(st.lists(st.integers(0, 200), max_size=400))
def test_a_table_keeps_no_more_than_it_may_and_drops_the_oldest(numbers: list[int]) -> None:
    kept: FlowTable[Any] = FlowTable(8)
    for number in numbers:
        [message] = decode(from_bo(1, from_=f"{BO}-{number}"))
        text = header_text(decode(message.raw.partition(b',"trace"')[0] + b"}}")[0])
        if kept.wants(message) and text is not None:
            kept.keep(SimpleNamespace(text=text), message)
        assert len(kept._flows) <= 8
        assert len(kept._seen) <= 17


async def test_a_difference_is_reported_and_the_whole_way_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with flow_rig(tmp_path, flows="verify") as rig:
        warm(rig)
        assert not caplog.records
        flow = table(rig).last
        assert flow is not None
        flow.terms.record.policy_rev = "something else"
        rig.bring(from_bo(4))
        [record] = caplog.records
        assert (record.levelname, record.code) == ("ERROR", "flow-differs")  # type: ignore[attr-defined]
        assert "policy_rev" in record.message
        assert rig.side.message_records[-1].policy_rev == rig.gate.policies.revision


# Any messages and changes, in any order.

_TYPES = st.sampled_from(["event", "update", "read", "create", "execute", "delete", "subscribe", "response", "forward"])
_FROM = st.sampled_from(
    [BO, f"{BO}/x", "hyperty://gamma.example/bo", ANA, HOPS[0], "local", "hyperty://x@beta.example/"]
)
_TO = st.sampled_from(
    [ANA, f"{ANA}/changes", "comm://alpha.example/o/children/c", BO, SM, "user://alpha.example/u", "x"]
)
_BODY = st.dictionaries(
    st.sampled_from(["n", "ttl", "receipt", "source", "auth", "class", "resource", "code", "via", "trace"]),
    st.sampled_from([1, "x", True, ANA, BO, [], "event", "mn:" + 32 * "a"]),
    max_size=2,
)
_MESSAGE = st.fixed_dictionaries(
    {"type": _TYPES, "from": _FROM, "to": _TO}, optional={"id": st.integers(0, 9) | st.just("x")}
)
_USUAL = st.sampled_from([{"type": type_, "from": BO, "to": ANA, "id": 7} for type_ in ("event", "read")])
_VIA = st.sampled_from([HOPS, HOPS, HOPS[:1], ("runtime://alpha.example/mn-1",), HOPS * 9, ()])
_BROUGHT = st.lists(st.tuples(_USUAL | _USUAL | _MESSAGE, _BODY, _VIA, st.integers(1, 3)), min_size=1, max_size=6)


async def play(folder: Path, flows: FlowMode, steps: list[tuple[Any, str | None]]) -> dict[str, Any]:
    limit = RateLimit(messages_per_second=1e-3, burst_seconds=30_000.0)
    gate = Gate(one_policy(permit("read", condition("actionType", "equals", "read"))), {"*": PeerRule(rate=limit)})
    ends = []
    async with flow_rig(folder, gate=gate, flows=flows) as rig:
        for brought, change in steps:
            texts = [
                with_trailer(json.dumps({**header, "body": {"n": 1, **body}}, separators=(",", ":")).encode(), 7, via)
                for header, body, via, times in brought
                for _ in range(times)
            ]
            ends.append(rig.bring(*texts))
            if change is not None:
                CHANGES[change][0](rig)
        return {**rig.outcome(), "ends": ends}


@settings(max_examples=60)
@given(st.lists(st.tuples(_BROUGHT, st.none() | st.sampled_from(sorted(CHANGES))), min_size=1, max_size=5))
def test_flows_do_and_record_what_the_whole_way_does(steps: list[tuple[Any, str | None]]) -> None:
    outcomes = []
    for mode in _MODES:
        with tempfile.TemporaryDirectory() as folder:
            outcome = trio.run(play, Path(folder), mode, steps)
            outcome["records"] = sorted(outcome["records"], key=repr)  # refusals come first
            outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
