"""Actions of one runtime for another one while their nodes die, and what both saw of them."""

from __future__ import annotations

from itertools import count

import trio

from tests.delivery.killed_node import DELIVERY, INBOX, Ledger
from tests.support.runtime_rig import SM, Json, a_message
from tests.system.wandering import PATIENCE_SECONDS, Wanderer

PAUSE_SECONDS = 0.25
"""Between two batches, and between two looks at what is left."""
BATCH = 3
BATCHES_PER_LOOK = 8
"""How often the sender reads its inbox, which has 1,000 entries at most."""


class Errands:
    """A sender and an agent, each of which goes to another node when its own dies.

    Attributes:
        ledger: What both saw; a life in it is the time of the agent at one node.
    """

    def __init__(self, sender: Wanderer, agent: Wanderer) -> None:
        self.ledger = Ledger()
        self._sender = sender
        self._agent = agent
        self._thing = f"thing://alpha.example/{agent.address.rpartition('/')[2]}"
        self._taken: dict[str, Json] = {}
        self._ids = count(1)

    async def begin(self) -> None:
        """Have the agent own its thing."""
        body = {"resources": [self._thing], "source": self._agent.address}
        assert (await self._agent.runtime.ask("subscribe", SM, body))["body"]["code"] == 200

    async def serve(self) -> None:
        """The agent answers all that comes, for ever."""
        while True:
            message = await self._agent.next()
            if message["type"] == "execute":
                self.ledger.life = self._agent.moves
                self._taken[message["body"]["requestId"]] = message
                self.ledger.handed_over(message["body"]["requestId"])
                await self._agent.say(_answer(message))
            elif str(message.get("id")).startswith("waits"):
                ids = [one["requestId"] for one in _rows(message)]
                await self._agent.say(*(_answer(self._taken[one]) for one in ids if one in self._taken))

    async def send(self) -> None:
        """The sender sends a few actions at a time, for ever."""
        for batch in count():
            sender, to = self._sender, f"{self._thing}/lamp/actions/switch"
            numbers = range(self.ledger.sent + 1, self.ledger.sent + 1 + BATCH)
            self.ledger.sent += BATCH
            body = {"class": "action", "method": "switch", "ttl": 3_600}
            actions = [
                a_message("execute", sender.address, to, {**body, "value": number}, id_=f"errand-{number}")
                for number in numbers
            ]
            await sender.say(*actions)
            if batch % BATCHES_PER_LOOK == 0:
                await self._look_into_the_inbox()
            await trio.sleep(PAUSE_SECONDS)

    async def hear(self) -> None:
        """The sender notes what becomes of its actions, for ever."""
        while True:
            message = await self._sender.next()
            body = message.get("body") or {}
            if str(message.get("id")).startswith("inbox"):
                await self._take_entries(_rows(message))
            elif message["type"] == "response" and "requestId" in body:
                self.ledger.answered(message)
            elif str(message.get("to")).endswith("/inbox"):
                if body["status"] not in ("pending", "delivered"):
                    self.ledger.reported[body["requestId"]] += 1
                self.ledger.ended(body)

    async def settle(self) -> list[str]:
        """Wait until all that was acknowledged has ended; returns what must not be, in words.

        The agent answers again what the nodes still wait for, and the sender reads its inbox.
        """
        with trio.move_on_after(PATIENCE_SECONDS):
            while set(self.ledger.acknowledged) - set(self.ledger.words):
                criteria = {"criteria": {"to": self._thing, "status": "delivered"}}
                asked = a_message("read", self._agent.address, DELIVERY, criteria, id_=f"waits-{next(self._ids)}")
                await self._agent.say(asked)
                await self._look_into_the_inbox()
                await trio.sleep(PAUSE_SECONDS)
        return self.ledger.faults()

    async def _look_into_the_inbox(self) -> None:
        sender = self._sender
        await sender.say(a_message("read", sender.address, INBOX, {}, id_=f"inbox-{next(self._ids)}"))

    async def _take_entries(self, entries: list[Json]) -> None:
        """Note those that nobody reported, and acknowledge all."""
        seen = [one for one in entries if one["status"] not in ("pending", "delivered")]
        for one in seen:
            self.ledger.ended(one)
        if seen:
            body = {"resources": [one["id"] for one in seen]}
            sender = self._sender
            await sender.say(a_message("delete", sender.address, INBOX, body, id_=f"seen-{next(self._ids)}"))


def _rows(reply: Json) -> list[Json]:
    """What a list has; nothing, if a node could not answer."""
    rows: list[Json] = reply["body"]["value"] if reply["body"]["code"] == 200 else []
    return rows


def _answer(request: Json) -> Json:
    return a_message("response", request["to"], request["from"], {"code": 200}, id_=request["id"])
