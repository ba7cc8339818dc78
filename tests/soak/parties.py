"""The runtimes of a soak: each holds its session through every fault and enters what it sees into the account."""

from __future__ import annotations

import json
import math
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import trio

from interop.participant import AccessPoint
from interop.processes import leaves
from interop.runtime_client import Answer, Incoming, Members, RuntimeClient, UnexpectedAnswerError
from protofly.errors import Code, TransportError
from wire.core.websocket import ClientWebSocket

from .findings import Account

REDIAL_SECONDS = 0.3
SERVER_ERROR = 500
LOOK_SECONDS = 30.0
"""So long a reader tries to learn about one registration."""
REGISTERED = 200
"""Data objects that one party keeps registered."""
ACTION_SECONDS = 300
"""Time of a parked action. A node remembers ends until then (message specification, section 19), at most 10,000: with
an hour, that memory would still be filling when a soak of 30 minutes ends, and its rise would look like a leak."""
GAP_REASONS = frozenset({Code.LINK_LOST, Code.NOT_CONNECTED, Code.CONNECT_FAILED})
_LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, TransportError, UnexpectedAnswerError)


class Party:
    """One runtime of one domain, which answers 200 to every request and comes back whenever its line ends."""

    def __init__(self, account: Account, access_point: Callable[[], AccessPoint], domain: str, name: str) -> None:
        self.account = account
        self.domain = domain
        self.runtime = f"runtime://{domain}/{name}"
        self.hyperty = ""
        self.on_event: Callable[[Incoming], None] = lambda _: None
        self.is_up = trio.Event()
        self._access_point = access_point
        self._to_answer, self._requests = trio.open_memory_channel[Incoming](math.inf)
        self.client = self._new_client()

    def _new_client(self) -> RuntimeClient:
        access_point = self._access_point()
        return RuntimeClient(
            url=access_point.url, runtime=self.runtime, ssl_context=access_point.ssl_context, on_message=self._take
        )

    async def stay(self) -> None:
        """Hold the session until cancelled; when the node knows it no more, open a new one.

        A node that can store nothing just now (500, 503) is asked again: a new session has nothing of what the old one
        has.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer)
            while True:
                try:
                    await self._live()
                except* UnexpectedAnswerError as refusals:
                    self._refused([cast("UnexpectedAnswerError", one) for one in leaves(refusals)])
                except* (OSError, TransportError, trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                await trio.sleep(REDIAL_SECONDS)

    def _refused(self, refusals: list[UnexpectedAnswerError]) -> None:
        if any(one.answer.code < SERVER_ERROR for one in refusals):
            self.client, self.hyperty = self._new_client(), ""

    async def _live(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.client.run)
                if not self.hyperty:
                    [self.hyperty] = await self.client.at(self.domain).allocate("hyperty", 1)
                self.is_up.set()
        finally:
            self._went_down()

    def _went_down(self) -> None:
        if self.is_up.is_set():
            self.is_up = trio.Event()  # a new one only then: others may be waiting for the old one

    def _take(self, message: Incoming) -> None:
        self.account.heard[self.runtime] += 1
        if message.type == "response":
            self._second_answer(message)
        else:
            self.on_event(message)
            if message.id is not None:
                self._to_answer.send_nowait(message)

    def _second_answer(self, message: Incoming) -> None:
        body = message.body
        if isinstance(body.get("requestId"), str) and body.get("status") not in (None, "pending", "delivered"):
            self.account.ended(str(body["requestId"]), str(body["status"]))
        elif message.id in self.client.abandoned:
            self.client.abandoned.discard(message.id)
        elif not body.get("late"):
            answer = f"{self.runtime}: {json.dumps(dict(body))[:120]}"
            self.account.second_answers.append((trio.current_time(), self.domain, answer))

    async def _answer(self) -> None:
        async for request in self._requests:
            with suppress(TransportError):
                await self.client.respond(request, {"code": 200, "value": request.body.get("value")})

    async def ask(self, flow: str, type_: str, to: str, body: Members, *, from_: str = "") -> Answer | None:
        """Send one request and account for it; None when the own line ended meanwhile."""
        await self.is_up.wait()
        try:
            answer = await self.client.request(type_, from_ or self.hyperty, to, body)
        except TransportError as error:
            if error.code is Code.GATEWAY_TIMEOUT:
                self.account.unanswered.append(f"{flow}: {error.detail}")
            return None
        self.account.answered(flow, answer.code, answer.reason)
        return answer


async def every(seconds: float, act: Callable[[int], Awaitable[None]], *, spread: random.Random) -> None:
    """Call `act` with 0, 1, 2, … at this mean interval, until cancelled."""
    number = 0
    while True:
        await trio.sleep(seconds * (0.5 + spread.random()))
        await act(number)
        number += 1


async def converse(one: Party, other: Party, flow: str, *, seconds: float, spread: random.Random) -> None:
    """Requests from one hyperty to another; an answer with another value than the request's is a finding."""

    async def act(number: int) -> None:
        await other.is_up.wait()
        answer = await one.ask(flow, "create", other.hyperty, {"value": number})
        if answer is not None and answer.is_ok and answer.value != number:
            one.account.order.append(f"{flow}: {answer.value!r} answers {number}")

    await every(seconds, act, spread=spread)


async def publish_changes(reporter: Party, observers: list[Party], *, seconds: float, spread: random.Random) -> None:
    """A data object of one domain with observers in it: each hears every change, once and in order."""
    await reporter.is_up.wait()
    [room] = await reporter.client.at(reporter.domain).allocate("comm", 1)
    expected = dict.fromkeys((one.runtime for one in observers), 0)

    def hears(observer: Party) -> Callable[[Incoming], None]:
        def take(message: Incoming) -> None:
            if message.to != f"{room}/changes":
                return
            number = cast("int", message.body.get("version"))
            if number != expected[observer.runtime]:
                reporter.account.order.append(f"{observer.runtime}: {number}, not {expected[observer.runtime]}")
            expected[observer.runtime] = number + 1

        return take

    for observer in observers:
        observer.on_event = hears(observer)
        await observer.is_up.wait()
        await observer.client.at(observer.domain).subscribe([f"{room}/changes"])

    async def act(number: int) -> None:
        body = {"version": number, "value": "x" * 200, "source": reporter.hyperty}
        await reporter.client.notify("update", room, f"{room}/changes", body)

    await every(seconds, act, spread=spread)


async def register(party: Party, *, seconds: float, spread: random.Random) -> None:
    """Register one data object after the other; what is granted has to be there at the end.

    The oldest are deleted, so that the registry stays as large as it is and memory can have a plateau.
    """
    registry, from_ = f"domain://registry.{party.domain}", f"{party.runtime}/registry"
    granted: deque[str] = deque()

    async def act(number: int) -> None:
        await party.is_up.wait()
        while len(granted) > REGISTERED:
            party.account.registered.pop(granted[0], None)  # from here on nobody knows whether it is there
            flow = f"delete at {party.domain}"
            answer = await party.ask(flow, "delete", registry, {"resource": granted[0]}, from_=from_)
            if answer is None:
                return
            granted.popleft()
        address = f"comm://{party.domain}/soak-{party.runtime.rpartition('/')[2]}-{number}"
        value = {
            "url": address,
            "user": f"user://{party.domain}/anna",
            "runtime": party.runtime,
            "descriptor": f"hyperty-catalogue://catalogue.{party.domain}/.well-known/dataschema/Chat",
            "name": address.rpartition("/")[2],
            "schema": "x",
            "reporter": party.hyperty,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "status": "live",
            "expires": 7200,
        }
        answer = await party.ask(f"register at {party.domain}", "create", registry, {"value": value}, from_=from_)
        if answer is not None and answer.is_ok:
            party.account.registered[address] = party.domain
            granted.append(address)

    await every(seconds, act, spread=spread)


async def look_for(reader: Party, address: str, domain: str) -> str:
    """Return "" when a registry still has what it granted, else what it answers instead.

    A reader whose own line ends meanwhile has no answer and asks again: a fault may end it late, and that says nothing
    about the registration.
    """
    with trio.move_on_after(LOOK_SECONDS):
        while True:
            answer = await reader.ask("check", "read", f"domain://registry.{domain}", {"resource": address})
            if answer is not None:
                return "" if answer.is_ok else f"{answer.code} {answer.reason}"
            await trio.sleep(REDIAL_SECONDS)
    return "no answer"


async def park_actions(sender: Party, switch: str, *, seconds: float, spread: random.Random) -> None:
    """Actions for an agent that comes and goes: every one that is acknowledged gets one end."""

    def hear(message: Incoming) -> None:
        if message.to.endswith("/inbox") and message.body.get("status") not in ("pending", "delivered"):
            sender.account.ended(str(message.body["requestId"]), str(message.body["status"]))

    sender.on_event = hear

    async def empty_inbox() -> None:
        """Acknowledge a page of what came, as a client does; the results were heard before."""
        inbox = f"domain://msg-node.{sender.domain}/inbox"
        answer = await sender.ask("inbox", "read", inbox, {}, from_=sender.runtime)
        entries = answer.value if answer is not None and isinstance(answer.value, list) else []
        ids = [one["id"] for one in entries if one["status"] not in ("pending", "delivered")]
        if ids:
            await sender.ask("inbox", "delete", inbox, {"resources": ids}, from_=sender.runtime)

    async def act(number: int) -> None:
        if number % 10 == 0:
            await empty_inbox()
        body = {"class": "action", "method": "switch", "value": number, "ttl": ACTION_SECONDS}
        answer = await sender.ask("park", "execute", switch, body, from_=sender.runtime)
        if answer is not None and answer.code == 202:
            sender.account.acknowledged[str(answer.body["requestId"])] = sender.runtime

    await every(seconds, act, spread=spread)


class RawRuntime:
    """A session over a bare line, for those who misbehave: it reads only when asked, and leaves without a word."""

    def __init__(self, stream: trio.abc.Stream, websocket: ClientWebSocket) -> None:
        self._stream = stream
        self._websocket = websocket

    @classmethod
    async def open(cls, access_point: AccessPoint, runtime: str) -> RawRuntime:
        """Connect and open a session."""
        port = int(access_point.url.rpartition(":")[2].partition("/")[0])
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        stream: trio.abc.Stream = tcp
        if access_point.ssl_context is not None:
            stream = trio.SSLStream(tcp, access_point.ssl_context, server_hostname="127.0.0.1", https_compatible=True)
        one = cls(stream, ClientWebSocket(access_point.url, is_binary=False))
        await one._stream.send_all(one._websocket.data_to_send())
        while not one._websocket.is_open:
            one._websocket.receive(bytes(await one._stream.receive_some(65_536)))
        await one.say({"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        return one

    async def say(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._websocket.send([json.dumps(message).encode()])
        await self._stream.send_all(self._websocket.data_to_send())

    async def vanish(self) -> None:
        """Leave without closing anything in order."""
        await trio.aclose_forcefully(self._stream)


async def hold_handshakes(access_point: AccessPoint, number: int, seconds: float) -> None:
    """Open so many TCP connections that say nothing, and hold them."""
    port = int(access_point.url.rpartition(":")[2].partition("/")[0])
    async with trio.open_nursery() as nursery:

        async def hold() -> None:
            with suppress(OSError):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                with trio.move_on_after(seconds):
                    await stream.receive_some(1)
                await trio.aclose_forcefully(stream)

        for _ in range(number):
            nursery.start_soon(hold)


async def misbehave(access_point: AccessPoint, runtime: str, acts: Callable[[RawRuntime], Awaitable[None]]) -> None:
    """One bare session that does something and vanishes."""
    with suppress(*_LOST, ssl.SSLError):
        one = await RawRuntime.open(access_point, runtime)
        try:
            await acts(one)
        finally:
            with trio.CancelScope(shield=True):
                await one.vanish()
