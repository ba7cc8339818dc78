"""Connections of runtimes: how they begin and end, and the sessions that are opened and closed on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from os import urandom

from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import Effects
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.refusals import Refusals
from msg_node.bus.runtime_port import RuntimePort, ignore_message
from msg_node.bus.services import OPENS, SessionRequests
from msg_node.bus.session_moves import SessionMoves
from msg_node.kernel.identifiers import SEED_BYTES
from protofly.errors import PeerError
from protofly.message import Message
from wire.core.websocket import GOING_AWAY


class Runtimes:
    """The connections of runtimes, as connectors report them.

    Args:
        sessions: Serves requests to `mn:/session`.
        own: Sends what sessions that end lead to.
        refusals: Answers what a runtime does not read in time.
        moves: Claims runtimes, for one of several nodes.
    """

    def __init__(
        self,
        state: BusTables,
        sessions: SessionRequests,
        effects: Effects,
        own: OwnMessages,
        refusals: Refusals,
        moves: SessionMoves | None = None,
    ) -> None:
        self._moves = moves
        self._state = state
        self._sessions = sessions
        self._effects = effects
        self._own = own
        self._refusals = refusals
        self._send_queues = refusals.send_queues

    @property
    def live_sessions(self) -> int:
        """Sessions with a connection."""
        return len(self._send_queues.ports)

    def connected(self, port: RuntimePort) -> None:
        """A connection was accepted; it has no session yet."""
        self._send_queues.connections[port.connection] = port
        port.answer, port.queue.on_expired = partial(self._send_queues.enqueue, port), self._refusals.unread

    def disconnected(self, port: RuntimePort) -> None:
        """A connection has ended."""
        self._send_queues.closed(port)
        port.answer = ignore_message
        self._effects.apply(self._sessions.connection_lost(port.connection, now=self._effects.now()), self._own.send)

    def remove(self, sids: Iterable[int]) -> None:
        """An operator ends sessions: their connections are closed with 4403, and nothing brings them back."""
        self._effects.apply(self._sessions.remove(sids, now=self._effects.now()), self._own.send)

    def runtime_of(self, port: RuntimePort) -> str:
        """Address of the runtime that has its session on a connection, "" before there is one."""
        session = None if port.sid is None else self._state.sessions.get(port.sid)
        return "" if session is None else session.runtime

    def ask_session(
        self, port: RuntimePort, message: Message, answer: Callable[[Message], None], *, now: float
    ) -> None:
        """Serve a message to `mn:/session`: the runtime's own, or one that a connector words for it.

        `answer` takes the reply, if there is one, as soon as what it promises is durable.
        """
        if self._moves is not None and message.type in OPENS and not self._sessions.opens_nothing:
            go_on, refuse = partial(self._go_on, port, message, answer), partial(self._refuse, port, message, answer)
            if self._moves.prepare(port, message, go_on, refuse):
                return
        self._serve(port, message, answer, now)

    def _serve(self, port: RuntimePort, message: Message, answer: Callable[[Message], None], now: float) -> None:
        if message.type == "open":
            self._note_holder(message)
        result = self._sessions.handle_session(message, port.line, now=now, seed=urandom(SEED_BYTES))
        self._effects.apply(result, answer)

    def _go_on(self, port: RuntimePort, message: Message, answer: Callable[[Message], None]) -> None:
        """The runtime is ours: serve it, if it is still connected."""
        if port.connection in self._send_queues.connections:
            self._serve(port, message, answer, self._effects.now())

    def _refuse(self, port: RuntimePort, message: Message, answer: Callable[[Message], None], error: PeerError) -> None:
        if port.connection in self._send_queues.connections:
            self._effects.apply(self._sessions.refused(message, port.line, error), answer)

    def refuse_opens(self, retry_seconds: float, alternatives: tuple[str, ...] = ()) -> None:
        """The node stops: refuse sessions, and notify every runtime. Source: message specification, section 5.4."""
        self._sessions.refuse_opens(retry_seconds, alternatives)
        ports = self._send_queues.ports
        for sid, message in self._sessions.draining(next(iter(alternatives), ""), list(ports)).items():
            self._send_queues.enqueue(ports[sid], message)
        self._send_queues.wake()

    def fence_opens(self, retry_seconds: float | None) -> None:
        """Refuse sessions for a while; with None, go on."""
        self._sessions.fence_opens(retry_seconds)

    def finish(self) -> int:
        """Close every connection behind what waits for its runtime; returns how many messages were not written."""
        connections = list(self._send_queues.connections.values())
        return sum(port.queue.finish(GOING_AWAY, "the node stops") for port in connections)

    def stop_reading(self) -> None:
        """Take nothing more from connections that have not answered the close of `finish`."""
        for port in self._send_queues.connections.values():
            port.queue.is_closing = True

    def _note_holder(self, message: Message) -> None:
        """The holder of the session that an opener asks for is alive if it answered the ping of an earlier opener."""
        with contextlib.suppress(PeerError):
            holder = self._send_queues.ports.get(self._state.sessions.by_runtime(message.from_key) or 0)
            if holder is not None and holder.sid is not None:
                self._state.transitions.heard(holder.sid, now=holder.heard_at)
