"""Sessions without a connection: what observers miss while they are away, and their return.

An observer that returns is answered first, gets what it missed next, and what is new after that: in the order in which
everything was sent. Source: feature rows DS-08 and DS-14; message specification, section 5.4.
"""

from __future__ import annotations

import trio

from msg_node.addresses.core.missed import Missed
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.answers import gap_word
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.resources import object_of_events


class Absences:
    """Sessions that are away and those that return.

    Args:
        send_queues: Keep what those miss that are away. Their counters: "changes caught up", "gaps told".
    """

    def __init__(self, state: BusTables, send_queues: SendQueues) -> None:
        self._state = state
        self._send_queues = send_queues
        self._counters = send_queues.counters

    def keep(self, missed: Missed | None) -> None:
        """Keep in `missed` what observers miss; None: nothing. What those who are away missed before is not known."""
        self._send_queues.missed = missed
        if missed is not None:
            away = [one.sid for one in self._state.sessions if one.sid not in self._send_queues.ports]
            held = ((sid, self._state.listeners.subscriptions(sid)) for sid in away)
            missed.unknown([sid for sid, all_ in held if any(object_of_events(one.key) for one in all_)])

    def is_away(self, key: str) -> bool:
        """True when no connected session owns a canonical address."""
        owner = self._state.owners.owner(key)
        return owner is None or owner not in self._send_queues.ports

    def arriving(self, sid: int) -> None:
        """A session has a connection and is notified next: what it missed comes before what is new."""
        missed = self._send_queues.missed
        if missed is not None and missed.has(sid):
            self._send_queues.ports[sid].queue.wait_for_answer()

    def arrived(self, sid: int) -> None:
        """A session was notified that it has a connection: queue what it missed. Repeated calls queue nothing more."""
        missed, port = self._send_queues.missed, self._send_queues.ports.get(sid)
        if port is None:
            return
        port.queue.go_on()
        if missed is None:
            return
        session, catch_up = self._state.sessions.get(sid), missed.take(sid, trio.current_time())
        self._counters[NodeCount.CHANGES_CAUGHT_UP] += len(catch_up.messages)
        for message in catch_up.messages:
            if self._state.listeners.listens(sid, message.to_key):  # it may have been taken off meanwhile
                self._send_queues.enqueue_unseen(port, message)
        if session is not None and (catch_up.gaps or catch_up.is_vague):
            self._counters[NodeCount.GAPS_REPORTED] += 1
            self._send_queues.enqueue(port, gap_word(session.runtime, catch_up.gaps, is_vague=catch_up.is_vague))

    def ended(self, sid: int) -> None:
        """A session has ended: drop what it missed."""
        if self._send_queues.missed is not None:
            self._send_queues.missed.forget(sid)
