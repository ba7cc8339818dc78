"""Runtimes that contend for the same addresses, and the history of what they did and saw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count, product
from typing import Protocol

import trio

from interop.lab.core.operations import Operation
from tests.support.runtime_rig import ALLOCATION, SM, Json, Runtime, a_message

THINGS = [f"thing://alpha.example/lamp-{number}" for number in range(3)]
REMEMBERED_THINGS = 5 * len(THINGS)
"""How many addresses, at most, a runtime could still have."""
SETTLED_SECONDS = 5.0
"""What was under way when a node died, or began again, has happened by then, or never will."""
STEPS_SECONDS = 60.0
ANSWER_SECONDS = 5.0
"""A runtime that releases an address before it has answered what came for it may answer no more."""
OPEN_END = frozenset({500, 503, 504})
"""Codes that leave open what has become of a request."""
_CUT = (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError)


class History:
    """What all contenders did and saw.

    Attributes:
        things: The addresses for which they contend at present.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.things = list(THINGS)
        self._all_things = list(THINGS)
        self._grown = trio.Event()

    def renew(self) -> None:
        """Contend for other addresses from now on.

        A step without an answer may have happened at any time since: after a few faults, such steps would explain too
        much of the history of an address.
        """
        first = len(self._all_things)
        self.things = [f"thing://alpha.example/lamp-{number}" for number in range(first, first + len(THINGS))]
        self._all_things += self.things

    def note_loss(self, runtime: str) -> None:
        """The node of a runtime has died: what the runtime had of late may be free from now on."""
        now = trio.current_time()
        for thing in self._all_things[-REMEMBERED_THINGS:]:
            self.note(Operation(runtime=runtime, kind="release", object=thing, began=now))

    def note_return(self, killed_at: float) -> None:
        """A node that was killed has begun again: meanwhile it may have had addresses for nobody, twice.

        A claim that was under way, or a release that was answered, may not have reached the directory before it died.
        And when it comes back, it has what it had for a moment, until it knows what has gone elsewhere.
        """
        soon = trio.current_time() + SETTLED_SECONDS
        times = ((killed_at - SETTLED_SECONDS, killed_at + SETTLED_SECONDS), (killed_at, soon))
        for thing, (began, ended) in product(self._all_things[-2 * len(THINGS) :], times):
            for kind, since, until in (("claim", began, ended), ("release", killed_at, soon + SETTLED_SECONDS)):
                step = Operation(runtime="the dead node", kind=kind, object=thing, began=since, ended=until)
                self.note(step)

    def around(self, some: Sequence[Operation]) -> list[Operation]:
        """All steps on the same address in the seconds around some steps that contradict each other."""
        first, last = some[0].began - SETTLED_SECONDS, some[-1].began + SETTLED_SECONDS
        seen = [one for one in self.operations if one.object == some[0].object]
        return sorted((one for one in seen if first <= one.began <= last), key=lambda one: one.began)

    def note(self, one: Operation) -> None:
        self.operations.append(one)
        self._grown.set()
        self._grown = trio.Event()

    def counts(self) -> Counter[tuple[str, str, object]]:
        return Counter((one.runtime, one.kind, one.result) for one in self.operations)

    async def wait(self, more: int) -> None:
        """Wait until this many more steps have been noted."""
        wanted = len(self.operations) + more
        with trio.fail_after(STEPS_SECONDS):
            while len(self.operations) < wanted:
                await self._grown.wait()


class Opens(Protocol):
    """A node, in this process or another one."""

    async def opened(self, name: str) -> Runtime:
        """A runtime with a session."""


class Contender:
    """A runtime that claims, looks up and releases addresses for which others contend, and writes to them."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.address = ""
        self.runtime: Runtime
        self._history = history
        self._is_up = trio.Event()
        self._asked: dict[str, trio.MemorySendChannel[Json]] = {}
        self._ids = count(1)

    async def open(self, node: Opens) -> None:
        self.runtime = await node.opened(self.name)
        self.address = await self.runtime.allocated()
        self._is_up.set()

    async def listen(self, come_back: Callable[[Runtime], Awaitable[Runtime]]) -> None:
        """Read and answer what comes, on one connection after the other."""
        while True:
            try:
                while True:
                    await self._take(await self.runtime.next())
            except _CUT:
                self._is_up = trio.Event()
                for channel in self._asked.values():
                    channel.close()
                self._asked.clear()
            self.runtime = await come_back(self.runtime)
            self._is_up.set()

    async def _take(self, message: Json) -> None:
        now = trio.current_time()
        if message["type"] == "response":
            if (channel := self._asked.pop(message["id"], None)) is not None:
                channel.send_nowait(message["body"])
        elif message["type"] == "read":
            body = {"code": 200, "value": self.name}
            await self.runtime.say(a_message("response", message["to"], message["from"], body, id_=message["id"]))
        else:
            sender, number = message["body"]["value"]
            self._note("hear", f"{sender} to {self.name}", "ok", began=now, value=number)

    async def contend(self, others: list[Contender]) -> None:
        """Do one thing after the other, for ever, with each address in turn."""
        for turn in count(1):
            things = self._history.things
            thing = things[turn % len(things)]
            mine = {"resources": [thing], "source": self.runtime.address}
            await self._do("claim", thing, ("subscribe", self.runtime.address, SM, mine))
            sought = things[(turn + 1) % len(things)]  # which is not ours now: nobody gets its own requests
            await self._do("find", sought, ("read", self.address, sought, {}))
            for other in others:
                value = {"value": [self.name, turn]}
                await self._say(a_message("message", self.address, other.address, value))
            freed = {"childrenResources": [thing]}
            await self._do("release", thing, ("delete", self.runtime.address, ALLOCATION, freed))

    async def _do(self, kind: str, thing: str, request: tuple[str, str, str, Json]) -> None:
        await self._is_up.wait()
        began = trio.current_time()
        try:
            body = await self._ask(*request)
        except trio.Cancelled:  # the history ends meanwhile; others may have seen what this one does
            self._note(kind, thing, "", began=began)
            raise
        if body is None or body["code"] in OPEN_END:
            result = ""
        elif kind == "find":  # that an address is nowhere is known for a second, so that proves nothing
            result = body["value"] if body["code"] == 200 else ""
        else:
            result = "ok" if body["code"] == 200 else "refused"
        self._note(kind, thing, result, began=began)

    def _note(self, kind: str, object_: str, result: str, *, began: float, value: int | None = None) -> None:
        ended = trio.current_time() if result else math.inf
        self._history.note(
            Operation(
                runtime=self.name, kind=kind, object=object_, value=value, result=result, began=began, ended=ended
            )
        )

    async def _ask(self, type_: str, from_: str, to: str, body: Json) -> Json | None:
        """What a request is answered; None when the connection ended before, or the asked one lost its address."""
        id_ = f"{self.name}-{next(self._ids)}"
        send, receive = trio.open_memory_channel[Json](1)
        self._asked[id_] = send
        await self._say(a_message(type_, from_, to, body, id_=id_))
        with suppress(trio.EndOfChannel), trio.move_on_after(ANSWER_SECONDS):
            return await receive.receive()
        self._asked.pop(id_, None)
        return None

    async def _say(self, message: Json) -> None:
        try:
            await self.runtime.say(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.runtime.wire.socket.close()  # who reads it finds that out, too
