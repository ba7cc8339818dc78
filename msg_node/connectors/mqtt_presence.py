"""The sessions of runtimes behind an MQTT broker, and which of them are still there when the broker has been away.

A broker that returns may have lost messages on their way, and subscriptions. Until a runtime is known to be there, its
session is *in doubt*: messages for it wait here. It is there once the broker reports a subscriber on its topic (MQTT
5), or when it sends something itself. Actions that it has not acknowledged are then delivered again, under their ids,
unless the broker is known to have kept them.

Source: message specification, section 19.5; docs/bindings.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

import trio

from msg_node.bus.runtime_port import STUCK_SECONDS
from msg_node.connectors.expecting_port import ExpectingPort
from msg_node.connectors.mqtt_client import Arrival, BrokerMemory, MqttClient
from msg_node.connectors.reception import Reception
from msg_node.kernel.counts import NodeCount
from protofly.limits import MQTT_DOUBT_SECONDS, MQTT_REPEATS_REMEMBERED, MQTT_UNACKNOWLEDGED
from protofly.pauses import doubling_seconds

_NO_PAYLOAD: Final = b""
_PROBE_SECONDS: Final = 0.25
"""First pause between probes; doubled each time, so that many returning runtimes do not cause a flood of them."""


class Publisher(Protocol):
    """Publishes for a session."""

    client: MqttClient

    def publish(self, session: MqttSession, raw: bytes) -> None:
        """Send a message to the runtime of a session."""


class MqttSession:
    """The channel of one runtime behind the broker; see `MessageChannel`."""

    silent_periods: int = sys.maxsize
    """Never ended for silence: the broker reports a runtime that is gone, by its will or for an unanswered ping."""
    stuck_seconds: float = STUCK_SECONDS

    def __init__(self, runtime_key: str, broker: Publisher) -> None:
        self.runtime_key = runtime_key
        self.port: ExpectingPort | None = None
        self.token_digest = ""
        self.unacknowledged = 0
        self.ended = trio.Event()
        self.was_heard = trio.Event()
        """Set by a message of the runtime after the broker has reported it gone."""
        self.is_in_doubt = False
        """The broker was away, and it is not known yet whether the runtime is still there."""
        self.may_lack = False
        """Messages published for it may not have arrived."""
        self.probes = 0
        """Probes that the broker has not answered."""
        self._broker = broker
        self._handled: OrderedDict[bytes, None] = OrderedDict()

    @property
    def is_closed(self) -> bool:
        """See `MessageChannel`."""
        return self.ended.is_set()

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        is_open = self._broker.client.is_connected and not self.is_in_doubt and not self.ended.is_set()
        return is_open and self.unacknowledged < MQTT_UNACKNOWLEDGED

    def send(self, messages: list[bytes]) -> None:
        """See `MessageChannel`."""
        for raw in messages:
            self._broker.publish(self, raw)

    def ping(self) -> None:
        """See `MessageChannel`: publish an empty payload, to learn from the broker whether it has a subscriber."""
        if self._broker.client.is_connected:
            self._broker.publish(self, _NO_PAYLOAD)

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - the messages before it have said so
        """See `MessageChannel`."""
        self.end()

    def drop(self) -> None:
        """See `MessageChannel`."""
        self.end()

    def end(self) -> None:
        """End the session. May be called again."""
        if self.port is not None:
            self.port.queue.is_closing = True
            self.port.queue.give_up_all()
        self.ended.set()

    def has_handled(self, arrival: Arrival) -> bool:
        """Return True for a repeated message that was handled before; remember any other."""
        digest = hashlib.blake2b(arrival.payload, digest_size=16).digest()
        if arrival.is_repeated and digest in self._handled:
            return True
        self._handled[digest] = None
        if len(self._handled) > MQTT_REPEATS_REMEMBERED:
            self._handled.popitem(last=False)
        return False


class Presence:
    """Finds out which runtimes are there when the broker has returned, and ends the sessions of the others.

    Args:
        reception: Counts, and has the bus that delivers actions again.
        sessions: The sessions by runtime key; read only.
        reports_subscribers: The broker says whether a message had a subscriber (MQTT 5).
    """

    def __init__(self, reception: Reception, sessions: Mapping[str, MqttSession], *, reports_subscribers: bool) -> None:
        self._reception = reception
        self._sessions = sessions
        self._reports_subscribers = reports_subscribers
        self._scope = trio.CancelScope()

    def check(self, memory: BrokerMemory, nursery: trio.Nursery) -> None:
        """The broker is available: begin to find out. Version 3.1.1 reports no subscribers; its memory is trusted."""
        for session in list(self._sessions.values()):
            session.may_lack = session.may_lack or memory is not BrokerMemory.KEPT
            session.is_in_doubt = self._reports_subscribers or memory is BrokerMemory.LOST
            if not session.is_in_doubt:
                self.confirm(session)
        self._scope = trio.CancelScope()
        nursery.start_soon(self._settle, self._scope)

    def cancel(self) -> None:
        """The broker is lost again: what is in doubt stays so."""
        self._scope.cancel()

    def published(self, session: MqttSession, *, has_subscriber: bool, is_probe: bool) -> None:
        """The broker has taken a message for a session in doubt."""
        if has_subscriber and self._reports_subscribers:
            self.confirm(session)
        elif not is_probe:
            session.may_lack = True  # it was published too early

    def confirm(self, session: MqttSession) -> None:
        """A runtime is there: deliver again what it may lack, and then what waited for it."""
        session.is_in_doubt = False
        if session.port is None:
            return
        if session.may_lack and session.port.sid is not None:
            self._reception.bus.parked_actions.agents.hand_over_again(session.port.sid)
        session.may_lack = False
        session.port.queue.flush()

    async def _settle(self, scope: trio.CancelScope) -> None:
        with scope:
            with trio.move_on_after(MQTT_DOUBT_SECONDS):
                await self._probe()
            for session in self._in_doubt():
                self._reception.counters[NodeCount.MQTT_RUNTIMES_GONE] += 1
                session.end()

    async def _probe(self) -> None:
        """Probe the sessions in doubt until none is left."""
        rounds = 0
        while in_doubt := self._in_doubt():
            for session in in_doubt if self._reports_subscribers else ():
                if not session.probes:
                    session.ping()
            rounds += 1
            await trio.sleep(doubling_seconds(_PROBE_SECONDS, rounds, MQTT_DOUBT_SECONDS))

    def _in_doubt(self) -> list[MqttSession]:
        return [session for session in self._sessions.values() if session.is_in_doubt and not session.is_closed]
