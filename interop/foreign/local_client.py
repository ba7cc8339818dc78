"""A runtime of a simulated node, used as `RuntimeClient` is used over a socket: messages go through memory.

A runtime whose node was killed, or that left, gets another address when it comes back: these nodes keep addresses with
connections.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import trio

from interop.foreign.simulator import ForeignNode, Json, LocalRuntime
from interop.runtime_client import Answer, Incoming, Members, RuntimeClient, UnexpectedAnswerError
from protofly.errors import Code, TransportError

_GONE = Answer(code=404, reason="unknown-session", value=None, body={}, taken_ns=0)


class _Ear(LocalRuntime):
    """Gives everything that the node sends to the client."""

    def __init__(self, node: ForeignNode, name: str, take: Callable[[str], None]) -> None:
        self._take = take
        super().__init__(node, name)

    def send(self, message: Json) -> None:
        """See `Line`."""
        self._take(json.dumps(message, ensure_ascii=False))


class LocalClient(RuntimeClient):
    """One runtime at a simulated node. Events bear an id, since these nodes take no message without one."""

    events_bear_ids = True

    def __init__(self, node: ForeignNode, runtime: str, on_message: Callable[[Incoming], None]) -> None:
        super().__init__(url="", runtime=runtime, ssl_context=None, on_message=on_message)
        self._node = node
        self._ear: _Ear | None = None

    async def run(self, *, task_status: trio.TaskStatus[Answer] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect to the node, and stay until it is killed or `drop` is called.

        Raises:
            TransportError: CONNECT_FAILED while the node does not run.
            UnexpectedAnswerError: This client was connected before; what it had is gone.
        """
        if self._ear is not None:
            raise UnexpectedAnswerError(f"re-open {self.runtime}", _GONE)
        if not self._node.is_running:
            raise TransportError(Code.CONNECT_FAILED, f"{self._node.domain} does not run", phase="connect")
        self._closed = trio.Event()
        self._ear = ear = _Ear(self._node, self.runtime.rpartition("/")[2], self._took)
        self._node.on_kill.append(self._closed.set)
        try:
            task_status.started(_GONE)
            await self._closed.wait()
        finally:
            self._node.on_kill.remove(self._closed.set)
            self._node.went(ear)
            for transaction in self._transactions.values():
                transaction.done.set()

    def _took(self, text: str) -> None:
        self._take(text, time.monotonic_ns())

    async def notify(self, type_: str, from_: str, to: str, body: Members) -> None:
        """See `RuntimeClient`; the answer, if there is one, is for nobody."""
        self._last_id += 1
        await self._send({"id": self._last_id, "type": type_, "from": from_, "to": to, "body": body})

    async def _send(self, message: Members) -> None:
        if self._ear is None or self._closed.is_set():
            raise TransportError(Code.NOT_CONNECTED, self.runtime, phase="write")
        await trio.lowlevel.checkpoint()
        self._node.receive(self._ear, json.dumps(message, ensure_ascii=False))
