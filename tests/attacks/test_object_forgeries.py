"""Somebody who speaks in a data object that is not theirs: changes, children, acknowledgements, every type there is.

Each attack goes over a socket or a link; afterwards no observer has heard it, the reporter still reports, and observers
still say what is theirs to say. Source: message specification, section 9.8.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from protofly.errors import Code
from tests.support.runtime_rig import (
    FOREIGN,
    FOREIGN_SM,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

TYPES: Final = (
    *("create", "update", "delete", "event", "response", "read", "execute", "subscribe", "unsubscribe"),
    *("forward", "open", "close", "ping", "pong", "invite", "UPDATE", "x"),
)
THIRD: Final = "gamma.example"


class Scene(NamedTuple):
    """A room of `ana`, whom `bo`, `cy` and a domain observe; `eve` does not."""

    rig: RuntimeRig
    ana: Runtime
    bo: Runtime
    cy: Runtime
    eve: Runtime
    room: str


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with runtime_rig(tmp_path) as rig:
        ana, bo, cy, eve = [await rig.opened(name) for name in ("ana", "bo", "cy", "eve")]
        room = await ana.allocated()
        observed = [f"{room}/changes", f"{room}/children/messages", f"{room}/messages"]
        for observer in (bo, cy):
            await observer.subscribed(*observed)
        source = f"runtime://{FOREIGN}/mn"
        wish = a_message("subscribe", f"{source}/sm", SM, {"resources": observed, "source": source}, id_=1)
        rig.bus.from_links.take(FOREIGN, [parsed(wish)])
        yield Scene(rig, ana, bo, cy, eve, room)


def abroad(scene: Scene) -> list[Json]:
    """What observers abroad were sent since the last call."""
    return [one for one in scene.rig.domains.take() if one["to"] in places(scene.room)]


async def silence(scene: Scene, *, of: tuple[Runtime, ...] = ()) -> None:
    """No observer hears anything, here or abroad."""
    for observer in of or (scene.bo, scene.cy):
        assert await observer.heard() == []
    assert abroad(scene) == []


async def all_is_well(scene: Scene) -> None:
    """The reporter reports, and an observer says something, and all who observe hear both."""
    ana, bo, cy, room = scene.ana, scene.bo, scene.cy, scene.room
    await ana.say(a_message("update", room, f"{room}/changes", {"attribute": "topic", "value": "true"}))
    await ana.heard()
    await bo.say(a_message("create", bo.address, f"{room}/children/messages", {"resource": f"{bo.address}#1"}))
    assert [one["to"] for one in await bo.heard()] == [f"{room}/changes"]
    both = [f"{room}/changes", f"{room}/children/messages"]
    assert [one["to"] for one in await cy.heard()] == both
    assert [one["to"] for one in abroad(scene)] == both


def places(room: str) -> tuple[str, ...]:
    return f"{room}/changes", f"{room}/children/messages", f"{room}/messages"


@pytest.mark.parametrize("type_", TYPES)
async def test_a_runtime_that_does_not_observe_reaches_no_observer(scene: Scene, type_: str) -> None:
    eve = scene.eve
    for place in places(scene.room):
        for body in ({"value": "forged"}, {"resource": f"{scene.bo.address}#1"}, {"resource": f"{eve.address}#1"}):
            for id_ in (None, 5):
                await eve.say(a_message(type_, eve.address, place, body, id_=id_))
    await eve.heard()
    await silence(scene)
    await all_is_well(scene)


@pytest.mark.parametrize("type_", TYPES)
async def test_an_observer_rewrites_nobody_s_child_and_changes_nothing(scene: Scene, type_: str) -> None:
    bo, cy, room = scene.bo, scene.cy, scene.room
    for body in ({"resource": f"{cy.address}#1", "value": "forged"}, {"resource": f"{scene.ana.address}#1"}):
        for place in places(room):
            await bo.say(a_message(type_, bo.address, place, body, id_=5))
    await bo.heard()
    await silence(scene, of=(cy,))
    await all_is_well(scene)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("domain", [FOREIGN, THIRD])
async def test_a_domain_is_the_observer_that_it_is_and_no_more(scene: Scene, type_: str, domain: str) -> None:
    sender = f"hyperty://{domain}/mallory"
    for place in places(scene.room):
        for resource in (f"hyperty://{domain}/ben#1", f"{scene.bo.address}#1"):
            forged = a_message(type_, sender, place, {"resource": resource, "value": "forged"}, id_=5)
            (code,) = scene.rig.bus.from_links.take(domain, [parsed(forged)])
            assert code in (Code.NOT_OWNER, None)
    await silence(scene)
    await all_is_well(scene)


async def test_who_is_refused_is_notified_and_an_event_without_id_is_dropped(scene: Scene) -> None:
    eve, room = scene.eve, scene.room
    for type_, place in (("invite", "changes"), ("update", "children/messages"), ("create", "children/messages")):
        refused = await eve.ask(type_, f"{room}/{place}", {"resource": f"{scene.bo.address}#1"})
        assert code_and_reason(refused) == (403, "not-owner")
    await eve.say(a_message("event", eve.address, f"{room}/changes"))
    assert await eve.heard() == []
    await silence(scene)


async def test_questions_reach_the_reporter_alone_and_are_answered(scene: Scene) -> None:
    ana, bo, eve, room = scene.ana, scene.bo, scene.eve, scene.room
    for asker in (eve, bo):
        await asker.say(a_message("read", asker.address, f"{room}/changes", id_=9))
        (asked,) = await heard_after(ana, asker)
        await ana.say(a_message("response", asked["to"], asked["from"], {"code": 200}, id_=9))
        assert (await asker.next())["body"]["code"] == 200
    await silence(scene, of=(scene.cy,))


async def heard_after(one: Runtime, other: Runtime) -> list[Json]:
    """What one runtime has heard once the node has read everything of another."""
    await other.heard()
    return await one.heard()


async def test_an_object_stays_silent_after_its_reporter_has_gone(scene: Scene) -> None:
    ana, eve, room = scene.ana, scene.eve, scene.room
    await ana.say(a_message("close", ana.address, "mn:/session"))
    await scene.rig.until("sessions closed")
    for type_ in TYPES:
        await eve.say(a_message(type_, eve.address, f"{room}/changes", {"value": "forged"}, id_=5))
    await eve.heard()
    await silence(scene)


@pytest.mark.parametrize("type_", TYPES)
async def test_nobody_here_forges_the_news_of_an_object_abroad(scene: Scene, type_: str) -> None:
    rig, bo, eve, room = scene.rig, scene.bo, scene.eve, f"comm://{FOREIGN}/room"
    await bo.say(a_message("subscribe", bo.address, FOREIGN_SM, {"resources": list(places(room))}, id_=1))
    await bo.heard()
    (upstream,) = [one for one in rig.domains.take() if one["to"] == FOREIGN_SM]
    granted = a_message("response", upstream["to"], upstream["from"], {"code": 200}, id_=upstream["id"])
    rig.bus.from_links.take(FOREIGN, [parsed(granted)])
    assert (await bo.next())["body"]["code"] == 200
    for place in places(room):
        for resource in (f"{eve.address}#1", f"hyperty://{FOREIGN}/ben#1"):
            await eve.say(a_message(type_, eve.address, place, {"resource": resource}, id_=5))
            forged = a_message(type_, f"hyperty://{THIRD}/m", place, {"resource": resource}, id_=5)
            rig.bus.from_links.take(THIRD, [parsed(forged)])
    await eve.heard()
    assert await bo.heard() == []
    true = a_message("update", room, f"{room}/changes", {"value": "true"})
    assert rig.bus.from_links.take(FOREIGN, [parsed(true)]) == [None]
    assert [one["body"]["value"] for one in await bo.heard()] == ["true"]


@pytest.mark.parametrize("suffix", ["status", "registration"])
@pytest.mark.parametrize("type_", TYPES)
async def test_nobody_forges_the_state_of_somebody_else_s_entity(scene: Scene, type_: str, suffix: str) -> None:
    rig, ana, bo, eve = scene.rig, scene.ana, scene.bo, scene.eve
    for entity in (scene.room, ana.address):
        await bo.subscribed(f"{entity}/{suffix}")
        await eve.say(a_message(type_, eve.address, f"{entity}/{suffix}", {"value": "disconnected"}, id_=5))
        forged = a_message(type_, f"hyperty://{FOREIGN}/m", f"{entity}/{suffix}", {"value": "disconnected"}, id_=5)
        rig.bus.from_links.take(FOREIGN, [parsed(forged)])
    await eve.heard()
    assert await bo.heard() == []
