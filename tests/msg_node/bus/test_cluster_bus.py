"""Messages between nodes of one domain: to addresses, to observers, in order; and sessions that move."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from msg_node.bus import session_moves
from msg_node.bus.bus import Bus
from msg_node.bus.core.moved_session import move_out
from msg_node.cluster import directory as directory_module
from msg_node.cluster.directory import NO_CLAIMS, Claim, MemoryDirectory
from msg_node.kernel.changes import Table
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.qos.core.leases import Amounts, Lease
from protofly.address import canonical_key
from protofly.errors import Code, HostError
from protofly.limits import GUARANTEED_RETRY_SECONDS
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    commits_held,
    runtime_address,
)


async def next_of(runtime: Runtime, type_: str) -> dict[str, object]:
    while (message := await runtime.next()).get("type") != type_:
        pass
    return message


async def test_a_request_and_its_response_cross_in_both_directions(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        to_bo, to_ana = await bo.allocated(), await ana.allocated()
        for asker, answerer, source, target in ((ana, bo, to_ana, to_bo), (bo, ana, to_bo, to_ana)):
            await asker.say(a_message("read", source, target, {"x": 1}, id_=7))
            request = await next_of(answerer, "read")
            assert (request["from"], request["to"], request["id"]) == (source, target, 7)
            await answerer.say(a_message("response", target, source, {"code": 200}, id_=7))
            assert (await next_of(asker, "response"))["body"] == {"code": 200}
        assert node_of(one).parts.routing.look_ups == 1
        assert node_of(two).parts.routing.look_ups == 1


async def test_messages_of_one_sender_arrive_in_order_from_the_first_look_up_on(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        for number in range(200):
            await ana.say(a_message("message", ana.address, target, {"n": number}))
        got = [(await next_of(bo, "message"))["body"] for _ in range(200)]
        assert got == [{"n": number} for number in range(200)]


async def test_an_address_that_nobody_has_is_refused_like_at_one_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, _):
        ana = await one.opened("ana")
        reply = await ana.ask("read", runtime_address("nobody"))
        assert code_and_reason(reply) == (404, "no-route")
        assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        assert node_of(one).parts.routing.look_ups == 1


async def test_an_event_crosses_once_to_a_node_with_two_observers_and_to_no_other(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana = await one.opened("ana")
        observers = [await two.opened("bo"), await two.opened("cy")]
        await three.opened("eve")
        thing = await ana.allocated("comm")
        for observer in observers:
            assert (await observer.subscribed(f"{thing}/changes"))["body"]["code"] == 200
        passed: list[str] = []
        bus = node_of(one).bus
        send = bus.send

        def noted(node: str, content: bytes) -> Code | None:
            passed.append(node)
            return send(node, content)

        bus.send = noted  # type: ignore[method-assign]
        await ana.say(a_message("update", thing, f"{thing}/changes", {"value": 1}))
        for observer in observers:
            assert (await next_of(observer, "update"))["body"] == {"value": 1}
        assert passed == ["n2"]
        for observer in observers:
            await observer.ask("unsubscribe", "domain://msg-node.alpha.example/sm", {"resources": [f"{thing}/changes"]})
        await ana.say(a_message("update", thing, f"{thing}/changes", {"value": 2}))
        await ana.heard()
        assert passed == ["n2"]


async def test_a_runtime_that_is_live_at_one_node_cannot_be_opened_at_another(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        first = await one.opened("ana")
        second = await two.runtime()
        assert code_and_reason(await second.open("ana")) == (409, "address-taken")
        assert (await first.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        assert two.state.sessions.by_runtime(runtime_address("ana")) is None


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
async def test_a_connection_with_a_session_gets_no_second_one_and_that_one_stays_where_it_is(
    tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    async with cluster_rig(tmp_path, nodes) as rigs:
        ana, bo = await rigs[0].opened("ana"), await rigs[-1].opened("bo")
        assert code_and_reason(await bo.ask("open", SESSION, from_=ana.address)) == (409, "duplicate")
        reply = await bo.ask("re-open", SESSION, from_=ana.session_address)
        assert reply["body"]["code"] == 500
        assert rigs[0].state.sessions.by_runtime(ana.address) is not None
        assert (await ana.ask("read", ALLOCATION))["body"]["code"] == 200


async def test_a_session_that_is_re_opened_at_another_node_goes_there_with_its_addresses(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        target, thing = await ana.allocated(), await bo.allocated("comm")
        assert (await ana.subscribed(f"{thing}/changes"))["body"]["code"] == 200
        before = node_of(one).directory.claims[canonical_key(ana.address)]
        again = await two.runtime()
        again.address, again.token = ana.address, ana.token
        reply = await again.ask("re-open", "mn:/session", None, from_=f"{ana.address}/{ana.token}")
        assert reply["body"]["code"] == 200, reply
        assert await ana.close_code() == 4001
        after = node_of(one).directory.claims[canonical_key(ana.address)]
        assert (before.node, after.node) == ("n1", "n2")
        assert after.epoch > before.epoch
        assert len(one.state.sessions) == 0
        cy = await one.opened("cy")
        await cy.say(a_message("read", cy.address, target, id_=3))
        assert (await next_of(again, "read"))["to"] == target
        await bo.say(a_message("update", thing, f"{thing}/changes", {"value": 1}))
        assert (await next_of(again, "update"))["body"] == {"value": 1}


@pytest.mark.parametrize(
    ("credentials", "answer"),
    [
        ({"token": "bad"}, (401, "bad-token")),
        ("bad", (401, "bad-token")),
        ({"token": 5}, (401, "bad-token")),
        (None, (409, "address-taken")),
        ({"token": "good"}, (200, "")),
    ],
)
async def test_open_is_answered_at_another_node_like_at_the_one_that_has_the_session(
    tmp_path: Path, credentials: object, answer: tuple[int, str]
) -> None:
    good = Credential(digest_of("good"), f"runtime://{DOMAIN}/*")
    async with cluster_rig(tmp_path, credentials=[good]) as (one, two):
        ana = await one.runtime()
        reply = await ana.open("ana", {"credentials": {"token": "good"}})
        assert reply["body"]["code"] == 200, reply
        for rig in (one, two):
            other = await rig.runtime()
            body = None if credentials is None else {"credentials": credentials}
            assert code_and_reason(await other.open("ana", body)) == answer
        if answer[0] != 200:
            assert two.state.sessions.by_runtime(ana.address) is None


async def test_re_open_at_another_node_with_a_proof_that_is_none_moves_nothing(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        thief = await two.runtime()
        body = {"credentials": {"token": "bad"}}
        reply = await thief.ask("re-open", "mn:/session", body, from_=ana.session_address)
        assert code_and_reason(reply) == (401, "bad-token")
        assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        assert two.state.sessions.by_runtime(ana.address) is None


async def test_a_token_that_is_none_moves_nothing(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        thief = await two.runtime()
        reply = await thief.ask("re-open", "mn:/session", None, from_=f"{ana.address}/guessed")
        assert reply["body"]["code"] == 500
        assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        assert node_of(one).directory.claims[canonical_key(ana.address)].node == "n1"


async def test_two_nodes_that_open_one_runtime_at_once_give_it_to_one(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        runtimes = [await one.runtime(), await two.runtime()]
        codes: list[int] = []

        async def open_at(runtime: Runtime) -> None:
            codes.append((await runtime.open("ana"))["body"]["code"])

        async with trio.open_nursery() as nursery:
            for runtime in runtimes:
                nursery.start_soon(open_at, runtime)
        assert sorted(codes) == [200, 409]
        assert len(one.state.sessions) + len(two.state.sessions) == 1


REGISTRY = "domain://registry.alpha.example"


async def registered(runtime: Runtime, user: str) -> str:
    hyperty = await runtime.allocated("hyperty")
    value = {"user": f"user://alpha.example/{user}", "url": hyperty, "descriptor": "x", "expires": 3600}
    value |= {"dataSchemes": ["comm"], "resources": ["chat"], "runtime": runtime.address}
    reply = await runtime.ask("create", REGISTRY, {"value": value})
    assert reply["body"]["code"] == 200, reply
    return hyperty


async def test_a_reader_of_the_registry_gets_the_entries_of_all_nodes(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await three.opened("cy")
        question = {"resource": "user://alpha.example/bo"}
        assert (await ana.ask("read", REGISTRY, question))["body"]["code"] == 404
        at_two = await registered(bo, "bo")
        reply = await ana.ask("read", REGISTRY, question)
        assert reply["body"]["code"] == 200
        assert set(reply["body"]["value"]) == {at_two}
        at_three = await registered(cy, "bo")
        for reader in (ana, bo, cy):
            reply = await reader.ask("read", REGISTRY, question)
            assert set(reply["body"]["value"]) == {at_two, at_three}
        node_of(one).bus.cut("n3")
        assert set((await ana.ask("read", REGISTRY, question))["body"]["value"]) == {at_two}
        single = await ana.ask("read", REGISTRY, {"resource": at_two})
        assert (await bo.ask("read", REGISTRY, {"resource": at_two}))["body"]["value"] == single["body"]["value"]


TWIN = "domain://msg-node.alpha.example/twin"
LAMP = "thing://alpha.example/lamps/one"


async def described(runtime: Runtime, thing: str, title: str) -> None:
    reply = await runtime.ask("create", TWIN, {"resource": thing, "value": {"@type": "Lamp", "title": title}})
    assert reply["body"]["code"] == 200, reply


async def twin_of(runtime: Runtime, resource: str = "") -> Json:
    """What the twin says of a thing, a value or everything; the body of a refusal."""
    reply = await runtime.ask("read", TWIN, {"resource": resource} if resource else {})
    body: Json = reply["body"]
    value: Json = body["value"] if body["code"] == 200 else body
    return value


async def test_the_twin_is_read_at_any_node_and_a_value_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await three.opened("cy")
        assert (await twin_of(ana, LAMP))["code"] == 404
        await described(bo, LAMP, "hall")
        await described(cy, "thing://alpha.example/fans/two", "fan")
        await bo.say(a_message("update", bo.address, f"{LAMP}/properties/on", {"value": True}))
        for reader in (bo, ana, cy):
            assert (await twin_of(reader, f"{LAMP}/properties/on"))["value"] is True
            thing = await twin_of(reader, LAMP)
            assert (thing["status"], thing["description"]["title"]) == ("live", "hall")
            page = await twin_of(reader)
            assert (len(page["things"]), page["total"], page["pages"]) == (2, 2, 1)
            assert (await twin_of(reader, f"{LAMP}/properties/off"))["code"] == 404
        node_of(one).bus.cut("n2")
        assert (await twin_of(ana, LAMP))["code"] == 404
        assert (await twin_of(ana))["total"] == 1


async def test_the_things_of_an_agent_go_along_with_its_session(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await described(bo, LAMP, "hall")
        await described(bo, LAMP, "hall, left")
        back = await one.runtime()
        back.address = bo.address
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert reply["body"]["code"] == 200, reply
        assert [key for key, _ in two.state.twin.things()] == []
        [(key, row)] = one.state.twin.things()
        assert (key, row.version) == (LAMP, 2)
        await back.say(a_message("update", back.address, f"{LAMP}/properties/on", {"value": 3}))
        assert (await back.ask("read", TWIN, {"resource": f"{LAMP}/properties/on"}))["body"]["value"]["value"] == 3
        assert (await twin_of(ana, LAMP))["version"] == 2


async def test_a_session_that_is_too_large_to_move_keeps_its_things_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        await described(bo, LAMP, "hall")
        monkeypatch.setattr(session_moves, "MOVED_BYTES", 100)
        back = await one.runtime()
        back.address = bo.address
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert code_and_reason(reply) == (503, "overload")
        assert [key for key, _ in two.state.twin.things()] == [LAMP]
        assert (await twin_of(bo, LAMP))["version"] == 1


async def test_the_reservations_of_a_session_go_along_with_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        sid = two.state.sessions.by_runtime(bo.address) or 0
        lease = Lease("r-1", sid, "csp", Amounts(audio=5), "turn.example", "client", "", 4e9)
        two.state.leases.add(lease)
        two.bus.effects.store_rest()
        back = await one.runtime()
        back.address = bo.address
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert reply["body"]["code"] == 200, reply
        await ana.heard()
        moved = one.state.leases.get("r-1")
        assert moved == msgspec.structs.replace(lease, sid=one.state.sessions.by_runtime(bo.address))
        assert one.state.leases.reserved("csp") == Amounts(audio=5)
        assert (len(two.state.leases), two.state.leases.take_ended()) == (0, []), "nothing was given back"
        assert list(one.store.load()[Table.QOS_LEASES]) == ["r-1"]
        one.state.leases.end_session(moved.sid)
        assert one.state.leases.take_ended() == ["csp"]


async def test_what_a_node_that_was_cut_off_did_not_take_is_answered(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        await next_of(bo, "message")
        node_of(one).bus.cut("n2")
        assert code_and_reason(await ana.ask("read", target)) == (503, "not-connected")
        node_of(one).bus.mend("n2")
        await ana.say(a_message("message", ana.address, target, {"n": 2}))
        assert (await next_of(bo, "message"))["body"] == {"n": 2}


NOBODY = Claim("", 0)


class Dying(MemoryDirectory):
    """A directory of a node that dies, or cannot ask the engine, once it has learned who has a runtime."""

    error: HostError | None = None
    dies_later = False

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        if not replaced and len(keys) == 1:
            return await super().claim(keys)
        if self.dies_later:
            await super().claim(keys, replaced or {key: self.claims[key] for key in keys if key in self.claims}, **more)
        if self.error is None:
            await trio.sleep_forever()
        raise self.error


async def re_opened(rig: RuntimeRig, lost: Runtime) -> tuple[Runtime, int]:
    """A runtime comes back with its token; the code of the answer."""
    back = await rig.runtime()
    back.address, back.token = lost.address, lost.token
    reply = await back.ask("re-open", "mn:/session", None, from_=lost.session_address)
    return back, reply["body"]["code"]


async def dies_while_a_session_comes(
    rig: RuntimeRig, lost: Runtime, given: Mapping[str, bytes], *, dies_later: bool = False
) -> None:
    """A node asks for a session, gets it, and dies before, or after, it has claimed what that holds."""
    directory = node_of(rig).directory
    directory.__class__ = Dying
    assert isinstance(directory, Dying)
    directory.dies_later = dies_later
    key = canonical_key(lost.address)
    comes = await rig.runtime()
    comes.address, comes.token = lost.address, lost.token
    await comes.say(a_message("re-open", lost.session_address, "mn:/session", id_=1))
    with trio.fail_after(10):
        owner = node_of(rig).name if dies_later else NOBODY.node  # else the node that gave it is done with it
        while not given or directory.claims.get(key, NOBODY).node != owner:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("dies_later", [False, True])
@pytest.mark.parametrize("place", [1, 2])
async def test_a_session_whose_new_node_dies_before_it_has_taken_it_in_comes_back_at_any_other_node(
    tmp_path: Path, place: int, dies_later: bool
) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        ana, bo = await rigs[2].opened("ana"), await rigs[1].opened("bo")
        target = await bo.allocated()
        given = node_of(rigs[0]).shared[Table.GIVEN_SESSIONS]
        await dies_while_a_session_comes(rigs[0], bo, given, dies_later=dies_later)
        assert await bo.close_code() == 4001
        node_of(rigs[0]).bus.leave()
        for rig in rigs[1:]:
            node_of(rig).dead.add("n1")
        back, code = await re_opened(rigs[place], bo)
        assert code == 200
        assert given == {}
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target
        assert (await re_opened(rigs[3 - place], back))[1] == 200, "and it moves as before"


async def test_a_session_whose_node_died_and_then_the_one_that_had_claimed_it_comes_back_at_a_third_one(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo = await three.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        session = two.state.sessions.get(two.state.sessions.by_runtime(bo.address) or 0)
        assert session is not None
        node_of(one).stored[bo.address] = move_out(two.state, session)
        for rig in (one, three):
            node_of(rig).dead.add("n2")
        node_of(two).bus.leave()
        given = node_of(one).shared[Table.GIVEN_SESSIONS]
        await dies_while_a_session_comes(one, bo, given, dies_later=True)
        node_of(three).dead.add("n1")
        node_of(one).bus.leave()
        back, code = await re_opened(three, bo)
        assert (code, given) == (200, {})
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


class Halting(MemoryDirectory):
    """A directory whose node is halted before or after one of its next claims."""

    claims_left = 0
    is_after = False
    reached: trio.Event
    may_go_on: trio.Event

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        self.claims_left -= 1
        if self.claims_left:
            return await super().claim(keys, replaced, **more)
        owners = await super().claim(keys, replaced, **more) if self.is_after else {}
        self.reached.set()
        await self.may_go_on.wait()
        return owners or await super().claim(keys, replaced, **more)


def halted(rig: RuntimeRig, *, claim: int, is_after: bool = False) -> Halting:
    directory = node_of(rig).directory
    directory.__class__ = Halting
    assert isinstance(directory, Halting)
    directory.claims_left, directory.is_after = claim, is_after
    directory.reached, directory.may_go_on = trio.Event(), trio.Event()
    return directory


async def asked_at(rig: RuntimeRig, lost: Runtime, answers: list[tuple[Runtime, int]]) -> None:
    answers.append(await re_opened(rig, lost))


async def test_of_two_nodes_that_want_one_session_at_once_one_has_all_that_it_owns(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three), trio.open_nursery() as nursery:
        ana, bo = await two.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        answers: list[tuple[Runtime, int]] = []
        slow, slower = halted(one, claim=2), halted(three, claim=2)
        nursery.start_soon(asked_at, one, bo, answers)
        await slow.reached.wait()  # it has been given the session
        while canonical_key(target) in slow.claims:  # until the node that gave it owns nothing any more
            await trio.lowlevel.checkpoint()
        nursery.start_soon(asked_at, three, bo, answers)
        await slower.reached.wait()  # it has the runtime, and found the session on its way
        slow.may_go_on.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        assert answers[0][1] == 409
        slower.may_go_on.set()
        while len(answers) < 2:
            await trio.lowlevel.checkpoint()
        back, code = answers[1]
        assert code == 200
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


async def test_a_session_that_is_being_given_is_asked_for_later_and_its_token_is_no_bad_one(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three), trio.open_nursery() as nursery:
        ana, bo = await two.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        answers: list[tuple[Runtime, int]] = []
        with commits_held(two):
            nursery.start_soon(asked_at, one, bo, answers)
            while two.state.sessions.by_runtime(bo.address) is not None:
                await trio.lowlevel.checkpoint()
            for rig in (two, three):
                assert (await re_opened(rig, bo))[1] == 503
            assert code_and_reason(await (await three.runtime()).open("bo")) == (409, "address-taken")
            assert answers == []
        while not answers:
            await trio.lowlevel.checkpoint()
        back, code = answers[0]
        assert code == 200
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


async def test_a_runtime_that_is_being_opened_is_opened_nowhere_else(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two), trio.open_nursery() as nursery:
        slow, answers, bo = halted(one, claim=1, is_after=True), list[tuple[int, str]](), await one.runtime()

        async def open_it() -> None:
            answers.append(code_and_reason(await bo.open("bo")))

        nursery.start_soon(open_it)
        await slow.reached.wait()  # it has claimed the runtime, and does not know that yet
        assert code_and_reason(await (await two.runtime()).open("bo")) == (409, "address-taken")
        slow.may_go_on.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        assert answers == [(200, "")]
        assert await bo.heard() == []


@pytest.mark.parametrize(
    ("stop", "reason"),
    [(lambda bus: bus.fence(1.0), "state-unavailable"), (lambda bus: bus.refuse_new(1.0), "draining")],
    ids=["fenced", "draining"],
)
async def test_a_node_that_opens_nothing_says_so_at_once_and_takes_no_session_from_another_one(
    tmp_path: Path, stop: Callable[[Bus], None], reason: str
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        halted(one, claim=1)  # its engine does not answer
        stop(one.bus)
        assert code_and_reason(await (await one.runtime()).open("eve")) == (503, reason)
        assert (await re_opened(one, bo))[1] == 503
        assert await bo.heard() == [], "it is connected as before"


async def test_two_connections_that_bring_a_session_to_one_node_at_once_have_one_session(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two), trio.open_nursery() as nursery:
        bo = await two.opened("bo")
        target = await bo.allocated()
        answers: list[tuple[Runtime, int]] = []
        slow = halted(one, claim=2)
        for _ in range(2):
            nursery.start_soon(asked_at, one, bo, answers)
        await slow.reached.wait()
        slow.may_go_on.set()
        while len(answers) < 2:
            await trio.lowlevel.checkpoint()
        assert [code for _, code in answers] == [200, 200]
        assert await answers[0][0].close_code() == 4001
        assert len(list(one.state.sessions)) == 1
        ana = await two.opened("ana")
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(answers[1][0], "message"))["to"] == target


async def test_a_session_that_could_not_be_claimed_comes_back_at_the_same_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        target = await bo.allocated()
        directory = node_of(one).directory
        directory.__class__ = Dying
        assert isinstance(directory, Dying)
        directory.error = HostError(Code.STATE_UNAVAILABLE, "the engine is away")
        assert (await re_opened(one, bo))[1] == 503
        directory.__class__ = MemoryDirectory  # type: ignore[assignment]
        back, code = await re_opened(one, bo)
        assert code == 200
        ana = await two.opened("ana")
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


async def test_a_session_on_its_way_is_for_its_runtime_with_its_token_until_its_grace_ends(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        bo = await rigs[1].opened("bo")
        await dies_while_a_session_comes(rigs[0], bo, node_of(rigs[0]).shared[Table.GIVEN_SESSIONS])
        node_of(rigs[0]).bus.leave()
        for rig in rigs[1:]:
            node_of(rig).dead.add("n1")
        thief = await rigs[2].runtime()
        thief.address, thief.token = "runtime://alpha.example/eve", bo.token
        reply = await thief.ask("re-open", "mn:/session", None, from_=thief.session_address)
        assert code_and_reason(reply) == (500, "bad-token")
        bo.token, token = "x" * len(bo.token), bo.token
        assert (await re_opened(rigs[2], bo))[1] == 500
        bo.token = token
        later = time.time() + rigs[2].state.transitions.rules.grace_seconds + 1.0
        rigs[2].clocks.now = lambda: later
        assert (await re_opened(rigs[2], bo))[1] == 500


async def test_a_session_of_a_node_that_died_is_brought_back_from_what_it_stored(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        target = await bo.allocated()
        session = two.state.sessions.get(two.state.sessions.by_runtime(bo.address) or 0)
        assert session is not None
        stored = move_out(two.state, session)
        node_of(two).bus.leave()
        back = await one.runtime()
        back.address, back.token = bo.address, bo.token
        address = f"{bo.address}/{bo.token}"
        reply = await back.ask("re-open", "mn:/session", None, from_=address)
        assert code_and_reason(reply) == (503, "not-connected"), "it may be alive"
        node_of(one).dead.add("n2")
        node_of(one).stored[bo.address] = stored
        assert (await back.ask("re-open", "mn:/session", None, from_=address))["body"]["code"] == 200
        ana = await one.opened("ana")
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


async def test_a_session_of_a_node_that_has_begun_again_while_it_was_claimed_stays_there(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        target = canonical_key(await bo.allocated())
        session = two.state.sessions.get(two.state.sessions.by_runtime(bo.address) or 0)
        assert session is not None
        node, directory = node_of(one), node_of(one).directory
        claims = {target: tuple(directory.claims[target])}
        node.stored[bo.address] = msgspec.structs.replace(move_out(two.state, session), claims=claims)
        node_of(two).bus.leave()
        node.dead.add("n2")
        directory.node_epochs["n2"] = 1  # it died under epoch 0
        back = await one.runtime()
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert code_and_reason(reply) == (503, "not-connected")
        assert {directory.claims[key].node for key in (target, canonical_key(bo.address))} == {"n2"}
        while node.shared[Table.GIVEN_SESSIONS]:  # what was put on its way is taken off
            await trio.lowlevel.checkpoint()
        assert one.state.sessions.by_runtime(bo.address) is None


async def test_a_session_of_a_dead_node_comes_back_with_two_claims_where_those_of_its_addresses_are_known(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        target = await bo.allocated()
        session = two.state.sessions.get(two.state.sessions.by_runtime(bo.address) or 0)
        assert session is not None
        directory = node_of(one).directory
        claim = directory.claims[canonical_key(target)]
        stored = msgspec.structs.replace(
            move_out(two.state, session), claims={canonical_key(target): (claim.node, claim.epoch)}
        )
        node_of(two).bus.leave()
        node_of(one).dead.add("n2")
        node_of(one).stored[bo.address] = stored
        asked: list[list[str]] = []
        claim_of = directory.claim

        async def noted(
            keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
        ) -> dict[str, Claim]:
            asked.append(sorted(keys))
            return await claim_of(keys, replaced, **more)

        directory.claim = noted  # type: ignore[method-assign]
        back = await one.runtime()
        back.address, back.token = bo.address, bo.token
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert reply["body"]["code"] == 200, reply
        own, both = canonical_key(bo.address), sorted([canonical_key(bo.address), canonical_key(target)])
        assert asked == [[own], both]
        assert directory.claims[canonical_key(target)].node == "n1"
        ana = await one.opened("ana")
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(back, "message"))["to"] == target


async def test_a_runtime_that_hangs_up_while_its_session_moves_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, _):
        gone = await one.runtime()
        await gone.say(a_message("open", runtime_address("bo"), "mn:/session", {}, id_=1))
        await gone.wire.cut()
        later = await one.runtime()
        with trio.fail_after(10):
            while (await later.open("bo"))["body"]["code"] != 200:
                await trio.lowlevel.checkpoint()


async def test_a_claim_of_a_node_that_died_before_it_stored_what_it_is_for_is_replaced(tmp_path: Path) -> None:
    lost, kept = "comm://alpha.example/lost", "comm://alpha.example/kept"
    async with cluster_rig(tmp_path) as (one, two):
        dead = node_of(two).directory
        await dead.claim([lost, kept])

        async def abandoned(claims: Mapping[str, Claim]) -> Collection[str]:
            return [key for key, claim in claims.items() if key == lost and claim.node == "n2"]

        node_of(one).claims.others.abandoned = abandoned
        ana = await one.opened("ana")
        assert (await ana.subscribed(lost))["body"]["code"] == 200
        assert code_and_reason(await ana.subscribed(kept)) == (409, "address-taken")
        owners = await dead.find([lost, kept])
        assert {key: owner.node for key, owner in owners.items()} == {lost: "n1", kept: "n2"}
        assert one.bus.counters[NodeCount.STORAGE_FAILURES] == 0


async def test_an_address_that_two_runtimes_claim_at_two_nodes_has_one_owner(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        contested = "comm://alpha.example/contested"
        assert (await ana.subscribed(contested))["body"]["code"] == 200
        assert code_and_reason(await bo.subscribed(contested)) == (409, "address-taken")
        assert one.state.owners.owner(contested) is not None
        assert two.state.owners.owner(contested) is None
        await bo.say(a_message("message", bo.address, contested, {"n": 1}))
        assert (await next_of(ana, "message"))["body"] == {"n": 1}
        assert (await ana.ask("unsubscribe", SM, {"resources": [contested]}))["body"]["code"] == 200


class Broken(MemoryDirectory):
    """A directory whose engine is away while `is_away`."""

    is_away = False

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        if self.is_away:
            raise HostError(Code.STATE_UNAVAILABLE, "the engine is away")
        return await super().claim(keys, replaced, **more)


async def test_while_the_directory_is_away_nothing_is_promised_and_its_claims_are_made_later(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana = await one.opened("ana")
        directory = node_of(one).directory
        directory.__class__ = Broken
        assert isinstance(directory, Broken)
        directory.is_away = True
        reply = await ana.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": 1}})
        assert code_and_reason(reply) == (503, "state-unavailable")
        fresh = await one.runtime()
        assert code_and_reason(await fresh.open("cy")) == (503, "state-unavailable")
        directory.is_away = False
        (owned,) = [row.url for sid in one.state.sessions for row in one.state.owners.owned(sid.sid)]
        with trio.fail_after(10):
            while canonical_key(owned) not in directory.claims:
                await trio.lowlevel.checkpoint()
        bo = await two.opened("bo")
        await bo.say(a_message("message", bo.address, owned, {"n": 1}))
        assert (await next_of(ana, "message"))["to"] == owned


class Slow(MemoryDirectory):
    """A directory that answers when it may."""

    may_answer: trio.Event

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        await self.may_answer.wait()
        return await super().claim(keys, replaced, **more)


async def test_a_repetition_promises_no_address_whose_claim_is_under_way(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        directory = node_of(two).directory
        directory.__class__ = Slow
        assert isinstance(directory, Slow)
        for name, is_taken in (("taken", True), ("free", False)):
            directory.may_answer = trio.Event()
            address = f"comm://alpha.example/{name}"
            if is_taken:
                assert (await ana.subscribed(address))["body"]["code"] == 200
            interest = {"resources": [address], "source": bo.address}
            for number in (1, 2):
                await bo.say(a_message("subscribe", bo.address, SM, interest, id_=number))
                assert await bo.heard() == []
            directory.may_answer.set()
            answers = {one["id"]: one["body"]["code"] for one in [await bo.next(), await bo.next()]}
            assert answers == ({1: 409, 2: 503} if is_taken else {1: 200, 2: 200})
            assert (two.state.owners.owner(address) is None) is is_taken


async def test_contents_that_cannot_be_read_cost_a_node_nothing_but_themselves(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        target, bus = await bo.allocated(), node_of(one).bus
        unreadable = [b"", b"m", b"m\0\0\0{", b"m\0\xff\xff[]", b"+\xff", b"?short", b"z"]
        for content in (*unreadable, b"!" + b"\0" * 8, b"?" + b"\0" * 8 + b"sx"):
            assert bus.send("n2", content) is None
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        assert (await next_of(bo, "message"))["body"] == {"n": 1}


async def test_a_message_for_a_runtime_that_has_moved_goes_on_once(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        target = await bo.allocated()
        await ana.say(a_message("message", ana.address, target, {"n": 1}))
        await next_of(bo, "message")
        node_of(one).directory.on_ended = lambda _: None  # n1 hears nothing of the move
        back = await three.runtime()
        back.address, back.token = bo.address, bo.token
        reply = await back.ask("re-open", "mn:/session", None, from_=f"{bo.address}/{bo.token}")
        assert reply["body"]["code"] == 200
        await ana.say(a_message("message", ana.address, target, {"n": 2}))
        assert (await next_of(back, "message"))["body"] == {"n": 2}


class SlowToFind(MemoryDirectory):
    """A directory that answers look-ups when it may."""

    may_answer: trio.Event

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        await self.may_answer.wait()
        return await super().find(keys)


async def until_true(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


async def test_who_waits_for_a_directory_that_is_silent_is_answered_with_the_first_look_up(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, cy, bo = await one.opened("ana"), await one.opened("cy"), await two.opened("bo")
        first, second = await bo.allocated(), await bo.allocated()
        routing, directory = node_of(one).parts.routing, node_of(one).directory
        is_asked, gives_up, look_ups = trio.Event(), trio.Event(), routing.look_ups

        async def find(_: Collection[str]) -> dict[str, Claim]:
            is_asked.set()
            await gives_up.wait()
            raise HostError(Code.STATE_UNAVAILABLE, "the engine is silent")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(directory_module, "FIND_SECONDS", 60.0)
            patch.setattr(directory, "find", find)
            await ana.say(a_message("read", ana.address, first, id_="r1"))
            await is_asked.wait()
            await cy.say(a_message("read", cy.address, second, id_="r2"))
            await until_true(lambda: routing._coming.statistics().current_buffer_used == 1)
            gives_up.set()
            for sender in (ana, cy):
                assert code_and_reason(await next_of(sender, "response")) == (503, "state-unavailable")
            assert routing.look_ups == look_ups + 1
        await ana.say(a_message("message", ana.address, first, {"n": 1}))
        assert (await next_of(bo, "message"))["body"] == {"n": 1}


async def test_a_flood_to_an_address_that_is_being_looked_up_waits_at_its_senders_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 1_000
    monkeypatch.setattr(directory_module, "FIND_SECONDS", 60.0)
    async with cluster_rig(tmp_path) as (one, two):
        senders = [await one.opened(name) for name in ("ana", "cy", "eve")]
        bo = await two.opened("bo")
        target, directory = await bo.allocated(), node_of(one).directory
        directory.__class__ = SlowToFind
        assert isinstance(directory, SlowToFind)
        directory.may_answer = trio.Event()
        got: dict[str, list[int]] = {sender.address: [] for sender in senders}

        async def flood(sender: Runtime) -> None:
            for number in range(count):
                await sender.say(a_message("message", sender.address, target, {"n": number, "rest": "x" * 200}))

        async with trio.open_nursery() as nursery:
            for sender in senders:
                nursery.start_soon(flood, sender)
            routing, sids = node_of(one).parts.routing, list(one.bus.send_queues.ports)
            await until_true(lambda: all(routing.is_pausing(sid) for sid in sids))
            bystander = await one.opened("dan")
            for _ in range(50):  # turns of all readers
                await bystander.heard()
            directory.may_answer.set()
            for _ in range(count * len(senders)):
                message = await next_of(bo, "message")
                body = message["body"]
                assert isinstance(body, dict)
                got[str(message["from"])].append(body["n"])
        assert got == {sender.address: list(range(count)) for sender in senders}


@pytest.mark.parametrize("name", ["*", "lamp-1/*", "lamp-1/events/*", "lamp-1/events/motion"])
async def test_events_of_a_thing_reach_its_subscribers_at_another_node_and_nobody_elses_do(
    tmp_path: Path, name: str
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, ana, bo = await one.opened("lamps"), await one.opened("ana"), await two.opened("bo")
        thing = "thing://alpha.example/lamps"
        lamp, motion = f"{thing}/lamp-1", f"{thing}/lamp-1/events/motion"
        assert (await agent.subscribed(thing))["body"]["code"] == 200
        assert (await bo.subscribed(f"{thing}/{name}"))["body"]["code"] == 200
        number = one.state.links.of_node("n2")
        while number not in one.state.listeners.index.targets(motion):
            await trio.lowlevel.checkpoint()
        body = {"class": "event", "value": 1}
        await ana.say(a_message("update", ana.address, motion, body))
        await agent.say(a_message("update", lamp, motion, {**body, "guarantee": "ack", "ttl": 60}, id_=7))
        event = await next_of(bo, "update")
        assert (event["id"], event["from"]) == (7, lamp)
        await bo.say(a_message("response", motion, lamp, {"code": 200}, id_=7))
        assert await bo.heard() == []
        two.bus.parked_actions.sweep(time.time() + GUARANTEED_RETRY_SECONDS + 1)
        assert await bo.heard() == [], "it has been acknowledged"
        assert two.bus.counters[NodeCount.UNACKNOWLEDGED_EVENTS] == 0


async def test_who_is_not_the_agent_reaches_the_agent_alone_from_another_node(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, bo, ana = await one.opened("lamps"), await one.opened("bo"), await two.opened("ana")
        thing = "thing://alpha.example/lamps"
        assert (await agent.subscribed(thing))["body"]["code"] == 200
        assert (await bo.subscribed(f"{thing}/*"))["body"]["code"] == 200
        await ana.say(a_message("update", ana.address, f"{thing}/lamp-1/properties/on", {"value": True}, id_=8))
        assert (await next_of(agent, "update"))["id"] == 8
        assert await bo.heard() == []


async def test_a_guaranteed_event_follows_its_subscriber_to_another_node_until_that_has_acknowledged_it(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        agent, bo = await one.opened("lamps"), await one.opened("bo")
        thing = "thing://alpha.example/lamps"
        assert (await agent.subscribed(thing))["body"]["code"] == 200
        assert (await bo.subscribed(f"{thing}/*"))["body"]["code"] == 200
        body = {"class": "event", "value": 1, "guarantee": "ack", "ttl": 60}
        event = a_message("update", f"{thing}/lamp-1", f"{thing}/lamp-1/events/motion", body, id_=7)
        await agent.say(event)
        assert (await next_of(bo, "update"))["id"] == 7
        back, code = await re_opened(two, bo)
        assert code == 200
        now = time.time()
        one.bus.parked_actions.sweep(now + GUARANTEED_RETRY_SECONDS + 1)
        two.bus.parked_actions.sweep(now + GUARANTEED_RETRY_SECONDS + 1)
        assert (await next_of(back, "update"))["id"] == 7
        await back.say(a_message("response", event["to"], event["from"], {"code": 200}, id_=7))
        assert await back.heard() == []
        two.bus.parked_actions.sweep(now + 3 * GUARANTEED_RETRY_SECONDS)
        assert await back.heard() == []
        counts = [rig.bus.counters[NodeCount.UNACKNOWLEDGED_EVENTS] for rig in (one, two)]
        assert counts == [0, 0]
        assert await agent.heard() == []
