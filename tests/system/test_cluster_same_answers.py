"""One conversation with a node alone, and with several nodes among whom its runtimes are spread: the answers are equal.

Compared is what is answered, and what others hear of it, up to names that are drawn, times, and names of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from tests.support.postgres import PASSWORD, Postgres
from tests.support.runtime_rig import ALLOCATION, SESSION, SM, Json, Runtime, a_message
from tests.system.one_node import SETTINGS, Process, serving
from tests.system.wandering import Domain, answer_all, until_reached

REGISTRY = "domain://registry.alpha.example"
TWIN = "domain://msg-node.alpha.example/twin"
DELIVERY = "domain://msg-node.alpha.example/delivery"
INBOX = "domain://msg-node.alpha.example/inbox"
PUSH = "domain://msg-node.alpha.example/push"
QOS = "domain://qos.alpha.example"
IDM = "domain://idm.alpha.example"
CATALOGUE = "domain://catalogue.alpha.example"
AGENT = "thing://alpha.example/lamps"
LAMP = f"{AGENT}/lamp-1"
NOBODY = "hyperty://alpha.example/nobody"
RUN_SECONDS = 240
WRONG_BLOCKS: list[Json] = [
    {"scheme": "comm"},
    {"scheme": "", "value": {"number": 1}},
    {"scheme": "comm", "value": {"number": -1}},
]
_DRAWN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")
_NODE = re.compile(r"runtime://alpha\.example/(mn-1|n[123])\b")
_TIMES = 1_000_000_000
_OF_THE_MOMENT = ("runtimeToken", "retryAfter")
OTHERWISE = {"cy claims it as well": [(409, "address-taken"), (403, "not-owner")]}
"""What several nodes answer, and what one does: see docs/cluster.md, "Nodes that serve together"."""


class Log:
    """What was answered, step by step, in words that are the same wherever it was said."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, object]] = []
        self._names: dict[str, str] = {}

    def note(self, step: str, message: object) -> None:
        self.steps.append((str(self._plain(step)), self._plain(message)))

    def _plain(self, value: object) -> object:
        match value:
            case str():
                text = _NODE.sub("NODE", _DATE.sub("a date", value))
                return _DRAWN.sub(lambda found: self._names.setdefault(found[0], f"#{len(self._names)}"), text)
            case bool():
                return value
            case int() | float() if value > _TIMES:
                return "a time"
            case Mapping():
                return {
                    self._plain(name): self._plain(one) for name, one in value.items() if name not in _OF_THE_MOMENT
                }
            case Sequence():
                return [self._plain(one) for one in value]
            case _:
                return value


class Conversation:
    """Ana, Bo and Cy, each at some node."""

    def __init__(self, ana: Runtime, bo: Runtime, cy: Runtime) -> None:
        self.ana, self.bo, self.cy = ana, bo, cy
        self.log = Log()

    async def ask(self, who: Runtime, type_: str, to: str, body: Json | None = None) -> Json:
        reply = await who.ask(type_, to, body)
        asked = {name: one for name, one in (body or {}).items() if name != "resource"}
        self.log.note(f"{who.address} {type_} {to} {asked}", reply["body"])
        answer: Json = reply["body"]
        return answer

    async def answered(self, who: Runtime, by: Runtime, type_: str, to: str, body: Json | None = None) -> None:
        """Ask another runtime, which answers."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_all, by)
            await self.ask(who, type_, to, body)
            nursery.cancel_scope.cancel()

    async def hears(self, who: Runtime, type_: str) -> Json:
        with trio.fail_after(60):
            while (message := await who.next())["type"] != type_:
                pass
        self.log.note(f"{who.address} hears {type_}", {name: message.get(name) for name in ("from", "to", "body")})
        return message

    async def allocation(self) -> tuple[str, str, str]:
        """Addresses of each; what is refused to others."""
        owned = []
        for who in (self.ana, self.bo, self.cy):
            block = {"scheme": "comm", "value": {"number": 2}, "allocationKey": "one"}
            first = await self.ask(who, "create", ALLOCATION, block)
            await self.ask(who, "create", ALLOCATION, block)
            owned.append(str(first["value"]["allocated"][0]))
            await self.ask(who, "read", ALLOCATION)
        for wrong in WRONG_BLOCKS:
            await self.ask(self.bo, "create", ALLOCATION, wrong)
        await self.ask(self.cy, "delete", ALLOCATION, {"resource": owned[0]})
        await self.ask(self.cy, "delete", ALLOCATION, {"childrenResources": owned, "detail": True})
        await self.ask(self.cy, "delete", ALLOCATION, {"resource": NOBODY})
        block = {"scheme": "comm", "value": {"number": 1}, "allocationKey": "two"}
        owned[2] = str((await self.ask(self.cy, "create", ALLOCATION, block))["value"]["allocated"][0])
        return owned[0], owned[1], owned[2]

    async def messages(self, owned: tuple[str, str, str]) -> None:
        """Requests to runtimes, and to nobody."""
        await self.answered(self.ana, self.bo, "read", owned[1], {"n": 1})
        await self.answered(self.bo, self.cy, "read", owned[2], {"n": 2})
        await self.answered(self.cy, self.ana, "read", owned[0], {"n": 3})
        await self.answered(self.cy, self.ana, "ping", self.ana.address)
        await self.ask(self.ana, "read", NOBODY)
        await self.ask(self.ana, "read", "hyperty://elsewhere.invalid/x")
        await self.ask(self.ana, "read", "no address")

    async def subscriptions(self, owned: tuple[str, str, str]) -> None:
        """Changes of an object reach who has subscribed, and nobody afterwards; somebody else's name is no one's."""
        changes = f"{owned[0]}/changes"
        for who in (self.bo, self.cy):
            self.log.note(f"{who.address} subscribes", (await who.subscribed(changes))["body"])
            await self.answered(who, self.ana, "read", owned[0], {"n": 4})  # what follows arrives behind that
        await self.ana.say(a_message("update", owned[0], changes, {"value": 5}))
        for who in (self.bo, self.cy):
            await self.hears(who, "update")
        await self.ask(self.cy, "unsubscribe", SM, {"resources": [changes], "source": self.cy.address})
        self.log.note("bo claims the agent", (await self.bo.subscribed(AGENT))["body"])
        self.log.note("cy claims it as well", (await self.cy.subscribed(AGENT))["body"])
        self.log.note("ana claims what is below it", (await self.ana.subscribed(f"{AGENT}/lamp-2"))["body"])

    async def registry(self) -> None:
        """Entries are read everywhere, and changed by who has made them."""
        made = await self.ask(self.bo, "create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
        url, user = made["value"]["allocated"][0], "user://alpha.example/bo"
        entry: Json = {"user": user, "url": url, "descriptor": "x", "expires": 3600, "dataSchemes": ["comm"]}
        await self.ask(self.ana, "read", REGISTRY, {"resource": user})
        entry |= {"resources": ["chat"], "runtime": self.bo.address}
        await self.ask(self.bo, "create", REGISTRY, {"value": entry})
        for who in (self.ana, self.bo, self.cy):
            for resource in (user, url):
                await self.ask(who, "read", REGISTRY, {"resource": resource})
            for criteria in ("chat", "voice"):
                await self.ask(who, "read", REGISTRY, {"resource": user, "criteria": {"resources": [criteria]}})
        await self.ask(self.cy, "update", REGISTRY, {"resource": url, "value": {"status": "live"}})
        await self.ask(self.cy, "delete", REGISTRY, {"value": {"user": user, "url": url}})
        await self.ask(self.bo, "delete", REGISTRY, {"value": {"user": user, "url": url}})
        await self.ask(self.ana, "read", REGISTRY, {"resource": user})

    async def twin(self) -> None:
        """Things are described by their agent, and read everywhere."""
        await self.ask(self.ana, "read", TWIN, {"resource": LAMP})
        await self.ask(self.bo, "create", TWIN, {"resource": LAMP, "value": {"@type": "Lamp", "title": "hall"}})
        for who in (self.ana, self.bo, self.cy):
            await self.ask(who, "read", TWIN, {"resource": LAMP})
            await self.ask(who, "read", TWIN)
            await self.ask(who, "read", TWIN, {"resource": f"{LAMP}/properties/on"})
        await self.ask(self.cy, "delete", TWIN, {"resource": LAMP})

    async def delivery(self) -> None:
        """An action for who is there, and one for who is nowhere: it is parked, found, and given up."""
        action = {"class": "action", "method": "on"}
        await self.ana.say(a_message("execute", self.ana.address, f"{LAMP}/actions/on", action, id_=7))
        await self.hears(self.bo, "execute")
        parked = await self.ask(self.ana, "execute", NOBODY, {"class": "action", "method": "ring"})
        wanted = {"resource": str(parked["requestId"])}
        for who in (self.ana, self.cy):
            await self.ask(who, "read", DELIVERY, wanted)
        await self.ask(self.cy, "delete", DELIVERY, wanted)
        await self.ask(self.ana, "delete", DELIVERY, wanted)
        await self.ask(self.ana, "read", DELIVERY, wanted)
        await self.ask(self.ana, "read", DELIVERY, {"resource": "none"})

    async def other_services(self) -> None:
        """Services that are not set up here, and questions that they do not know."""
        for who in (self.ana, self.bo, self.cy):
            for service in (QOS, IDM, PUSH, INBOX, CATALOGUE, "domain://msg-node.alpha.example"):
                for type_ in ("read", "create", "execute"):
                    await self.ask(who, type_, service, {"resource": "none"})

    async def sessions(self, come_to: Sequence[Process]) -> None:
        """The same runtime is live once; a session goes where its token is shown, with what it owns."""
        for process in come_to:
            other = await process.runtime()
            self.log.note("bo is opened again", (await other.open("bo"))["body"])
            other.address = self.ana.address
            reply = await other.ask("re-open", SESSION, from_=f"{other.address}/none")
            self.log.note("ana comes with a wrong token", reply["body"])
        for process in come_to:
            self.ana, code = await process.returned(self.ana)
            self.log.note("ana comes back", code)
            await self.ask(self.ana, "read", ALLOCATION)

    async def hold(self, come_to: Sequence[Process]) -> list[tuple[str, object]]:
        owned = await self.allocation()
        await self.messages(owned)
        await self.subscriptions(owned)
        await self.registry()
        await self.twin()
        await self.delivery()
        await self.other_services()
        await self.sessions(come_to)
        return self.log.steps


async def held(*nodes: Process) -> list[tuple[str, object]]:
    """The conversation of three runtimes at one, two or three nodes."""
    places = [nodes[number % len(nodes)] for number in range(3)]
    people = [await place.opened(name) for place, name in zip(places, ("ana", "bo", "cy"), strict=True)]
    for asker in people:
        for target in people:
            if asker is not target:
                await until_reached(asker, target)
    return await Conversation(*people).hold([places[1], places[2], places[0]])


async def held_alone(folder: Path) -> list[tuple[str, object]]:
    async with serving(folder, SETTINGS.format(grace=3600), seconds=RUN_SECONDS) as node:
        return await held(node)


def coded(body: object) -> object:
    """Code and reason of an answer."""
    return (body.get("code"), body.get("reason")) if isinstance(body, dict) else body


@pytest.mark.long
@pytest.mark.parametrize("names", [("n1", "n2"), ("n1", "n2", "n3")], ids=["two nodes", "three nodes"])
async def test_answers_of_several_nodes_are_those_of_one(
    tmp_path: Path, engine: Postgres, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    alone = await held_alone(tmp_path)
    domain = Domain(tmp_path, engine, names)
    async with AsyncExitStack() as stack:
        spread = await held(*[await stack.enter_async_context(domain.node(name)) for name in names])
    assert [step for step, _ in spread] == [step for step, _ in alone]
    different = {step: (there, here) for (step, there), (_, here) in zip(spread, alone, strict=True) if there != here}
    assert {step: [coded(one) for one in both] for step, both in different.items()} == OTHERWISE, different
