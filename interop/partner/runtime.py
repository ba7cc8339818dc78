"""A runtime of the node under test with one hyperty: what a partner's messages reach, and who writes to a partner."""

from __future__ import annotations

from contextlib import suppress
from secrets import token_hex
from typing import Final

import trio

from interop.conformance.outcome import NoAnswerError
from interop.participant import AccessPoint
from interop.partner.core.keys import Members
from interop.partner.node import NodeUnderTest
from interop.runtime_client import Answer, RuntimeClient, UnexpectedAnswerError
from interop.talker import Talker
from protofly.errors import TransportError

_CLOSE_SECONDS: Final = 3.0


def _access(node: NodeUnderTest) -> AccessPoint:
    url = node.terms.runtimes
    return AccessPoint(url=url, ssl_context=node.context if url.startswith("wss") else None)


async def opens_session(node: NodeUnderTest, runtime: str) -> bool:
    """Try to open a session that proves nothing but its address; returns True if the node permits it.

    Raises:
        NoAnswerError: It is not even answered.
    """
    access = _access(node)
    client = RuntimeClient(
        url=access.url, runtime=runtime, ssl_context=access.ssl_context, on_message=lambda _message: None
    )
    is_open = False
    problem = ""
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            is_open = True
            client.drop()
    except* UnexpectedAnswerError:
        is_open = False
    except* TransportError as lost:
        problem = str(lost.exceptions[0])
    if problem:
        raise NoAnswerError(f"{runtime} asks for a session: {problem}")
    return is_open


class NodeRuntime:
    """One runtime, with a session that is opened when it is first needed."""

    def __init__(self, node: NodeUnderTest, label: str, nursery: trio.Nursery) -> None:
        self._node = node
        self._label = label
        self._nursery = nursery
        self._talker: Talker | None = None
        self._answering, self._answers = trio.open_memory_channel[Answer | TransportError](1)

    @property
    def hyperty(self) -> str:
        """Its hyperty, "" before the session is open."""
        return self._talker.hyperty if self._talker is not None else ""

    async def talker(self) -> Talker:
        """The runtime, with its session open.

        Raises:
            TransportError: The node takes no runtime.
        """
        if self._talker is None:
            talker = Talker(_access(self._node), f"runtime://{self._node.domain}/partner-{self._label}-{token_hex(3)}")
            await talker.open(self._nursery)
            self._talker = talker
        return self._talker

    async def ask(self, to: str, body: Members) -> None:
        """Send a request; `answer` waits for what comes of it."""
        talker = await self.talker()

        async def ask() -> None:
            try:
                answer: Answer | TransportError = await talker.client.request("create", talker.hyperty, to, dict(body))
            except TransportError as exc:
                answer = exc
            await self._answering.send(answer)

        self._nursery.start_soon(ask)

    async def answer(self) -> Answer:
        """The answer to the request.

        Raises:
            NoAnswerError: There is none.
        """
        answer = await self._answers.receive()
        if isinstance(answer, TransportError):
            raise NoAnswerError(f"ana's request: {answer}")
        return answer

    async def close(self) -> None:
        """End the session properly."""
        if self._talker is not None:
            with trio.move_on_after(_CLOSE_SECONDS), suppress(TransportError):
                await self._talker.client.close()
