"""A node that is killed again and again, and the parties that talk to it: each keeps what it saw in a ledger.

A sender sends actions to an agent that comes and goes, dies and forgets; somebody registers addresses meanwhile. The
ledger says afterwards what must not have happened. Source: design, section 6; message specification, section 19.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from interop.processes import Child
from tests.support.services import running
from wire.core.websocket import ClientWebSocket

DOMAIN = "alpha.example"
AGENT = f"thing://{DOMAIN}/agent-1"
SWITCH = f"{AGENT}/lamp/actions/switch"
DELIVERY = f"domain://msg-node.{DOMAIN}/delivery"
INBOX = f"domain://msg-node.{DOMAIN}/inbox"
REGISTRY = f"domain://registry.{DOMAIN}"
PATIENCE_SECONDS = 30.0
SETTINGS = """
[node]
domain = "alpha.example"
data_dir = "{data}"
[listen]
port = 0
insecure_plaintext = true
[sessions]
grace_seconds = 3600
[delivery]
unanswered = 8
inbox_entries = 100_000
per_sender = 100_000
per_agent = 100_000
"""

Json = dict[str, Any]
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@dataclass
class Ledger:
    """What all parties saw. `life` counts the runs of the node."""

    life: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)  # request id -> number of the action
    words: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reported: Counter[str] = field(default_factory=Counter)  # by an answer or an event, not by reading the inbox
    handed: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # request id -> lives
    confirmed: set[str] = field(default_factory=set)  # request ids whose end was seen by the sender
    after_confirmation: list[str] = field(default_factory=list)
    registered: list[str] = field(default_factory=list)
    sent: int = 0

    def answered(self, message: Json) -> None:
        """The sender got an answer to an action."""
        body = message["body"]
        if body["code"] == 202:
            self.acknowledged[body["requestId"]] = message["id"]
        else:
            self.reported[body["requestId"]] += body["status"] not in ("pending", "delivered")
            self.ended(body)

    def ended(self, body: Json) -> None:
        """The sender saw a final word."""
        if body["status"] in ("pending", "delivered"):
            return
        self.words[body["requestId"]][body["status"]] += 1
        self.confirmed.add(body["requestId"])

    def handed_over(self, request_id: str) -> None:
        """The agent got an action."""
        self.handed[request_id].append(self.life)
        if request_id in self.confirmed:
            self.after_confirmation.append(request_id)

    def faults(self) -> list[str]:
        """What must not have happened."""
        found = []
        lost = [one for one in self.acknowledged if one not in self.words]
        if lost:
            found.append(f"{len(lost)} acknowledged actions never ended: {lost[:3]}")
        several = [one for one, words in self.words.items() if len(words) > 1]
        if several:
            found.append(f"{len(several)} actions ended in two ways: {several[:3]}")
        twice = [one for one, count in self.reported.items() if count > 1]
        if twice:
            found.append(f"{len(twice)} ends were reported twice: {twice[:3]}")
        repeated = [one for one, lives in self.handed.items() if len(lives) > len(set(lives))]
        if repeated:
            found.append(f"{len(repeated)} actions were handed over twice to one session: {repeated[:3]}")
        if self.after_confirmation:
            found.append(f"{len(self.after_confirmation)} actions were handed over after their end was known")
        return found


class Party:
    """One runtime, which comes back with its token."""

    def __init__(self, name: str) -> None:
        self.address = f"runtime://{DOMAIN}/{name}"
        self.token = ""
        self._stream: trio.SocketStream | None = None
        self._websocket: ClientWebSocket | None = None
        self._waiting: list[Json] = []
        self._writing = trio.Lock()

    async def connect(self, url: str) -> None:
        """Open the session, the first time; later come back to it."""
        port = int(url.rpartition(":")[2].split("/")[0])
        self._stream = await trio.open_tcp_stream("127.0.0.1", port)
        self._websocket = websocket = ClientWebSocket(url, is_binary=False)
        self._waiting = []
        await self._stream.send_all(websocket.data_to_send())
        while not websocket.is_open:
            self._take(await self._stream.receive_some())
        type_, from_ = ("re-open", f"{self.address}/{self.token}") if self.token else ("open", self.address)
        await self.say({"id": 1, "type": type_, "from": from_, "to": "mn:/session"})
        reply = await self.reply_to(1)
        assert reply["body"]["code"] == 200, reply
        self.token = reply["body"].get("runtimeToken", self.token)

    def _take(self, data: bytes) -> None:
        if not data:
            raise trio.BrokenResourceError
        assert self._websocket is not None
        self._waiting += [json.loads(raw) for raw in self._websocket.receive(data)]

    async def say(self, *messages: Json) -> None:
        assert self._websocket is not None
        assert self._stream is not None
        async with self._writing:
            self._websocket.send([json.dumps(one).encode() for one in messages])
            await self._stream.send_all(self._websocket.data_to_send())

    async def next(self) -> Json:
        """The next message of the node.

        Raises:
            BrokenResourceError: The node is gone.
        """
        assert self._stream is not None
        while not self._waiting:
            self._take(await self._stream.receive_some())
        return self._waiting.pop(0)

    async def reply_to(self, id_: object) -> Json:
        """The reply to a request; what comes before it stays."""
        kept = []
        while (message := await self.next()).get("id") != id_ or message["type"] not in ("response", "pong"):
            kept.append(message)
        self._waiting[:0] = kept
        return message

    async def ask(self, id_: object, type_: str, to: str, body: Json) -> Json:
        await self.say({"id": id_, "type": type_, "from": self.address, "to": to, "body": body})
        return await self.reply_to(id_)

    async def close(self) -> None:
        """End the connection without a word."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)


class Trial:
    """One node at a time, three parties.

    Args:
        folder: Its data, and the log of all runs.
        seed: Where the random moments begin.
        storage: Settings of an engine: the node then runs on one of two data folders, as on two machines.
    """

    def __init__(self, folder: Path, seed: int, storage: str = "") -> None:
        self.folder = folder
        self._storage = storage
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.taken: dict[str, Json] = {}  # what the agent remembers
        self.sender, self.agent, self.registrar = Party("sender"), Party("agent"), Party("registrar")

    @asynccontextmanager
    async def node(self) -> AsyncIterator[tuple[str, Child]]:
        """One run of the node, which ends by `kill -9`."""
        config = self.folder / "node.toml"
        data = self.random.choice(("here", "there")) if self._storage else "data"
        config.write_text(SETTINGS.format(data=data) + self._storage)
        child = Child(["trapezoid", "serve", "--config", str(config)], log_file=self.folder / "node.log")
        await child.start()
        try:
            ready = await child.wait_ready()
            self.ledger.life += 1
            yield str(ready["listen"]), child
        finally:
            if child.is_running:
                os.kill(child.pid, signal.SIGKILL)
            await child.stop()

    async def prepare(self) -> None:
        """The first life: sessions and the agent's address."""
        async with self.node() as (url, _):
            for party in (self.sender, self.agent, self.registrar):
                await party.connect(url)
            body = {"resources": [AGENT], "source": self.agent.address}
            reply = await self.agent.ask(2, "subscribe", f"domain://msg-node.{DOMAIN}/sm", body)
            assert reply["body"]["code"] == 200, reply
            await self._hang_up()

    async def live_and_die(self) -> None:
        """One life with traffic, killed at a random moment."""
        async with self.node() as (url, child):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, url)
                nursery.start_soon(self._register, url)
                if self.random.random() < 0.7:
                    nursery.start_soon(self._serve, url, self.random.random() * 0.2)
                await trio.sleep(0.05 + self.random.random() * 0.6)
                os.kill(child.pid, signal.SIGKILL)
                nursery.cancel_scope.deadline = trio.current_time() + PATIENCE_SECONDS
            await self._hang_up()

    async def settle(self) -> None:
        """The last life: the agent answers everything, the sender reads everything, the registrations are counted."""
        async with self.node() as (url, _):
            async with running(seconds=PATIENCE_SECONDS) as nursery:
                nursery.start_soon(self._serve_all, url, nursery)
                await self._read_all(url)
            await self.registrar.connect(url)
            for address in self.ledger.registered:
                reply = await self.registrar.ask("r", "read", REGISTRY, {"resource": address})
                assert reply["body"]["code"] in (200, 408), (address, reply)
            await self._hang_up()

    async def _read_all(self, url: str) -> None:
        """Until every action that was acknowledged has its final word."""
        await self.sender.connect(url)
        while missing := set(self.ledger.acknowledged) - set(self.ledger.words):
            before = len(missing)
            await self._read_inbox()
            if before == len(set(self.ledger.acknowledged) - set(self.ledger.words)):
                await trio.sleep(0.02)

    async def _hang_up(self) -> None:
        for party in (self.sender, self.agent, self.registrar):
            await party.close()

    async def _send(self, url: str) -> None:
        with suppress(*_LOST):
            await self.sender.connect(url)
            await self._read_inbox()
            async with running() as nursery:
                nursery.start_soon(self._hear)
                await self._send_batches()

    async def _send_batches(self) -> None:
        """Actions, a few at a time, until the connection is lost."""
        with suppress(*_LOST):
            while True:
                first = self.ledger.sent + 1
                self.ledger.sent += self.random.randint(1, 20)
                numbers = range(first, self.ledger.sent + 1)
                await self.sender.say(*(_action(self.sender.address, number) for number in numbers))
                await trio.sleep(self.random.random() * 0.01)

    async def _hear(self) -> None:
        with suppress(*_LOST):
            while True:
                self._note(await self.sender.next())

    def _note(self, message: Json) -> None:
        if message["type"] == "response":
            self.ledger.answered(message)
        elif message["to"].endswith("/inbox"):
            if message["body"]["status"] not in ("pending", "delivered"):
                self.ledger.reported[message["body"]["requestId"]] += 1
            self.ledger.ended(message["body"])

    async def _read_inbox(self) -> None:
        """Read and acknowledge page after page; what is pushed meanwhile counts as well."""
        while True:
            reply = await self.sender.ask("inbox", "read", INBOX, {})
            entries = reply["body"]["value"]
            for message in self.sender._waiting:
                self._note(message)
            self.sender._waiting.clear()
            seen = [one for one in entries if one["status"] not in ("pending", "delivered")]
            for one in seen:
                if not self.ledger.reported[one["requestId"]]:
                    self.ledger.ended(one)
            if not seen:
                return
            await self.sender.ask("ack", "delete", INBOX, {"resources": [one["id"] for one in seen]})

    async def _serve(self, url: str, delay: float) -> None:
        """An agent that comes late, acknowledges some, answers most, and forgets what it did not answer."""
        with suppress(*_LOST):
            await trio.sleep(delay)
            await self.agent.connect(url)
            while True:
                request = await self.agent.next()
                if request["type"] != "execute":
                    continue
                self._take(request)
                fate = self.random.random()
                if fate < 0.2:
                    await self.agent.say(_answer(request, 100))
                if fate < 0.98:
                    await self.agent.say(_answer(request, 200))

    async def _serve_all(self, url: str, nursery: trio.Nursery) -> None:
        """An agent that answers everything, and asks what else the node waits for: its answers may have been lost."""
        await self.agent.connect(url)
        nursery.start_soon(self._answer_all)
        while True:
            await trio.sleep(0.2)
            asked = {"id": "waits", "type": "read", "from": self.agent.address, "to": DELIVERY}
            await self.agent.say({**asked, "body": {"criteria": {"to": AGENT, "status": "delivered"}}})

    async def _answer_all(self) -> None:
        while True:
            message = await self.agent.next()
            if message["type"] == "execute":
                self._take(message)
                await self.agent.say(_answer(message, 200))
            elif message.get("id") == "waits":
                ids = [one["requestId"] for one in message["body"]["value"]]
                await self.agent.say(*(_answer(self.taken[one], 200) for one in ids))

    def _take(self, request: Json) -> None:
        self.taken[request["body"]["requestId"]] = request
        self.ledger.handed_over(request["body"]["requestId"])

    async def _register(self, url: str) -> None:
        with suppress(*_LOST):
            await self.registrar.connect(url)
            while True:
                number = len(self.ledger.registered)
                address = f"comm://{DOMAIN}/room-{self.ledger.life}-{number}"
                value = {
                    "url": address,
                    "user": "user://alpha.example/anna",
                    "runtime": self.registrar.address,
                    "descriptor": f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/dataschema/Chat",
                    "name": f"room-{number}",
                    "schema": "x",
                    "reporter": self.registrar.address,
                    "resources": ["chat"],
                    "dataSchemes": ["comm"],
                    "status": "live",
                    "expires": 3600,
                }
                reply = await self.registrar.ask(f"c{number}", "create", REGISTRY, {"value": value})
                assert reply["body"]["code"] == 200, reply
                self.ledger.registered.append(address)


def _action(sender: str, number: int) -> Json:
    body = {"class": "action", "method": "switch", "value": number, "ttl": 3600}
    return {"id": number, "type": "execute", "from": sender, "to": SWITCH, "body": body}


def _answer(request: Json, code: int) -> Json:
    body = {"code": code, "value": request["body"]["value"]}
    return {"id": request["id"], "type": "response", "from": request["to"], "to": request["from"], "body": body}


async def run_trial(folder: Path, *, points: int, seed: int, storage: str = "") -> Ledger:
    """Kill the node at so many moments; what was seen. Ends when everything acknowledged has ended, or in failure."""
    trial = Trial(folder, seed, storage)
    await trial.prepare()
    for _ in range(points):
        await trial.live_and_die()
    await trial.settle()
    return trial.ledger
