"""Runtimes with the protostubs that the reference nodes publish: what these send, how they reconnect, how they leave.

Written from what the published stubs were observed to do (reference nodes, section 6): `via` is set on everything that
Vert.x and Matrix stubs send; their next message after a loss makes a new connection; the Node.js stub has to be made
anew then; none of them has a credential, and the Matrix stubs close without a word.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import trio

from interop.conformance.jsontext import write
from interop.conformance.model import Dialect
from interop.conformance.stage import Node, connect
from interop.conformance.wire import Line, LineClosedError, WireFaultError

Json = dict[str, Any]
PATIENCE_SECONDS = 30.0


class StubFailedError(Exception):
    """The stub has reached its state `failed`, in which its program can do nothing but make a new one."""


class PublishedStub:
    """One instance of a stub, with the program of a runtime above it."""

    dialect: ClassVar[Dialect]
    sets_via: ClassVar[bool] = True

    def __init__(self, nursery: trio.Nursery, node: Node, runtime: str) -> None:
        self._nursery, self._node = nursery, node
        self._numbers = itertools.count(2)
        self._line: Line | None = None
        self.runtime = runtime
        self.stub_url = f"{runtime}/protostub/{node.domain}"

    async def connect(self) -> None:
        """Make a connection, and do on it what the dialect begins with."""
        self._line = await connect(self._nursery, self._node, self.dialect, self.runtime)
        await self._begin()

    async def _begin(self) -> None:
        """Open the session on a new connection."""

    async def disconnect(self) -> None:
        """End the session as the stub does."""
        await self.lose()

    async def lose(self) -> None:
        """The network goes away; the stub notices with its next message."""
        if self._line is not None:
            await self._line.drop()
            self._line = None

    async def send(self, message: Json) -> None:
        """Send a message of the bus, on a new connection if there is none."""
        if self._line is None:
            await self.connect()
        assert self._line is not None
        body = message.get("body", {})
        await self._line.send(write({**message, "body": {**body, "via": self.stub_url} if self.sets_via else body}))

    async def next(self) -> Json:
        """The next message for the bus."""
        assert self._line is not None
        with trio.fail_after(PATIENCE_SECONDS):
            message = await self._line.receive()
        assert isinstance(message, dict)
        return message

    async def ask(self, type_: str, to: str, body: Json | None = None, *, from_: str = "") -> Json:
        """Send a request, and return the body of its answer."""
        number = next(self._numbers)
        message: Json = {"id": number, "type": type_, "from": from_ or self.runtime, "to": to}
        await self.send(message if body is None else {**message, "body": body})
        while (answer := await self.next()).get("id") != number:
            pass
        return dict(answer["body"])

    async def ended(self) -> None:
        """Wait until the node has closed the connection."""
        assert self._line is not None
        try:
            while True:
                await self.next()
        except (LineClosedError, WireFaultError):
            self._line = None


class VertxStub(PublishedStub):
    """`open` once, `re-open` with the token ever after; a refused `re-open` is the end."""

    dialect = Dialect.A
    _token = ""

    @property
    def session(self) -> str:
        """The session address, by which the stub names itself."""
        return f"{self.runtime}/{self._token}" if self._token else self.runtime

    async def _begin(self) -> None:
        type_ = "re-open" if self._token else "open"
        assert self._line is not None
        await self._line.send(write({"id": 1, "type": type_, "from": self.session, "to": "mn:/session"}))
        answer = await self.next()
        if answer["body"]["code"] != 200:
            raise StubFailedError(answer["body"]["desc"])
        self._token = answer["body"].get("runtimeToken", self._token)

    async def disconnect(self) -> None:
        """`close`, which is not answered; the node closes."""
        assert self._line is not None
        await self._line.send(write({"id": 1, "type": "close", "from": self.session, "to": "mn:/session"}))
        await self.ended()
        self._token = ""


class NodejsStub(PublishedStub):
    """socket.io, polling first; any answer to `open` but 200 is an exception inside; useless after a loss."""

    dialect = Dialect.SOCKETIO
    sets_via = False

    async def _begin(self) -> None:
        assert self._line is not None
        await self._line.send(write({"id": 1, "type": "open", "from": self.runtime, "to": "mn:/session"}))
        answer = await self.next()
        if answer["body"]["code"] != 200:
            raise StubFailedError("ReferenceError")

    async def disconnect(self) -> None:
        """`close`, which is not answered; the node disconnects."""
        assert self._line is not None
        await self._line.send(write({"id": 1, "type": "close", "from": self.runtime, "to": "mn:/session"}))
        await self.ended()


class MatrixStub(PublishedStub):
    """The command frame first; the one for the end is never sent, since the stub closes before."""

    dialect = Dialect.B

    async def _begin(self) -> None:
        assert self._line is not None
        await self._line.send(write({"cmd": "connect", "data": {"runtimeURL": self.runtime}}))
        answer = await self.next()
        if answer.get("response") != 200:
            raise StubFailedError(str(answer))


class NoMatrixStub(PublishedStub):
    """The query is all; the stub sends at once."""

    dialect = Dialect.C


STUBS: tuple[type[PublishedStub], ...] = (VertxStub, NodejsStub, MatrixStub, NoMatrixStub)
