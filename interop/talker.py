"""A runtime for laboratories and tests: one hyperty, a memory of what it heard, and 200 to every request."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import trio

from interop.participant import AccessPoint
from interop.runtime_client import Answer, Incoming, Members, RuntimeClient
from protofly.errors import TransportError

PATIENCE_SECONDS = 60.0
"""What must come and has not come after this time does not come."""


class Talker:
    """One runtime of one domain. `heard` is everything but answers, in order of arrival."""

    def __init__(self, access_point: AccessPoint, runtime: str) -> None:
        self.heard: list[Incoming] = []
        self.hyperty = ""
        self.domain = runtime.split("/")[2]
        self.client = RuntimeClient(
            url=access_point.url, runtime=runtime, ssl_context=access_point.ssl_context, on_message=self._hear
        )
        self._moved = trio.lowlevel.ParkingLot()
        self._to_answer, self._requests = trio.open_memory_channel[Incoming](math.inf)

    async def open(self, nursery: trio.Nursery) -> None:
        """Open the session, or open it again; the first time with a hyperty."""
        await nursery.start(self.client.run)
        if not self.hyperty:
            nursery.start_soon(self._answer_requests)
            [self.hyperty] = await self.client.at(self.domain).allocate("hyperty", 1)

    def _hear(self, message: Incoming) -> None:
        self.heard.append(message)
        self._moved.unpark_all()
        if message.id is not None and message.type != "response":
            self._to_answer.send_nowait(message)

    async def _answer_requests(self) -> None:
        async for request in self._requests:
            try:
                await self.client.respond(request, {"code": 200, "value": request.body.get("value")})
            except TransportError:
                continue  # the node is gone: the one that asked learns it from another

    async def wait_for(self, condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Until something that arrives makes `condition` true."""
        with trio.fail_after(seconds):
            while not condition():
                await self._moved.park()

    async def post(self, to: str, number: int) -> None:
        """A numbered event: nobody answers it."""
        await self.client.notify("create", self.hyperty, to, {"value": number})

    async def ask(self, to: str, number: int = 0) -> Answer:
        """A numbered request."""
        return await self.client.request("create", self.hyperty, to, {"value": number})

    def numbers_from(self, sender: str) -> list[int]:
        """The numbers of what `sender` sent, in order of arrival."""
        return [cast("int", one.body["value"]) for one in self.heard if one.from_ == sender and "value" in one.body]

    async def hear_numbers(self, sender: str, count: int) -> list[int]:
        """Wait until `count` numbers of `sender` are here; returns all of them."""
        try:
            await self.wait_for(lambda: len(self.numbers_from(sender)) >= count)
        except trio.TooSlowError:
            raise AssertionError(f"only {len(self.numbers_from(sender))} of {count} came from {sender}") from None
        return self.numbers_from(sender)


def body_of(answer: Answer) -> Members:
    """The members of an answer, without those that explain it."""
    return {name: value for name, value in answer.body.items() if name not in {"desc", "description"}}
