"""The runtimes of a scene: each keeps its session, sends its loads, answers requests, and notes what it sees."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import trio

from interop.lab.clients import NewClient
from interop.lab.core.operations import Operation
from interop.lab.core.scene import Action, Load
from interop.lab.core.seen import Answered, Arrived, Away, Key, Seen, Sent
from interop.processes import leaves
from interop.runtime_client import Answer, Incoming, RuntimeClient, UnexpectedAnswerError, encode
from protofly.errors import Code, HostError, TransportError
from protofly.records import envelope_digest

_RETRY_SECONDS: Final = 0.1
_REQUESTS_AT_A_TIME: Final = 32
_NODE_FAILED: Final = 500
_TRY_LATER: Final = 503
_encode_sorted: Final = json.JSONEncoder(sort_keys=True).encode
_SESSION_ERRORS: Final = (HostError, UnexpectedAnswerError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An event of a thing that its node has accepted."""

    runtime: str
    thing: str
    beat: str
    began: float
    ended: float


class Notes:
    """Observations of all runtimes of a scene, on one clock. `now` is seconds since the scene began."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.operations: list[Operation] = []
        self.published: list[Published] = []
        self.beats: dict[tuple[str, str], list[float]] = {}
        """When each runtime got each published value."""
        self.moved = trio.lowlevel.ParkingLot()
        self.heard_by: dict[str, int] = {}
        self._began = time.monotonic()

    def begin(self) -> None:
        """The scene begins now."""
        self._began = time.monotonic()

    def now(self) -> float:
        """Seconds since the scene began."""
        return time.monotonic() - self._began

    async def sleep_until(self, moment: float) -> None:
        """Until so many seconds after the scene began."""
        await trio.sleep(max(0.0, moment - self.now()))

    def moment(self, monotonic_seconds: float) -> float:
        """A time of the system's monotonic clock, in seconds since the scene began."""
        return monotonic_seconds - self._began

    def arrived(self, one: Arrived) -> None:
        """Note one message that a runtime got."""
        self.seen.arrived.append(one)
        self.heard_by[one.runtime] = self.heard_by.get(one.runtime, 0) + 1
        self.moved.unpark_all()

    def history(self) -> list[Operation]:
        """Build the history of shared objects: a published event is one step for each runtime that ever subscribed.

        So is the release of an address, for the subscriptions of its owner below it.
        """
        subscribers: dict[str, set[str]] = {}
        for one in self.operations:
            if one.kind == "subscribe":
                thing, _, runtime = one.object.partition(" for ")
                subscribers.setdefault(thing, set()).add(runtime)
        steps = list(self.operations)
        steps += [
            replace(one, kind="silence", object=f"{one.object} for {one.runtime}")
            for one in self.operations
            if one.kind == "release" and one.result != "refused" and one.runtime in subscribers.get(one.object, ())
        ]
        for event in self.published:
            for runtime in sorted(subscribers.get(event.thing, set()) - {event.runtime}):
                heard = self.beats.get((runtime, event.beat), [])
                step = Operation(
                    runtime=event.runtime,
                    kind="publish",
                    object=f"{event.thing} for {runtime}",
                    result="heard" if heard else "unheard",
                    began=event.began,
                    ended=max([event.ended, *heard]),
                )
                steps.append(step)
        return steps

    async def wait_heard(self, runtime: str, messages: int) -> None:
        """Until a runtime has got so many messages."""
        while self.heard_by.get(runtime, 0) < messages:
            await self.moved.park()


class LabRuntime:
    """One runtime. Use: `await nursery.start(runtime.run)`; it connects again whenever its connection ends."""

    def __init__(self, name: str, domain: str, new_client: NewClient, notes: Notes) -> None:
        self.name = name
        self.domain = domain
        self.address = ""
        self.addresses: list[str] = []
        self.notes = notes
        self._make_client = new_client
        self.client = self._new_client()
        self._away_since: float | None = None
        self._is_wanted = trio.Event()
        self._is_wanted.set()
        self._requests, self._to_answer = trio.open_memory_channel[Incoming](math.inf)
        self._numbers: dict[str, int] = {}
        self._asked: dict[object, Key] = {}
        notes.seen.domains[name] = domain

    def _new_client(self) -> RuntimeClient:
        return self._make_client(f"runtime://{self.domain}/{self.name}", self._hear)

    @property
    def is_away(self) -> bool:
        """True if it has no session now."""
        return self._away_since is not None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the session, and answer requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_requests)
            while True:
                await self._is_wanted.wait()
                await self._hold_session(task_status)
                if self.address:
                    task_status = trio.TASK_STATUS_IGNORED
                if self._away_since is None:
                    self._away_since = self.notes.now()
                await trio.sleep(_RETRY_SECONDS)

    async def _hold_session(self, task_status: trio.TaskStatus[None]) -> None:
        """One connection, until it ends; started as soon as the runtime has its session and address."""
        try:
            async with trio.open_nursery() as session:
                await session.start(self.client.run)
                await self._come()
                task_status.started()
        except* UnexpectedAnswerError as refused:
            if any(one.answer.code != _TRY_LATER for one in leaves(refused) if isinstance(one, UnexpectedAnswerError)):
                self.client, self.address = self._new_client(), ""
        except* _SESSION_ERRORS:
            pass

    async def _come(self) -> None:
        if not self.address:
            [self.address] = await self.client.at(self.domain).allocate("hyperty", 1)
            self.addresses.append(self.address)
            self.notes.seen.addresses[self.address] = self.name
        self.note_away()
        self._away_since = None

    def note_away(self) -> None:
        """Note the time that it has been away, if it is."""
        if self._away_since is not None:
            away = Away(runtime=self.name, began=self._away_since, ended=self.notes.now())
            self.notes.seen.away.append(away)

    def _hear(self, message: Incoming) -> None:
        value = message.body.get("value")
        at = self.notes.moment(message.arrived_ns / 1e9)
        if message.type == "execute":
            params = message.body.get("params")
            request = str(params.get("park")) if isinstance(params, dict) else ""
            step = Operation(
                runtime=self.name,
                kind="deliver",
                object=_thing_of(message.to),
                value=request,
                result="ok",
                began=at,
                ended=at,
            )
            self.notes.operations.append(step)
        elif isinstance(value, dict) and "beat" in value:
            self.notes.beats.setdefault((self.name, str(value["beat"])), []).append(at)
        elif message.type == "response":
            self._note_repeated_answer(message)
        elif _key_of(value) is not None or not message.from_.startswith(("mn:", f"domain://msg-node.{self.domain}/")):
            arrived = Arrived(
                runtime=self.name, sender=message.from_, key=_key_of(value), at=at, digest=digest_of(value)
            )
            self.notes.arrived(arrived)
        if message.id is not None and message.type != "response":
            self._requests.send_nowait(message)

    def _note_repeated_answer(self, message: Incoming) -> None:
        """An answer that no request waits for: the client has one, or gave up."""
        key = self._asked.get(message.id)
        if key is not None:
            code = message.body.get("code", 200)
            self._note_end(key, code if isinstance(code, int) else 0, "repeated")

    async def _answer_requests(self) -> None:
        async for request in self._to_answer:
            try:
                await self.client.respond(request, {"code": 200})
            except TransportError:
                continue  # the session is gone: the node answers the request

    # What it sends.

    async def send_load(self, load: Load, to: LabRuntime) -> None:
        """Send the messages of a load to one receiver; while away, nothing is sent."""
        limit = trio.CapacityLimiter(_REQUESTS_AT_A_TIME)
        pad = "x" * load.bytes
        async with trio.open_nursery() as nursery:
            for index in range(max(1, round(load.per_second * load.seconds))):
                await self.notes.sleep_until(load.start + index / load.per_second)
                if self.is_away or not to.address:
                    continue
                if load.kind == "event":
                    await self._send(load, to, pad)
                    continue
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(self._ask, load, to, pad, (limit, index))

    async def _ask(self, load: Load, to: LabRuntime, pad: str, held: tuple[trio.CapacityLimiter, int]) -> None:
        try:
            await self._send(load, to, pad)
        finally:
            held[0].release_on_behalf_of(held[1])

    async def _send(self, load: Load, to: LabRuntime, pad: str) -> None:
        number = self._numbers[to.name] = self._numbers.get(to.name, 0) + 1
        key = (self.name, to.name, number)
        value = {"key": key, "pad": pad}
        trace = f"lab:{self.name}:{to.name}:{number}" if load.trace else ""
        is_request = load.kind == "request"
        id_ = str(self.client.next_id) if is_request or self.client.events_bear_ids else ""
        body = {"value": value, "trace": trace} if trace else {"value": value}
        sent = Sent(
            key=key,
            kind=load.kind,
            at=self.notes.now(),
            digest=digest_of(value),
            trace=trace,
            record_id=_record_id(trace, self.address, to.address, id_)
            if trace
            else envelope_digest("create", self.address, to.address, id_.encode(), encode(body).encode()),
        )
        self.notes.seen.sent.append(sent)
        if is_request:
            self._asked[int(id_)] = key
        try:
            if load.kind == "event":
                await self.client.notify("create", self.address, to.address, body)
                return
            answer = await self.client.request("create", self.address, to.address, body)
        except TransportError as exc:
            reason = "no-answer" if exc.code is Code.GATEWAY_TIMEOUT else "session-ended"
            if load.kind == "event" or exc.phase == "write":
                self.notes.seen.sent.remove(sent)
            else:
                self._note_end(key, 0, reason)
        else:
            self._note_end(key, answer.code, answer.reason)

    def _note_end(self, key: Key, code: int, reason: str) -> None:
        self.notes.seen.answered.append(Answered(key=key, at=self.notes.now(), code=code, reason=reason))

    # What it does with what is shared.

    async def act(self, action: Action, thing: str) -> None:
        """Do one thing; `thing` is the address of the action's object."""
        match action.does:
            case "leave":
                self._is_wanted = trio.Event()
                self.client.drop()
            case "return":
                self._is_wanted.set()
            case "claim":
                await self.step("claim", thing, lambda: self._manage("subscribe", thing))
            case "release":
                await self.step("release", thing, lambda: self._release(thing))
            case "subscribe" | "unsubscribe":
                beats = f"{thing}/events/beat"
                await self.step(action.does, f"{thing} for {self.name}", lambda: self._manage(action.does, beats))
            case "park":
                await self._park(thing)
            case "publish":
                await self._publish(thing)

    async def _manage(self, type_: str, resource: str) -> Answer:
        body = {"resources": [resource], "source": self.client.runtime}
        return await self.client.request(
            type_, f"{self.client.runtime}/sm", f"domain://msg-node.{self.domain}/sm", body
        )

    async def _release(self, thing: str) -> Answer:
        """Give an address up: to end the subscription to it would not."""
        allocation = f"domain://msg-node.{self.domain}/address-allocation"
        return await self.client.request("delete", self.address, allocation, {"childrenResources": [thing]})

    async def step(
        self, kind: str, object_: str, ask: Callable[[], Awaitable[Answer]], value: str | None = None
    ) -> None:
        """Ask for one thing, and note what came of it for the history."""
        began, result, ended = self.notes.now(), "", math.inf
        try:
            answer = await ask()
        except TransportError:
            pass
        else:
            if answer.code < _NODE_FAILED:  # else it may have happened all the same, now or later
                ended = self.notes.now()
                result = "ok" if answer.is_ok else "refused"
        step = Operation(
            runtime=self.name, kind=kind, object=object_, value=value, result=result, began=began, ended=ended
        )
        self.notes.operations.append(step)

    async def _park(self, thing: str) -> None:
        number = self._numbers["park"] = self._numbers.get("park", 0) + 1
        request = f"{self.name}-{number}"
        body = {"class": "action", "method": "go", "params": {"park": request}}
        to = f"{thing}/actions/go"
        await self.step("park", thing, lambda: self.client.request("execute", self.address, to, body), request)

    async def _publish(self, thing: str) -> None:
        number = self._numbers["beat"] = self._numbers.get("beat", 0) + 1
        beat = f"{self.name}-{number}"
        body = {"class": "event", "receipt": True, "value": {"beat": beat}}
        began = self.notes.now()
        to = f"{thing}/events/beat"
        try:
            answer = await self.client.request("update", thing, to, body)
        except TransportError:
            return
        if answer.is_ok:
            self.notes.published.append(
                Published(runtime=self.name, thing=thing, beat=beat, began=began, ended=self.notes.now())
            )


def digest_of(value: object) -> str:
    """Digest of what a message carries, whatever the order of its members."""
    try:
        text = msgspec.json.encode(value, order="sorted")
    except (OverflowError, ValueError):  # an integer or half a character that only JSON itself can hold
        text = _encode_sorted(value).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def _record_id(trace: str, from_: str, to: str, id_: str) -> str:
    """Under which id both nodes record a message whose sender set a trace."""
    parts = (json.dumps(trace).encode(), from_.encode(), to.encode(), id_.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _key_of(value: object) -> Key | None:
    match value:
        case {"key": [str(source), str(target), int(number)]}:
            return source, target, number
    return None


def _thing_of(address: str) -> str:
    return address.partition("/actions/")[0]
