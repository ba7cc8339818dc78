"""Observers whom the reporter of an object has taken off, and who want to go on: to hear, to write, to come back.

In both forms (`unsubscribe` to the observer, and at `/sm` in its name), here and over a link, through catch-up,
repeated events, restart and requests that a friendly reporter answers with 200. Source: feature row DS-13.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from msg_node.addresses.core import expulsions
from msg_node.addresses.core.expulsions import ExpulsionRow, Expulsions
from msg_node.addresses.core.missed import Missed
from msg_node.kernel.changes import Journal
from msg_node.kernel.rules import Rules
from protofly.errors import Code, PeerError
from tests.support.runtime_rig import (
    FOREIGN,
    FOREIGN_SM,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

FAR_ROOM: Final = f"comm://{FOREIGN}/room"
BEN: Final = f"hyperty://{FOREIGN}/ben"


class Scene(NamedTuple):
    """A room of `ana`; `bo` and `cy` observe it, `bo` as a hyperty."""

    rig: RuntimeRig
    ana: Runtime
    bo: Runtime
    cy: Runtime
    room: str
    hyperty: str

    @property
    def places(self) -> list[str]:
        return [f"{self.room}/changes", f"{self.room}/children/m", f"{self.room}/m"]


@asynccontextmanager
async def staged(folder: Path, rules: Rules | None = None) -> AsyncIterator[Scene]:
    async with runtime_rig(folder, rules=rules) as rig:
        ana, bo, cy = [await rig.opened(name) for name in ("ana", "bo", "cy")]
        scene = Scene(rig, ana, bo, cy, await ana.allocated(), await bo.allocated("hyperty"))
        for observer in (bo, cy):
            await accepted(scene, observer)
            reply = await observer.subscribed(*scene.places)
            assert code_and_reason(reply) == (200, "")
        yield scene


@pytest.fixture(params=[False, True], ids=["open", "by consent"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with staged(tmp_path, Rules(require_consent=request.param)) as made:
        yield made


async def accepted(scene: Scene, observer: Runtime, *, type_: str = "subscribe", code: int = 200) -> None:
    """An observer asks the reporter, who answers."""
    asking = a_message(type_, f"{observer.address}/sm", f"{scene.room}/subscription", {"resource": scene.room}, id_=70)
    await observer.say(asking)
    await observer.heard()
    (asked,) = await scene.ana.heard()
    await scene.ana.say(a_message("response", asked["to"], asked["from"], {"code": code}, id_=70))
    await scene.ana.heard()
    assert [one["body"]["code"] for one in await observer.heard()] == [code]


async def expelled(scene: Scene, form: str) -> None:
    """The reporter takes bo off; bo is notified."""
    if form == "message":
        body: Json = {"resource": scene.room}
        await scene.ana.say(a_message("unsubscribe", scene.ana.address, scene.hyperty, body, id_=71))
        await scene.ana.heard()
    else:
        source = scene.hyperty if form == "sm, hyperty" else scene.bo.address
        body = {"resources": scene.places, "source": source}
        assert code_and_reason(await scene.ana.ask("unsubscribe", SM, body)) == (200, "")
    (notice,) = await scene.bo.heard()
    assert (notice["type"], notice["body"]["resource"]) == ("unsubscribe", scene.room)


async def spoken(scene: Scene) -> tuple[list[str], list[str]]:
    """The reporter and cy speak; what bo and cy hear."""
    ana, cy, room = scene.ana, scene.cy, scene.room
    await ana.say(a_message("update", room, f"{room}/changes", {"value": 1, "guarantee": "ack"}, id_=80))
    await ana.heard()
    await cy.say(a_message("create", cy.address, f"{room}/children/m", {"resource": f"{cy.address}#1"}))
    heard = [one["to"] for one in await cy.heard()]
    return [one["to"] for one in await scene.bo.heard()], heard


FORMS: Final = ["message", "sm, hyperty", "sm, runtime"]


@pytest.mark.parametrize("form", FORMS)
async def test_who_is_taken_off_hears_says_and_gets_nothing_more(scene: Scene, form: str) -> None:
    bo, room = scene.bo, scene.room
    await expelled(scene, form)
    assert await spoken(scene) == ([], [f"{room}/changes"])
    for place in scene.places:
        assert code_and_reason(await bo.subscribed(place)) == (403, "policy")
        mine = {"resource": f"{bo.address}#1", "value": "still here"}
        for type_ in ("create", "update", "event"):
            await bo.say(a_message(type_, bo.address, place, mine, id_=90))
    asked = await bo.ask("subscribe", SM, {"resource": room, "childrenResources": ["m"], "source": scene.hyperty})
    assert code_and_reason(asked) in [(403, "policy"), (200, "")]
    await bo.heard()
    assert await spoken(scene) == ([], [f"{room}/changes"])


@pytest.mark.parametrize("form", FORMS)
async def test_who_is_accepted_anew_hears_again(scene: Scene, form: str) -> None:
    await expelled(scene, form)
    await accepted(scene, scene.bo)
    assert code_and_reason(await scene.bo.subscribed(*scene.places)) == (200, "")
    heard = [f"{scene.room}/changes", f"{scene.room}/children/m"]
    assert await spoken(scene) == (heard, heard[:1])


@pytest.mark.parametrize(("type_", "code"), [("unsubscribe", 200), ("read", 200), ("execute", 200), ("subscribe", 403)])
async def test_no_other_answer_of_the_reporter_lets_anybody_in(scene: Scene, type_: str, code: int) -> None:
    await expelled(scene, "message")
    await accepted(scene, scene.bo, type_=type_, code=code)
    assert code_and_reason(await scene.bo.subscribed(*scene.places[:1])) == (403, "policy")


async def test_a_new_session_or_a_restart_lets_nobody_in(tmp_path: Path) -> None:
    async with staged(tmp_path) as scene:
        await expelled(scene, "message")
        token, mine = scene.ana.session_address, scene.bo.address
        await scene.bo.say(a_message("close", mine, SESSION))
        await scene.rig.until("sessions closed")
        bo = await scene.rig.opened("bo")
        assert code_and_reason(await bo.subscribed(scene.places[0])) == (403, "policy")
        places = scene.places
    async with runtime_rig(tmp_path) as rig:
        ana, bo = await rig.runtime(), await rig.opened("bo")
        assert code_and_reason(await ana.ask("re-open", SESSION, from_=token)) == (200, "")
        assert code_and_reason(await bo.subscribed(places[0])) == (403, "policy")


async def test_what_waited_for_an_absent_observer_is_not_given_to_it_after_its_end(tmp_path: Path) -> None:
    async with staged(tmp_path) as scene:
        scene.rig.bus.absences.keep(Missed(seconds=60, messages=10))
        address = scene.bo.session_address
        await scene.bo.wire.cut()
        await scene.rig.until("sessions lost")
        await scene.ana.say(a_message("update", scene.room, f"{scene.room}/changes", {"value": 1}))
        body = {"resources": scene.places, "source": scene.hyperty}
        assert code_and_reason(await scene.ana.ask("unsubscribe", SM, body)) == (200, "")
        bo = await scene.rig.runtime()
        bo.address = runtime_address("bo")
        assert code_and_reason(await bo.ask("re-open", SESSION, from_=address)) == (200, "")
        assert [one for one in await bo.heard() if one["type"] == "update" and one["from"] == scene.room] == []


@pytest.mark.parametrize("form", FORMS)
async def test_nobody_but_the_reporter_takes_anybody_off(scene: Scene, form: str) -> None:
    rig, room = scene.rig, scene.room
    eve = await rig.opened("eve")
    for attacker in (eve, scene.cy):
        if form == "message":
            refused = await attacker.ask("unsubscribe", scene.hyperty, {"resource": room})
            assert code_and_reason(refused) == (403, "not-owner")
        else:
            body = {"resources": scene.places, "source": scene.hyperty if "hyperty" in form else scene.bo.address}
            assert code_and_reason(await attacker.ask("unsubscribe", SM, body)) == (403, "spoofed-source")
    forged = a_message("unsubscribe", f"hyperty://{FOREIGN}/m", scene.hyperty, {"resource": room}, id_=5)
    assert rig.bus.from_links.take(FOREIGN, [parsed(forged)]) == [Code.NOT_OWNER]
    heard = [f"{room}/changes", f"{room}/children/m"]
    assert await spoken(scene) == (heard, heard[:1])


async def test_the_reporter_does_not_take_itself_off(scene: Scene) -> None:
    body = {"resources": scene.places, "source": scene.ana.address}
    assert code_and_reason(await scene.ana.ask("unsubscribe", SM, body)) == (200, "")
    assert (await spoken(scene))[0] == [f"{scene.room}/changes", f"{scene.room}/children/m"]


# Over links.


async def test_an_observer_abroad_is_notified_through_its_node_and_writes_no_more(scene: Scene) -> None:
    rig, room = scene.rig, scene.room
    source = f"runtime://{FOREIGN}/mn"
    wish = a_message("subscribe", f"{BEN}/sm", f"{room}/subscription", {"resource": room}, id_=6)
    rig.bus.from_links.take(FOREIGN, [parsed(wish)])
    (asked,) = await scene.ana.heard()
    await scene.ana.say(a_message("response", asked["to"], asked["from"], {"code": 200}, id_=6))
    await scene.ana.heard()
    body = {"resources": scene.places, "source": source}
    rig.bus.from_links.take(FOREIGN, [parsed(a_message("subscribe", f"{source}/sm", SM, body, id_=7))])
    await scene.ana.heard()
    number = rig.state.links.number(FOREIGN)
    assert rig.state.listeners.listens(number, scene.places[0])
    gone = {"resources": scene.places, "source": f"{BEN}/sm"}
    assert code_and_reason(await scene.ana.ask("unsubscribe", SM, gone)) == (200, "")
    (notice,) = [one for one in rig.domains.take() if one["type"] == "unsubscribe"]
    assert (notice["from"], notice["to"], notice["body"]) == (f"{room}/subscription", f"{BEN}/sm", {"resource": room})
    assert rig.state.listeners.listens(number, scene.places[0]) is not rig.state.rules.require_consent
    written = a_message("create", f"{BEN}/sm", scene.places[1], {"resource": f"{BEN}/sm#1"}, id_=8)
    assert rig.bus.from_links.take(FOREIGN, [parsed(written)]) == [Code.NOT_OWNER]


async def observes_abroad(rig: RuntimeRig, *runtimes: Runtime) -> None:
    for one in runtimes:
        await one.say(a_message("subscribe", f"{one.address}/sm", f"{FAR_ROOM}/subscription", id_=60))
        await one.heard()
        granted = a_message("response", f"{FAR_ROOM}/subscription", f"{one.address}/sm", {"code": 200}, id_=60)
        rig.bus.from_links.take(FOREIGN, [parsed(granted)])
        body = {"resources": [f"{FAR_ROOM}/changes", f"{FAR_ROOM}/children/m"]}
        await one.say(a_message("subscribe", one.address, FOREIGN_SM, body, id_=61))
        await one.heard()
        for asked in [sent for sent in rig.domains.take() if sent["to"] == FOREIGN_SM]:
            answer = a_message("response", asked["to"], asked["from"], {"code": 200}, id_=asked["id"])
            rig.bus.from_links.take(FOREIGN, [parsed(answer)])
        while (await one.next()).get("id") != 61:
            pass


async def test_the_domain_of_an_object_takes_our_runtime_off_and_the_last_one_ends_the_subscription_there(
    scene: Scene,
) -> None:
    rig, bo, cy = scene.rig, scene.bo, scene.cy
    await observes_abroad(rig, bo, cy)
    change = parsed(a_message("update", FAR_ROOM, f"{FAR_ROOM}/changes", {"value": 1}))
    for observer, address in ((bo, scene.hyperty), (cy, cy.address)):
        assert rig.bus.from_links.take(FOREIGN, [change]) == [None]
        assert [one["type"] for one in await observer.heard()] == ["update"]
        away = a_message("unsubscribe", f"{FAR_ROOM}/subscription", address, {"resource": FAR_ROOM})
        assert rig.bus.from_links.take(FOREIGN, [parsed(away)]) == [None]
        rig.bus.from_links.take(FOREIGN, [change])
        assert [one["type"] for one in await observer.heard()] == ["unsubscribe"]
        again = {"resources": [f"{FAR_ROOM}/changes"]}
        assert code_and_reason(await observer.ask("subscribe", FOREIGN_SM, again)) == (403, "policy")
        if observer is bo:  # while cy still listens here
            refused = await bo.ask("create", f"{FAR_ROOM}/children/m", {"resource": f"{bo.address}#1"})
            assert code_and_reason(refused) == (403, "not-owner")
            await cy.heard()
    assert [one["type"] for one in rig.domains.take() if one["to"] == FOREIGN_SM] == ["unsubscribe"]


@pytest.mark.parametrize("domain", ["gamma.example", FOREIGN])
async def test_no_domain_takes_anybody_off_an_object_that_is_not_its_own(scene: Scene, domain: str) -> None:
    rig = scene.rig
    await observes_abroad(rig, scene.bo)
    resource = scene.room if domain == FOREIGN else FAR_ROOM
    away = a_message("unsubscribe", f"hyperty://{domain}/m", scene.hyperty, {"resource": resource})
    assert rig.bus.from_links.take(domain, [parsed(away)]) == [Code.NOT_OWNER]
    rig.bus.from_links.take(FOREIGN, [parsed(a_message("update", FAR_ROOM, f"{FAR_ROOM}/changes", {"value": 1}))])
    assert [one["type"] for one in await scene.bo.heard()] == ["update"]


# Bounds.


def test_no_reporter_fills_what_is_kept_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expulsions, "EXPULSIONS_PER_OBJECT", 2)
    monkeypatch.setattr(expulsions, "EXPULSIONS_PER_REPORTER", 3)
    monkeypatch.setattr(expulsions, "EXPULSIONS", 4)
    held = Expulsions(Journal())
    for room, observer, by in (("a", "1", "ana"), ("a", "2", "ana"), ("a", "2", "ana"), ("b", "1", "ana")):
        held.expel(ExpulsionRow(room, observer, "", by))
    for room, observer, by, code in (
        ("a", "3", "bo", Code.QUOTA),
        ("c", "1", "ana", Code.QUOTA),
    ):
        with pytest.raises(PeerError) as refused:
            held.expel(ExpulsionRow(room, observer, "", by))
        assert refused.value.code is code
    held.expel(ExpulsionRow("c", "1", "", "bo"))
    with pytest.raises(PeerError) as full:
        held.expel(ExpulsionRow("d", "1", "", "cy"))
    assert full.value.code is Code.OVERLOAD
    held.forget("a")
    held.readmit("b", "1")
    held.expel(ExpulsionRow("d", "1", "rt", "ana"))
    assert (len(held), sorted(held.keys("d"))) == (2, ["1", "rt"])
    assert (held.holds("d", "rt"), held.holds("a", "1")) == (True, False)
