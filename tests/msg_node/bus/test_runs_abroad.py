"""Messages of a flow whose link another node of ours has go there as one thing, and leave as if each went alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.links.link_context import Refusal
from msg_node.bus import session_traffic
from msg_node.bus.core.held_links import HeldLinks
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.node_runs import RUN_BYTES
from msg_node.bus.requests_elsewhere import RequestsElsewhere
from msg_node.bus.runs_abroad import RunsAbroad, WayAbroad
from msg_node.cluster.core.node_contents import ABROAD, MOVES, Passed
from msg_node.cluster.core.runs import RUN_ABROAD, RunHead, abroad_head, cut_abroad, encode_run
from msg_node.cluster.node_bus import NodeBus
from protofly.errors import Code, PeerError
from protofly.message import Message
from tests.msg_node.bus.test_node_runs import ANA, PairOfNodes, pair_of_nodes
from tests.support.cluster_rig import node_of
from tests.support.flow_rig import FlowRig, event, flow_rig
from tests.support.runtime_rig import FOREIGN, parsed

ZOE = f"runtime://{FOREIGN}/zoe"
NOBODY: frozenset[str] = frozenset()


@pytest.fixture(autouse=True, scope="module")
def _unhurried() -> Iterator[None]:
    """A turn takes all that was read, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_traffic, "TURN_SECONDS", 60.0)
        yield


def to_zoe(number: int, type_: str = "event", **body: object) -> dict[str, Any]:
    return {**event(number, type_=type_, from_=ANA, to=ZOE), "body": {"n": number, **body}}


def where(pair: PairOfNodes, node: str) -> None:
    """Both nodes know which one has the link."""
    for rig in (pair.one, pair.two):
        node_of(rig).places._known[FOREIGN] = node


async def pair_with_link(folder: Path, flows: Any = "on") -> PairOfNodes:
    """Ana is at the first node; the second one has the link."""
    pair = await pair_of_nodes(folder, flows)
    where(pair, "n2")
    pair.contents.clear()
    return pair


def left(pair: PairOfNodes) -> list[int]:
    """The numbers of what went over links of the second node."""
    return [one["body"]["n"] for one in pair.two.domains.take()]


# The node of the sender.


async def test_messages_of_a_flow_go_to_the_node_with_the_link_in_runs_and_in_order(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    await pair.say(*map(to_zoe, range(104)))
    assert (pair.crossed[:2], set(pair.crossed[2:])) == ([ABROAD] * 2, {RUN_ABROAD})
    assert len(pair.crossed) < 6
    assert left(pair) == list(range(104))


async def test_a_node_of_a_version_without_such_runs_gets_each_message_by_itself(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    node_of(pair.two).bus.abilities = ()
    await pair.say(*map(to_zoe, range(20)))
    assert set(pair.crossed) == {ABROAD}
    assert left(pair) == list(range(20))

    # It is replaced by one of this version, and goes back.
    node_of(pair.two).bus.abilities = ("runs-abroad",)
    await pair.say(*map(to_zoe, range(20, 40)))
    node_of(pair.two).bus.abilities = ()
    before = len(pair.crossed)
    await pair.say(*map(to_zoe, range(40, 60)))
    assert RUN_ABROAD in pair.crossed[:before]
    assert set(pair.crossed[before:]) == {ABROAD}
    assert left(pair) == list(range(20, 60))


async def test_what_is_too_long_for_a_run_goes_by_itself_in_its_place(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    await pair.say(*map(to_zoe, range(3)), to_zoe(3, text="x" * RUN_BYTES), to_zoe(4))
    assert pair.crossed[-2:] == [ABROAD, RUN_ABROAD]
    assert left(pair) == list(range(5))


async def test_a_flow_ends_when_the_link_is_at_another_node(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    await pair.say(*map(to_zoe, range(10)))
    where(pair, "n1")
    await pair.say(*map(to_zoe, range(10, 15)))
    assert left(pair) == list(range(10))
    assert [one["body"]["n"] for one in pair.one.domains.take()] == list(range(10, 15))


async def test_requests_of_a_run_that_does_not_arrive_are_each_answered_and_waited_for_no_more(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    await pair.say(*[to_zoe(number, "read") for number in range(1, 10)])
    requests, traffic = node_of(pair.one).links.requests, pair.one.bus.from_nodes
    assert traffic is not None
    assert (pair.crossed[-1], len(requests)) == (RUN_ABROAD, 9)
    lost = cut_abroad(pair.contents[-1])[2]
    traffic.returned("n2", [pair.contents[-1]])
    pair.flush()
    answers = [json.loads(one) for one in pair.channels["ana"].sent]
    assert [one["body"]["code"] for one in answers] == [503] * (9 - len(requests))
    assert f'"id": {answers[-1]["id"]}'.replace(" ", "").encode() in lost


async def test_a_request_of_a_run_that_the_link_refuses_is_answered(tmp_path: Path) -> None:
    pair = await pair_with_link(tmp_path)
    await pair.say(*[to_zoe(number, "read") for number in range(1, 4)])
    pair.two.domains.refusals[FOREIGN] = Refusal(Code.OVERLOAD)
    await pair.say(to_zoe(4, "read"), to_zoe(5, "read"))
    assert pair.crossed[-1] == RUN_ABROAD
    routing = node_of(pair.two).parts.routing  # it looks for Ana first
    await routing._look_up([await routing._coming.receive()])
    pair.flush()
    answers = [json.loads(one) for one in pair.channels["ana"].sent]
    assert [(one["id"], one["body"]["reason"]) for one in answers] == [(4, "overload"), (5, "overload")]


async def test_a_difference_between_a_run_and_the_whole_way_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await pair_with_link(tmp_path, "verify")
    caplog.set_level(logging.ERROR)
    await pair.say(*map(to_zoe, range(6)))
    assert not caplog.records
    flow = pair.ports["ana"].flows.last
    assert flow is not None
    assert isinstance(flow.outward, WayAbroad)
    flow.outward._head = RunHead("event", ANA, ZOE, frozenset({"another"}))
    await pair.say(to_zoe(6))
    [record] = caplog.records
    assert record.code == "flow-differs"  # type: ignore[attr-defined]
    assert (set(pair.crossed), left(pair)) == ({ABROAD}, list(range(7)))


# The node with the link.


class Places:
    """The link is at this node, or at another one."""

    node = "n2"

    def __init__(self, place: str = "n2") -> None:
        self.place = place
        self.held = HeldLinks()

    def place_of_mark(self, _domain: str) -> str:
        return self.place

    def node_of(self, _domain: str) -> str:
        return self.place


class Bus:
    """Notes what is sent; other nodes take runs if they are `able`."""

    def __init__(self, *, able: bool = True) -> None:
        self.able = able
        self.sent: list[tuple[str, bytes]] = []

    def is_able(self, _node: str, _ability: str) -> bool:
        return self.able

    def congested(self, _node: str) -> None:
        return None

    def send(self, node: str, content: bytes) -> None:
        self.sent.append((node, content))


def runs_of(rig: FlowRig | None, place: str, bus: Bus) -> RunsAbroad:
    requests = RequestsElsewhere(lambda _: True, lambda: 0.0)
    links = rig.federation if rig is not None else None
    return RunsAbroad(cast("Any", links), cast("NodeBus", bus), cast("LinkPlaces", Places(place)), requests)


HYPERTY, BO = "hyperty://alpha.example/ana", f"hyperty://{FOREIGN}/bo"
MESSAGES = [parsed(event(number, from_=HYPERTY, to=BO)) for number in range(1, 30)]


def content(messages: list[Message], moves: int = 0) -> bytes:
    like = messages[0]
    return encode_run(abroad_head(FOREIGN, moves) + RunHead(like.type, like.from_, like.to).encode(), messages)


def one_by_one(rig: FlowRig, sent: list[Passed]) -> Any:
    def send(passed: Passed) -> bool:
        sent.append(passed)
        return rig.federation.send(passed.domain, passed.message, passed.roles) is None

    return send


async def test_a_run_leaves_as_each_message_would_and_all_but_the_first_of_its_flow_as_one_thing(
    tmp_path: Path,
) -> None:
    outcomes, alone = [], []
    for name, size in (("single", 1), ("runs", 10)):
        folder = tmp_path / name
        folder.mkdir()
        async with flow_rig(folder) as rig:
            runs, sent = runs_of(rig, "n2", Bus()), list[Passed]()
            for start in range(0, len(MESSAGES), size):
                assert runs.take(content(MESSAGES[start : start + size]), 100.0, one_by_one(rig, sent)) == FOREIGN
            outcomes.append(rig.outcome())
            alone.append([one.message.id for one in sent])
    for outcome in outcomes:
        for queue in outcome["queued"]:
            for one in queue:
                one["ts_us"] = one["accepted_seconds"] = 0
    assert outcomes[0] == outcomes[1]
    assert (len(alone[0]), alone[1]) == (len(MESSAGES), [MESSAGES[0].id])


async def test_a_run_for_a_domain_that_is_held_goes_message_by_message(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        runs, sent = runs_of(rig, "n2", Bus()), list[Passed]()
        runs._places.held.hold(FOREIGN, 1)
        runs.take(content(MESSAGES[:10]), 100.0, one_by_one(rig, sent))
        assert len(sent) == 10


async def test_a_flow_of_another_node_is_decided_anew_when_its_link_was_made_anew(tmp_path: Path) -> None:
    async with flow_rig(tmp_path) as rig:
        runs, sent = runs_of(rig, "n2", Bus()), list[Passed]()
        runs.take(content(MESSAGES[:10]), 100.0, one_by_one(rig, sent))
        [flow] = runs._flows.values()
        rig.link.machine.carriers.clear()
        assert not flow.is_current
        runs.take(content(MESSAGES[10:12]), 100.0, one_by_one(rig, sent))
        assert [one.message.id for one in sent] == [one.id for one in (MESSAGES[0], *MESSAGES[10:12])]


@pytest.mark.parametrize(
    ("moves", "able", "passed"), [(0, True, True), (MOVES - 1, True, True), (MOVES, True, False), (0, False, False)]
)
def test_a_run_follows_its_link_as_one_thing_where_that_is_understood_and_not_for_ever(
    moves: int, able: bool, passed: bool
) -> None:
    bus, sent = Bus(able=able), list[Passed]()

    def note(one: Passed) -> bool:
        sent.append(one)
        return True

    runs_of(None, "n3", bus).take(content(MESSAGES[:3], moves), 100.0, note)
    if passed:
        assert bus.sent == [("n3", content(MESSAGES[:3], moves + 1))]
    assert [(one.message.id, one.moves) for one in sent] == ([] if passed else [(n.id, moves) for n in MESSAGES[:3]])


def test_no_way_is_made_to_a_node_that_takes_no_runs_or_for_a_message_that_is_forwarded() -> None:
    assert runs_of(None, "n3", Bus()).way(FOREIGN, MESSAGES[0], NOBODY) is not None
    assert runs_of(None, "n3", Bus(able=False)).way(FOREIGN, MESSAGES[0], NOBODY) is None
    assert runs_of(None, "n2", Bus()).way(FOREIGN, MESSAGES[0], NOBODY) is None
    forward = parsed(event(1, type_="forward", from_=HYPERTY, to=BO))
    assert runs_of(None, "n3", Bus()).way(FOREIGN, forward, NOBODY) is None


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda rest: content(MESSAGES[:1])[:-40] + rest))
def test_any_bytes_are_a_run_for_a_domain_or_a_protocol_error(data: bytes) -> None:
    codes = []
    try:
        runs_of(None, "n3", Bus()).take(RUN_ABROAD + data, 100.0, lambda _: True)
    except PeerError as exc:
        codes.append(exc.code)
    assert codes in ([], [Code.PROTOCOL_ERROR])
