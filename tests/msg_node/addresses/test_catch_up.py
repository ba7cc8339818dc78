"""Observers that lose their line and come back: what they missed, over real sockets."""

from __future__ import annotations

from pathlib import Path

from msg_node.addresses.core.missed import Missed
from tests.support.runtime_rig import (
    FOREIGN,
    FOREIGN_SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)


def keep_missed(rig: RuntimeRig, *, messages: int = 50, seconds: float = 60.0) -> None:
    rig.bus.absences.keep(Missed(seconds=seconds, messages=messages))


async def cut(rig: RuntimeRig, runtime: Runtime, number: int = 1) -> None:
    """Lose a runtime's line, and wait until the node knows."""
    await runtime.wire.cut()
    await rig.until("sessions lost", number)


async def back(rig: RuntimeRig, runtime: Runtime) -> tuple[Runtime, list[Json]]:
    """The same runtime over a new line, and all that it gets with the answer that says so, in order."""
    again = await rig.runtime()
    again.address, again.token = runtime.address, runtime.token
    await again.say(a_message("re-open", runtime.session_address, "mn:/session", id_="back"))
    return again, await again.heard()


def versions(messages: list[Json]) -> list[object]:
    return [one["body"]["version"] for one in messages if "version" in one.get("body", {})]


def change(room: str, version: int) -> Json:
    return a_message("update", room, f"{room}/changes", {"version": version, "value": version}, id_=version)


async def test_an_observer_that_is_back_gets_what_it_missed_after_its_answer_and_before_what_is_new(
    tmp_path: Path,
) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await bob.say(change(room, 1))
        assert versions([await ana.next()]) == [1]
        await cut(rig, ana)
        await bob.say(*(change(room, n) for n in range(2, 5)))
        assert await bob.heard() == []
        again, first = await back(rig, ana)
        assert first[0]["id"] == "back"
        assert versions(first) == [2, 3, 4]
        await bob.say(change(room, 5))
        assert versions([await again.next()]) == [5]
        assert rig.counters["changes caught up"] == 3
        assert rig.counters["gaps told"] == 0


async def test_changes_between_binding_and_answer_do_not_overtake_what_was_missed(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await cut(rig, ana)
        await bob.say(change(room, 1))
        await bob.heard()
        sid = rig.state.sessions.by_runtime(ana.address)
        assert sid is not None
        again = await rig.runtime()
        again.address = ana.address
        promised = []
        submit = rig.store.submit
        rig.store.submit = lambda *args, **more: promised.append((args, more))  # type: ignore[method-assign]
        await again.say(a_message("re-open", ana.session_address, "mn:/session", id_="back"))
        await rig.until("sessions re-opened")
        await bob.say(change(room, 2))
        await bob.heard()
        rig.store.submit = submit  # type: ignore[method-assign]
        for args, more in promised:
            submit(*args, **more)
        got = [await again.next() for _ in range(3)]
        assert got[0]["id"] == "back"
        assert versions(got) == [1, 2]
        await bob.say(change(room, 3))
        assert versions([await again.next()]) == [3]


async def test_a_window_that_is_opened_later_is_vague_about_those_who_were_away_and_no_others(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        bob, ana, cy = await rig.opened("bob"), await rig.opened("ana"), await rig.opened("cy")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await cy.subscribed(f"{room}/changes")
        await cut(rig, ana)
        keep_missed(rig)
        await cut(rig, cy, 2)
        _, of_ana = await back(rig, ana)
        _, of_cy = await back(rig, cy)
        assert [len(of_ana), len(of_cy)] == [2, 1]  # the answer, and that there is a gap


async def test_who_comes_back_while_the_window_is_closed_is_not_left_waiting(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await cut(rig, ana)
        await bob.say(change(room, 1))
        await bob.heard()
        arriving = rig.bus.absences.arriving

        def close_the_window(sid: int) -> None:
            arriving(sid)
            rig.bus.absences.keep(None)

        rig.bus.absences.arriving = close_the_window  # type: ignore[method-assign]
        again, _ = await back(rig, ana)
        await bob.say(change(room, 2))
        assert versions([await again.next()]) == [2]


async def test_more_than_the_window_holds_is_a_gap_that_is_reported(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig, messages=2)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await cut(rig, ana)
        await bob.say(*(change(room, n) for n in range(4)))
        await bob.heard()
        _, got = await back(rig, ana)
        assert versions(got) == [2, 3]
        assert got[-1]["from"] == "mn:/session"
        assert got[-1]["to"] == f"{ana.address}/status"
        assert got[-1]["body"] == {"value": "missed", "resources": [room]}


async def test_children_that_one_observer_acknowledged_reach_the_one_that_was_away(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana, eve = await rig.opened("bob"), await rig.opened("ana"), await rig.opened("eve")
        room = await bob.allocated()
        for runtime in (ana, eve):
            await runtime.subscribed(f"{room}/children/messages")
        await cut(rig, ana)
        child = f"{room}/children/messages"
        await bob.say(a_message("create", bob.address, child, {"value": "hello"}, id_=7))
        assert (await eve.next())["body"] == {"value": "hello"}
        again, got = await back(rig, ana)
        assert [one["body"] for one in got if one["type"] == "create"] == [{"value": "hello"}]
        await again.say(a_message("response", child, bob.address, {"code": 200}, id_=7))
        assert (await bob.next())["body"]["code"] == 200


async def test_what_its_sender_heard_nobody_got_is_not_handed_over_later(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/children/messages")
        await cut(rig, ana)
        refused = await bob.ask("create", f"{room}/children/messages", {"value": "hello"})
        assert code_and_reason(refused) == (503, "not-connected")
        _, got = await back(rig, ana)
        assert [one["id"] for one in got] == ["back"]


async def test_changes_of_an_object_of_another_domain_are_caught_up_as_well(tmp_path: Path) -> None:
    room = f"comm://{FOREIGN}/room"
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        ana = await rig.opened("ana")
        await ana.say(a_message("subscribe", ana.address, FOREIGN_SM, {"resources": [f"{room}/changes"]}, id_=1))
        await ana.heard()
        ((_, upstream),) = rig.domains.sent
        assert upstream.id is not None
        reply = a_message("response", FOREIGN_SM, upstream.from_, {"code": 200}, id_=int(upstream.id))
        assert rig.bus.from_links.take(FOREIGN, [parsed(reply)]) == [None]
        assert (await ana.next())["body"]["code"] == 200
        await cut(rig, ana)
        assert rig.bus.from_links.take(FOREIGN, [parsed(change(room, 1))]) == [None]
        _, got = await back(rig, ana)
        assert versions(got) == [1]


async def test_a_session_that_closed_is_owed_nothing(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
        await ana.close_code()
        await bob.say(change(room, 1))
        await bob.heard()
        again = await rig.opened("ana")
        assert await again.heard() == []


async def test_after_a_restart_the_node_says_that_it_does_not_know(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
    async with runtime_rig(tmp_path) as rig:
        keep_missed(rig)
        _, got = await back(rig, ana)
        assert got[0]["id"] == "back"
        assert [one["body"] for one in got[1:]] == [{"value": "missed", "resources": [], "others": True}]
        _, nothing = await back(rig, bob)
        assert [one["id"] for one in nothing] == ["back"]


async def test_without_the_setting_nothing_is_kept(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        bob, ana = await rig.opened("bob"), await rig.opened("ana")
        room = await bob.allocated()
        await ana.subscribed(f"{room}/changes")
        await cut(rig, ana)
        await bob.say(change(room, 1))
        await bob.heard()
        _, got = await back(rig, ana)
        assert [one["id"] for one in got] == ["back"]
