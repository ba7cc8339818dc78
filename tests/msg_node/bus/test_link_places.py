"""The link to another domain is at one node of ours: the others send through it, and it moves only when it is down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from federation.links.link_context import Refusal
from msg_node.bus import link_claims
from msg_node.bus.requests_elsewhere import MORE_SECONDS
from msg_node.cluster.directory import Claim
from protofly.codec import body_members
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS, USER_WAITING_PER_SENDER
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import (
    FOREIGN,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
)

MARK = 1_000
ZOE = f"runtime://{FOREIGN}/zoe"


async def sent_by(rig: RuntimeRig, count: int) -> list[int]:
    """The numbers in the messages that a node has sent over its links, once there are so many."""
    with trio.fail_after(10):
        while len(rig.domains.sent) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
    return [one["body"]["n"] for one in rig.domains.take()]


async def say_from(runtime: Runtime, numbers: range) -> None:
    for number in numbers:
        await runtime.say(a_message("message", runtime.address, ZOE, {"n": number}))


async def test_the_first_node_that_needs_a_link_has_it_and_the_others_send_through_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(20))
        assert await sent_by(two, 20) == list(range(20))
        await say_from(ana, range(20))
        assert await sent_by(two, 20) == list(range(20))
        assert one.domains.sent == []

        # What the link refuses is answered where its sender is.
        two.domains.refusals[FOREIGN] = Refusal(Code.OVERLOAD)
        assert code_and_reason(await ana.ask("read", ZOE)) == (503, "overload")
        two.domains.refusals.clear()

        # A domain that our policy does not talk to is not looked for.
        one.domains.refusals["barred.example"] = Refusal(Code.DOMAIN_BLOCKED)
        assert code_and_reason(await ana.ask("read", "runtime://barred.example/x")) == (403, "domain-blocked")
        assert node_of(one).places.known() == {FOREIGN: "n2"}


async def test_a_connection_takes_a_link_that_is_down_elsewhere_and_none_that_is_up(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        with pytest.raises(PeerError) as refused:
            await node_of(one).places.take(FOREIGN)
        assert refused.value.code is Code.LINK_ELSEWHERE

        two.domains.away.add(FOREIGN)
        two.domains.sent.append((FOREIGN, parsed(a_message("message", bo.address, ZOE))))  # so that there is a link
        await node_of(one).places.take(FOREIGN)
        assert two.domains.take()
        assert two.domains.given_away == [FOREIGN]
        [(domain, moved)] = one.domains.taken_over
        assert (domain, moved.seen) == (FOREIGN, [("f" * 32, 7)])
        await node_of(one).places.take(FOREIGN)
        assert two.domains.given_away == [FOREIGN]
        await say_from(bo, range(5))
        await say_from(ana, range(5, 6))
        assert sorted(await sent_by(one, 6)) == list(range(6))
        assert two.domains.sent == []


async def test_the_link_of_a_node_that_has_died_is_claimed_by_who_needs_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        await say_from(ana, range(1))
        await sent_by(two, 1)
        node_of(two).bus.leave()
        assert code_and_reason(await ana.ask("read", ZOE)) == (503, "not-connected")
        node_of(one).dead.add("n2")
        with trio.fail_after(10):
            while not one.domains.sent:
                await say_from(ana, range(7, 8))
                await trio.sleep(0.05)
        assert node_of(one).directory.claims[f"link {FOREIGN}"].node == "n1"


async def test_a_request_that_a_node_took_along_when_it_died_is_answered_once_and_others_not_again(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        await ana.say(a_message("read", ana.address, ZOE, {"n": 1}, id_=41))
        await ana.say(a_message("read", ana.address, ZOE, {"n": 2}, id_=42))
        await sent_by(two, 2)
        reply = parsed(a_message("response", ZOE, ana.address, {"code": 200}, id_=42))
        two.bus.from_links.take(FOREIGN, [reply])
        assert (await ana.next())["id"] == 42
        links = node_of(one).links
        links.clock = lambda: time.monotonic() + REQUEST_TTL_SECONDS + MORE_SECONDS
        late = await ana.next()
        assert (late["id"], code_and_reason(late)) == (41, (504, "timeout"))
        assert code_and_reason(await ana.ask("read", runtime_address("nobody"))) == (
            404,
            "no-route",
        )  # and nothing else


async def test_nodes_that_need_a_link_at_the_same_time_agree(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        people = [await rig.opened(f"bo{number}") for number, rig in enumerate(rigs)]
        async with trio.open_nursery() as nursery:
            for one in people:
                nursery.start_soon(say_from, one, range(10))
        with trio.fail_after(10):
            while sum(len(rig.domains.sent) for rig in rigs) < 30:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert sorted(len(rig.domains.sent) for rig in rigs) == [0, 0, 30]


async def test_messages_of_three_nodes_keep_their_order_while_the_link_moves(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        people = [await rig.opened(f"bo{number}") for number, rig in enumerate(rigs)]
        sent = rigs[0].domains.sent
        for rig in rigs:
            rig.domains.sent = sent  # what the other domain gets, by whatever node
        await say_from(people[0], range(1))

        async def talk(runtime: Runtime) -> None:
            await say_from(runtime, range(1, 201))

        async def move() -> None:
            for before, after in ((0, 1), (1, 2), (2, 0), (0, 2)):
                rigs[before].domains.away.add(FOREIGN)
                await node_of(rigs[after]).places.take(FOREIGN)
                rigs[before].domains.away.discard(FOREIGN)
                assert node_of(rigs[after]).places.known()[FOREIGN] == node_of(rigs[after]).name

        async with trio.open_nursery() as nursery:
            for person in people:
                nursery.start_soon(talk, person)
            nursery.start_soon(move)
        with trio.fail_after(10):
            while len(sent) < 601:  # noqa: ASYNC110
                await trio.sleep(0.01)
        said = [(message.from_, body_members(message.body)["n"]) for _, message in sent]
        for person in people:
            assert [n for who, n in said if who == person.address and n] == list(range(1, 201))


async def test_while_a_node_waits_for_a_mark_what_others_send_it_waits_behind_and_the_link_is_not_given(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await say_from(ana, range(1))
        await sent_by(two, 2)
        here, moves = node_of(two).places, node_of(one).places.moves
        here.held.hold(FOREIGN, MARK)  # something older is under way back to this node
        await say_from(ana, range(1, 40))
        behind = moves.await_mark(FOREIGN, "n2")
        await moves.await_mark("", "n2").wait()
        assert (two.domains.sent, behind.is_set()) == ([], False)

        two.domains.away.add(FOREIGN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node_of(one).places.take, FOREIGN)
            await moves.await_mark("", "n2").wait()
            assert two.domains.given_away == []
            here.released(FOREIGN, MARK)
            assert await sent_by(two, 39) == list(range(1, 40))
        await behind.wait()
        assert two.domains.given_away == [FOREIGN]


async def test_more_than_may_wait_of_one_sender_goes_on_rather_than_being_lost(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await say_from(ana, range(1))
        await sent_by(two, 2)
        node_of(two).places.held.hold(FOREIGN, MARK)
        await say_from(ana, range(USER_WAITING_PER_SENDER + 1))
        assert await sent_by(two, 1) == [USER_WAITING_PER_SENDER]
        node_of(two).places.released(FOREIGN, MARK)
        assert await sent_by(two, USER_WAITING_PER_SENDER) == list(range(USER_WAITING_PER_SENDER))


async def test_what_comes_for_a_link_that_was_here_follows_it_by_the_node_that_was_given_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        ana = await rigs[0].opened("ana")
        await say_from(ana, range(1))
        await sent_by(rigs[0], 1)
        places = [node_of(rig).places for rig in rigs]
        for before, after in ((0, 1), (1, 2)):
            rigs[before].domains.away.add(FOREIGN)
            await places[after].take(FOREIGN)
        places[0].want(FOREIGN)
        with trio.fail_after(10):
            while places[0].known()[FOREIGN] != "n3":  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert [one.place_of_mark(FOREIGN) for one in places] == ["n2", "n3", "n3"]

        # Back at the first node, or when the node in between is gone, there is nothing to follow.
        rigs[2].domains.away.add(FOREIGN)
        await places[0].take(FOREIGN)
        assert places[0].place_of_mark(FOREIGN) == "n1"
        node_of(rigs[0]).bus.leave()
        with trio.fail_after(10):
            while "n1" in places[2].moves.bus.connected:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert places[1].place_of_mark(FOREIGN) == "n3"


async def test_a_node_that_is_given_a_link_of_which_nothing_exists_knows_it_before_messages_for_it_come(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        await node_of(two).places.take(FOREIGN)  # claimed, and nothing was sent yet
        assert not node_of(two).places.moves.give(FOREIGN, "n1")
        node_of(two).places.look_again(FOREIGN)
        with trio.fail_after(10):
            while node_of(one).places.known().get(FOREIGN) != "n1":  # noqa: ASYNC110
                await trio.sleep(0.01)
        await say_from(bo, range(3))
        assert await sent_by(one, 3) == list(range(3))


async def test_a_node_that_has_given_a_link_does_not_believe_its_own_claim_while_the_other_lives_to_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_claims, "CLAIM_SECONDS", 1_000.0)
    async with cluster_rig(tmp_path) as (one, two):
        places, directory = node_of(two).places, node_of(one).directory
        await places.take(FOREIGN)
        settled = trio.Event()

        async def never(*_: Any, **__: Any) -> dict[str, Claim]:
            await trio.sleep_forever()

        directory.claim = never  # type: ignore[method-assign]
        places.on_settled = lambda *_: settled.set()
        places._give(FOREIGN, "n1")
        places.want(FOREIGN)
        with trio.fail_after(10):
            await settled.wait()
            assert places.known() == {FOREIGN: "n1"}

            # Who has died claims nothing any more.
            node_of(two).dead.add("n1")
            places.want(FOREIGN)
            while places.known() != {FOREIGN: "n2"}:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_a_link_whose_taker_is_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        two.domains.sent.append((FOREIGN, parsed(a_message("message", bo.address, ZOE))))
        moves = node_of(two).places.moves
        assert moves.give(FOREIGN, "n1")
        node_of(one).bus.leave()  # before anything was handed on
        two.bus.send_queues.wake()
        with trio.fail_after(10):
            while not two.domains.needed:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert (len(two.domains.taken_over), node_of(two).places.known()) == (1, {FOREIGN: "n2"})

        # A node that is away before: nobody has it, and who waits is answered.
        assert moves.give(FOREIGN, "n1")
        assert [code for _, code in two.domains.undone] == [Code.NOT_CONNECTED]


async def test_a_link_that_a_node_may_not_have_is_answered_there(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        bo = await two.opened("bo")
        await say_from(bo, range(1))
        with trio.fail_after(10):
            while not two.domains.sent:  # noqa: ASYNC110
                await trio.sleep(0.01)
        one.domains.takes_over = PeerError(Code.DOMAIN_BLOCKED)
        node_of(two).places.moves.give(FOREIGN, "n1")
        two.bus.send_queues.wake()
        with trio.fail_after(10):
            while not one.domains.undone:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert [code for _, code in one.domains.undone] == [Code.DOMAIN_BLOCKED]


async def test_a_node_that_stops_gives_its_links_to_others_and_says_when_they_have_them(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        with trio.fail_after(10):
            while not two.domains.sent:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await say_from(ana, range(1))
        with trio.fail_after(10):
            while len(two.domains.sent) < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
        await node_of(two).places.give_all()
        assert [domain for domain, _ in one.domains.taken_over] == [FOREIGN]
        await say_from(bo, range(1, 4))
        await say_from(ana, range(1, 4))
        assert sorted(await sent_by(one, 6)) == [1, 1, 2, 2, 3, 3]
        with trio.fail_after(10):
            while node_of(one).directory.claims[f"link {FOREIGN}"].node != "n1":  # noqa: ASYNC110
                await trio.sleep(0.01)
        await node_of(two).places.moves.wait_taken()


async def test_a_mark_for_a_link_of_nobody_or_a_node_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        moves = node_of(one).places.moves
        with trio.fail_after(10):
            await moves.await_mark(FOREIGN, "n2").wait()
        node_of(two).bus.leave()
        assert moves.await_mark(FOREIGN, "n2").is_set()
        with pytest.raises(PeerError):
            moves.mark_came(b"w{")
