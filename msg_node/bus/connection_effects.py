"""Effects of steps on connections: bind them to sessions, probe, notify and close them.

All of it happens at once, except that a connection is closed, and a session that could not be stored is taken from its
connection, when the commit has ended. Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msg_node.bus.absences import Absences
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import shown_of
from msg_node.kernel.service import (
    Bind,
    CloseConnection,
    Effect,
    Ended,
    Notice,
    Parked,
    Probe,
    ServiceResult,
    SessionNews,
)
from msg_node.requests.agent_handover import AgentHandover
from policy.core.session_class import SessionClass
from protofly.message import Message
from protofly.records import SessionEvent


class ConnectionEffects:
    """Keeps the connections in step with the sessions.

    Args:
        word: Words what a connection is notified of.
        absences: Sessions that return.
        ended: Called with each session that has ended.
        now: The clock of the bus: seconds since the Unix epoch.
    """

    def __init__(
        self,
        state: BusTables,
        send_queues: SendQueues,
        absences: Absences,
        *,
        word: Callable[[Notice], Message],
        ended: Sequence[Callable[[int], None]],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self.send_queues = send_queues
        self.now = now
        self._ports, self._connections = send_queues.ports, send_queues.connections
        self._absences = absences
        self._word = word
        self._ended = ended
        self._agents: AgentHandover

    def connect(self, agents: AgentHandover) -> None:
        """Set who is notified that agents arrive and leave; once, before anything runs."""
        self._agents = agents

    def perform(self, result: ServiceResult) -> None:
        """Do what a step asks for at once: notices, effects, audit records."""
        for notice in result.notices:
            self._notify(notice)
        for effect in result.effects:
            self._do(effect)
        for news in result.news:
            self._record(news)

    def committed(self, effect: Effect) -> None:
        """A step has been committed and its replies are queued: do what comes after them."""
        if isinstance(effect, CloseConnection):
            port = self._connections.get(effect.connection)
            if port is not None:
                port.sid = None
                port.queue.close(int(effect.code), effect.code.word)
        elif isinstance(effect, Bind):
            self._absences.arrived(effect.sid)
            self._agents.bound(effect.sid)

    def unbind(self, bind: Bind) -> bool:
        """Take from its connection a session that could not be stored: nobody was given its token.

        Returns:
            False when it has that connection no more.
        """
        port = self._connections.get(bind.connection)
        if port is None or port.sid != bind.sid:
            return False
        self._ports.pop(bind.sid, None)
        port.sid = None
        return True

    def _notify(self, notice: Notice) -> None:
        """Queue for a connection what becomes of its session; it stands in front of the close."""
        port = self._connections.get(notice.connection)
        if port is not None:
            port.queue.enqueue(self._word(notice))

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Bind):
            self._bind(effect)
        elif isinstance(effect, Probe):
            port = self._connections.get(effect.connection)
            if port is not None:
                port.queue.channel.ping()
        elif isinstance(effect, Ended | Parked):
            port = self._ports.pop(effect.sid, None)
            if port is not None:
                port.sid = None  # what follows in the same read is no session's
            self._agents.lost(effect.sid)
            if isinstance(effect, Ended):
                for forget in self._ended:
                    forget(effect.sid)

    def _bind(self, bind: Bind) -> None:
        port = self._connections.get(bind.connection)
        if port is not None:
            port.sid = bind.sid
            port.on_opened()
            session = self._state.sessions.get(bind.sid)
            port.guest_of = self._state.guests.domain(bind.sid)
            port.roles = frozenset() if session is None else shown_of(session.proof)
            if port.guest_of:
                port.roles = SessionClass.GUEST.alone
            port.queue.wants_late = session is not None and session.wants_late
            self._ports[bind.sid] = port
            self._absences.arriving(bind.sid)

    def _record(self, news: SessionNews) -> None:
        """Count and record what happened to a session."""
        self.send_queues.counters[NodeCount.SESSIONS.of(news.event)] += 1
        for see in self.send_queues.watchers.news:
            see(news)
        self.send_queues.records.append(
            SessionEvent(
                ts_us=int(self.now() * 1e6),
                event=news.event,
                runtime_key=news.runtime_key,
                session=news.sid,
                code=news.code or None,
                detail=news.detail or None,
                addresses=news.addresses,
                subscriptions=news.subscriptions,
            )
        )
