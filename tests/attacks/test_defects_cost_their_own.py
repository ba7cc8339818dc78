"""Tasks that all partners, runtimes and sources share: what fails about one of them costs that one, never the node."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
import trio

from federation.core.stub_status import StubAddresses
from federation.links import router
from federation.links.decision_records import DecisionRecords
from federation.links.domain_link import DomainLink
from federation.links.router import Federation
from msg_node.addresses.core.allocation import Origin, OwnedRow
from msg_node.admin import alarm_watch
from msg_node.admin.alarm_watch import AlarmWatch
from msg_node.bus import sweeper
from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.policy_duties import PolicyDuties
from msg_node.cluster import socket_node_bus
from msg_node.cluster.directory import MemoryDirectory
from msg_node.connectors.mqtt_client import Arrival, BrokerOptions, MqttClient
from msg_node.kernel.changes import Change, Table
from msg_node.kernel.service import Event, ServiceResult
from msg_node.registries.validation import Validation
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import StateStore
from protofly.message import Message
from tests.msg_node.admin.test_block_subscriptions import subscribed
from tests.msg_node.cluster.test_node_bus import User, over_sockets, two
from tests.support.flow_rig import flow_rig
from tests.support.registry_rig import rest_registry
from tests.support.runtime_rig import SESSION, SM, a_message, runtime_address, runtime_rig
from tests.support.sides import Bus, MemoryCarrier, chat, everybody, node_of
from tests.support.state_rig import StateRig

PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.ERROR)
    return caplog


def fail(*_arguments: object, **_named: object) -> NoReturn:
    raise RuntimeError("a defect")


def assert_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert [one.exc_info[1] for one in caplog.records if one.exc_info] != []


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.lowlevel.checkpoint()


# Links.


class Supervisors:
    """Those of b.example fail the first time."""

    def __init__(self) -> None:
        self.started: list[str] = []

    async def supervise(self, link: DomainLink) -> None:
        self.started.append(link.domain)
        if self.started.count("b.example") == 1 and link.domain == "b.example":
            fail()
        await trio.sleep_forever()


def federation_of(supervisors: Supervisors) -> Federation:
    gate = everybody()
    bus = Bus("a.example", gate=gate)
    decisions = DecisionRecords(gate, bus.records.append)
    addresses = StubAddresses(node_of("a.example"), b"a.example")
    return Federation(bus.context, decisions, addresses, supervise=supervisors.supervise)


async def test_a_link_whose_care_fails_is_cared_for_again_and_others_go_on(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(router, "RESTART_SECONDS", 0.0)
    supervisors = Supervisors()
    federation = federation_of(supervisors)
    await nursery.start(federation.run)
    for domain in ("b.example", "c.example"):
        federation.send(domain, chat(1, to=domain))
    await until(lambda: len(supervisors.started) == 3)
    assert sorted(supervisors.started) == ["b.example", "b.example", "c.example"]
    link = federation.find("b.example")
    assert link is not None
    assert link.need.has_arisen
    assert_logged(logged)


async def test_a_link_that_cannot_be_flushed_holds_no_other_up(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    federation = federation_of(Supervisors())
    await nursery.start(federation.run)
    carriers = []
    for domain in ("c.example", "d.example", "e.example"):
        federation.send(domain, chat(1, to=domain))
        link = federation.find(domain)
        assert link is not None
        carriers.append(MemoryCarrier(link))
        carriers[-1].open()
        carriers[-1].on_the_way.clear()
        federation.send(domain, chat(2, to=domain))
    monkeypatch.setattr(carriers[1], "pump", fail)
    federation.flush()
    assert [len(one.on_the_way) for one in carriers] == [1, 0, 1]
    assert_logged(logged)


# Runtimes.


async def test_a_runtime_that_cannot_be_written_to_loses_its_connection_alone(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    async with flow_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(rig.node.bus.send_queues.run)
        dropped: list[str] = []
        broken, sound = rig.channels["ana"], rig.channels["eve"]
        broken.send, broken.drop = fail, lambda: dropped.append("ana")  # type: ignore[method-assign]
        for name in ("ana", "eve"):
            rig.node.bus.send_queues.turns.ended = 9e9  # the task writes, and not the reader
            ping = json.dumps(a_message("ping", runtime_address(name), SESSION, id_=name)).encode()
            rig.node.bus.from_sessions.take(rig.ports[name], [ping])
        await until(lambda: dropped)
        await until(lambda: json.loads(sound.sent[-1])["id"] == "eve")
        assert dropped == ["ana"]
        nursery.cancel_scope.cancel()
    assert_logged(logged)


@pytest.mark.parametrize("part", ["_effects.sweep_sessions", "_parked_actions.sweep", "_foreign.expire"])
async def test_a_sweep_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, part: str
) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.01)
    async with runtime_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        eve = await rig.opened("eve")
        swept: list[bool] = []
        owner, _, name = part.partition(".")
        holder = getattr(rig.bus.sweeper, owner)
        changed = SimpleNamespace(**{one: getattr(holder, one) for one in dir(holder) if not one.startswith("__")})
        setattr(changed, name, fail)
        monkeypatch.setattr(rig.bus.sweeper, owner, changed)
        effects = rig.bus.sweeper._effects
        shown = SimpleNamespace(sweep_sessions=effects.sweep_sessions, sweep_registry=lambda: swept.append(True))
        monkeypatch.setattr(rig.bus.sweeper, "_effects", shown)
        nursery.start_soon(rig.bus.sweeper.run)
        await until(lambda: len(swept) >= 2)
        nursery.cancel_scope.cancel()
        assert (await eve.ask("ping", SESSION))["type"] == "pong"
    assert_logged(logged)


async def test_a_reply_that_cannot_leave_after_its_commit_costs_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana, bo = await rig.opened("ana"), await rig.opened("bo")
        effects = rig.bus.sweeper._effects
        leave = effects.leave

        def leave_but_for_ana(result: ServiceResult, answer: Callable[[Message], None]) -> None:
            if any(reply.to == ana.address for reply in result.replies):
                fail()
            leave(result, answer)

        monkeypatch.setattr(effects, "leave", leave_but_for_ana)
        with effects:  # both in one commit
            for name, port in zip(("ana", "bo"), rig.bus.send_queues.ports.values(), strict=True):
                body = {"resources": [f"comm://alpha.example/{name}"], "source": runtime_address(name)}
                wanted = a_message("subscribe", runtime_address(name), SM, body, id_=1)
                rig.bus.from_sessions.take(port, [json.dumps(wanted).encode()])
        assert (await bo.next())["body"]["code"] == 200
        monkeypatch.undo()
        assert (await ana.ask("ping", SESSION))["type"] == "pong"
    assert_logged(logged)


@pytest.mark.parametrize("failing", ["on_durable", "on_claimed", "on_called_back"])
async def test_claims_of_others_are_settled_when_what_follows_from_one_fails(
    nursery: trio.Nursery, tmp_path: Path, logged: pytest.LogCaptureFixture, failing: str
) -> None:
    store = StateStore(StateFile(tmp_path / "state.sqlite"))
    claims = AddressClaims(store, MemoryDirectory("n1"), "n1")
    if failing != "on_durable":
        setattr(claims, failing, fail)
    await nursery.start(store.run)
    nursery.start_soon(claims.run)
    settled: list[int] = []
    for number in range(4):
        row = OwnedRow(number, f"comm://a.example/{number}", Origin.CLAIMED)
        on_durable = fail if failing == "on_durable" and number == 1 else partial(settled.append, number)
        claims.submit([Change(Table.ADDRESSES, row.url, row)], on_durable, fail)
    await until(lambda: claims.is_settled)
    assert settled == ([0, 2, 3] if failing == "on_durable" else [0, 1, 2, 3])
    assert_logged(logged)


async def test_messages_of_a_broker_that_cannot_be_taken_cost_themselves(logged: pytest.LogCaptureFixture) -> None:
    client = MqttClient(BrokerOptions("127.0.0.1", 1, "n"), ["a/b"], cast("Any", SimpleNamespace(take=fail)))
    client._arrived = [Arrival("a/b", b"{}", False, "", 1, 0)]
    await client._hand_over()
    assert client._arrived == []
    assert_logged(logged)


# What the node asks and watches.


async def test_alarms_are_looked_at_again_after_a_look_that_failed(
    monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alarm_watch, "LOOK_SECONDS", 0.0)
    looks: list[float] = []

    def look(_watch: AlarmWatch, now: float) -> None:
        looks.append(now)
        if len(looks) == 1:
            fail()

    monkeypatch.setattr(AlarmWatch, "look", look)
    watch = AlarmWatch(cast("Any", None), records=fail, expiring=list, call=None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await until(lambda: len(looks) >= 2)
        nursery.cancel_scope.cancel()
    assert_logged(logged)


async def test_a_block_list_that_fails_says_so_and_the_node_goes_on(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    async def fetch() -> bytes:
        fail()

    async with subscribed(tmp_path, "enforce") as rig, trio.open_nursery() as nursery:
        rig.one.fetch = fetch
        nursery.start_soon(rig.lists.run)
        await until(lambda: rig.status["problem"] == "internal")
        nursery.cancel_scope.cancel()
    assert_logged(logged)


async def test_what_a_catalogue_publishes_costs_itself_when_reading_it_fails(
    logged: pytest.LogCaptureFixture,
) -> None:
    validation = Validation(StateRig().state)
    asked: list[str] = []

    async def read(question: Any) -> NoReturn:
        asked.append(question.entry.name)
        fail()

    async with trio.open_nursery() as nursery:
        await nursery.start(validation.run, read)
        names = [f"S{number}" for number in range(20)]  # more than there are readers
        for name in names:
            address = f"hyperty-catalogue://catalogue.b.example/.well-known/dataschema/{name}"
            assert validation._schemas.find(address, "") is None
        await until(lambda: validation.counters["schemas not read: internal"] == len(names))
        nursery.cancel_scope.cancel()
    assert sorted(asked) == sorted(names)
    assert_logged(logged)


async def test_an_answer_of_the_registry_that_cannot_be_read_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    async with rest_registry(tmp_path) as registry:
        monkeypatch.setattr(registry.watch, "_backend", SimpleNamespace(call=fail))
        entry = cast("Any", SimpleNamespace(url="hyperty://a.example/x"))
        assert not await registry.watch._report_disconnect(entry)
    assert_logged(logged)


async def test_notices_of_policies_that_cannot_be_sent_end_no_later_ones(logged: pytest.LogCaptureFixture) -> None:
    duties = PolicyDuties("runtime://a.example/mn-1", {"a.example"}, cast("Any", None))
    sent: list[list[Event]] = []

    def publish(notices: list[Event]) -> None:
        sent.append(notices)
        if len(sent) == 1:
            fail()

    async with trio.open_nursery() as nursery:
        await nursery.start(duties.run, publish)
        for count in (1, 2):
            duties._wanted.set()
            await until(lambda count=count: len(sent) == count)
        nursery.cancel_scope.cancel()
    assert_logged(logged)


# Nodes.


@pytest.mark.parametrize("broken", ["n1", "n2"], ids=["that dialled", "that was dialled"])
async def test_contents_of_another_node_that_cannot_be_taken_cost_that_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, broken: str
) -> None:
    monkeypatch.setattr(socket_node_bus, "RETRY_SECONDS", 0.01)
    async with over_sockets(lambda node: f"unix:{tmp_path}/{node}") as cluster:
        one, of_one, other, of_other = await two(cluster)
        sender, user, of_sender = (other, of_one, of_other) if broken == "n1" else (one, of_other, of_one)
        taken, failures = user.taken, list[int]()

        def take(node: str, contents: Sequence[bytes]) -> None:
            if not failures:
                failures.append(len(contents))
                fail()
            taken(node, contents)

        cast("Any", user).taken = take
        meetings = len(of_sender.meetings)
        assert sender.send(broken, b"first") is None
        sender.flush()
        await of_sender.until(lambda: len(of_sender.meetings) > meetings)
        assert sender.send(broken, b"second") is None
        sender.flush()
        await User.until(user, lambda: b"second" in [content for _, content in user.heard])
    assert failures == [1]
    assert_logged(logged)
