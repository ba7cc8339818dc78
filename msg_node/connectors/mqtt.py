"""Dialect A through an MQTT broker: each runtime publishes to one topic of its own and subscribes to another one.

A topic names its runtime, and the access rules of the broker decide who may use it; in addition each message carries
the token of its session. A session belongs to its topic: opening it again follows the same rules of take-over as on any
other connection. What happens when the broker was away is in `mqtt_presence.py`.

Source: message specification, sections 5.4 and 19.5; docs/bindings.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

import trio

from msg_node.connectors.core.mqtt_topics import GONE, Topics
from msg_node.connectors.expecting_port import ExpectingPort, ExpectingQueue, token_in
from msg_node.connectors.mqtt_client import Arrival, BrokerMemory, BrokerOptions, MqttClient
from msg_node.connectors.mqtt_presence import MqttSession, Presence
from msg_node.connectors.reception import Reception
from msg_node.connectors.websocket import hand_over
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Dialect
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import (
    HTTP_REPLY_SECONDS,
    MQTT_GONE_SECONDS,
    MQTT_OPENS_AT_ONCE,
    SESSIONS,
)
from protofly.message import Message

_BROKER: Final = "mqtt"
"""The network of all runtimes behind the broker, which does not say where they are."""
_OPENINGS: Final = frozenset({"open", "re-open", "reopen", "re_open"})


class MqttOptions(NamedTuple):
    """Settings of runtimes behind a broker.

    `needs_token`: each message must carry the token of its session; else the access rules of the broker suffice.
    """

    broker: BrokerOptions
    prefix: str
    needs_token: bool = True


class MqttBinding:
    """All runtimes behind one broker.

    Args:
        reception: Makes the ports of runtimes.
        options: Broker and topics.
        node: Address of this node, the sender of refusals.
        domains: Our domains; only their runtimes have topics.
    """

    def __init__(self, reception: Reception, options: MqttOptions, *, node: str, domains: Collection[str]) -> None:
        self._reception = reception
        self._needs_token = options.needs_token
        self._node = node
        self._topics = Topics(options.prefix, domains)
        self._sessions: dict[str, MqttSession] = {}  # by runtime key
        self._publishers: dict[int, MqttSession] = {}  # whose message has that number at the broker
        self._probes: set[int] = set()  # those of them that say nothing
        self._opening: Counter[str] = Counter()
        self._presence = Presence(reception, self._sessions, reports_subscribers=options.broker.is_version_5)
        self.client = MqttClient(options.broker, self._topics.subscriptions(), self)

    @property
    def live_sessions(self) -> int:
        """Sessions of runtimes behind the broker."""
        return len(self._sessions)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. The connection to the broker may fail and return meanwhile."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.client.run)
            task_status.started()

    # Out.

    def publish(self, session: MqttSession, raw: bytes) -> None:
        """Send a message to a runtime; end its session if the queue of the broker is full."""
        number = self.client.publish(self._topics.down(session.runtime_key), raw)
        if not number:
            self._reception.counters[NodeCount.MQTT_PUBLICATIONS_REFUSED] += 1
            session.end()
            return
        self._publishers[number] = session
        if not raw:
            self._probes.add(number)
            session.probes += 1
        session.unacknowledged += 1

    def published(self, number: int, *, has_subscriber: bool) -> None:
        """See `BrokerUser`."""
        session = self._publishers.pop(number, None)
        if session is None:
            return
        is_probe = number in self._probes
        if is_probe:
            self._probes.discard(number)
            session.probes -= 1
        session.unacknowledged -= 1
        if session.is_in_doubt:
            self._presence.published(session, has_subscriber=has_subscriber, is_probe=is_probe)
        elif not has_subscriber:
            self._reception.counters[NodeCount.MQTT_RUNTIMES_GONE] += 1
            session.end()
        elif session.port is not None and session.port.queue.queued:
            session.port.queue.flush()

    def lost(self) -> None:
        """See `BrokerUser`. A broker that ends may publish the will of every runtime; no such will counts."""
        self._presence.cancel()
        for session in self._sessions.values():
            session.was_heard.set()

    def available(self, memory: BrokerMemory) -> None:
        """See `BrokerUser`."""
        self._presence.check(memory, self._nursery)

    # In.

    async def take(self, arrivals: list[Arrival]) -> None:
        """See `BrokerUser`. The messages of each runtime go to the bus in order, as one batch."""
        frames: dict[MqttSession, list[bytes]] = {}
        for arrival in arrivals:
            name = self._topics.read(arrival.topic)
            session = None if name is None else self._sessions.get(name.runtime_key)
            if name is None:
                self._reception.counters[NodeCount.MQTT_TOPICS_OF_NOBODY] += 1
            elif name.word == GONE:
                if session is not None:
                    self._nursery.start_soon(self._end_unless_heard, session)
            elif len(arrival.payload) > self._reception.max_bytes:
                self._reception.counters[NodeCount.MQTT_TOO_LARGE] += 1
            elif self._is_for_session(name.runtime_key, arrival, session):
                assert session is not None
                frames.setdefault(session, []).append(arrival.payload)
        for session, raws in frames.items():
            if session.port is not None:
                await hand_over(self._reception.bus, session.port, raws)

    def _is_for_session(self, runtime_key: str, arrival: Arrival, session: MqttSession | None) -> bool:
        """Return True for a message of a session, for the bus. Any other is refused, opens a session, or is dropped."""
        if session is not None:
            session.was_heard.set()
        if session is not None and session.has_handled(arrival):
            self._reception.counters[NodeCount.MQTT_REPEATED] += 1
            return False
        try:
            message = codec.decode(arrival.payload)[0]
        except PeerError:
            self._reception.counters[NodeCount.MQTT_BROKEN] += 1
            return False
        is_proved = session is not None and self._speaks_for(session, arrival, message)
        if session is not None and is_proved and session.is_in_doubt:
            self._presence.confirm(session)
        if message.to.strip() == SESSION_KEY and message.type in _OPENINGS:
            self._begin(runtime_key, arrival, message, session if is_proved else None)
            return False
        if is_proved:
            return True
        self._refuse(runtime_key, message, Code.BAD_TOKEN if _token_of(arrival, message) else Code.NO_CREDENTIALS)
        return False

    def _speaks_for(self, session: MqttSession, arrival: Arrival, message: Message) -> bool:
        token = _token_of(arrival, message)
        return digest_of(token) == session.token_digest if token or self._needs_token else True

    def _refuse(self, runtime_key: str, message: Message, code: Code) -> None:
        self._reception.counters[NodeCount.MQTT_REFUSED.of(code.word)] += 1
        if message.expects_reply and self.client.is_connected:
            refusal = codec.refusal(message, code, source=self._node)
            self.client.publish(self._topics.down(runtime_key), refusal.raw)

    # Sessions.

    def _begin(self, runtime_key: str, arrival: Arrival, message: Message, session: MqttSession | None) -> None:
        """Open a session, or renew an existing one."""
        try:
            is_own = runtime_part(message.from_key) == runtime_key
        except PeerError:
            is_own = False
        if not is_own:
            self._refuse(runtime_key, message, Code.SPOOFED_SOURCE)
        elif (
            self._opening.total() >= MQTT_OPENS_AT_ONCE
            or self._opening[runtime_key]
            or (session is None and len(self._sessions) >= SESSIONS)
        ):
            self._refuse(runtime_key, message, Code.OVERLOAD)
        else:
            self._opening[runtime_key] += 1
            self._nursery.start_soon(self._open, runtime_key, arrival, message, session)

    async def _open(self, runtime_key: str, arrival: Arrival, message: Message, renewed: MqttSession | None) -> None:
        session = renewed or MqttSession(runtime_key, self)
        if session.port is None:
            reception = self._reception
            queue = ExpectingQueue(session, counters=reception.bus.counters, bounds=reception.queue)
            session.port = reception.welcome_as(ExpectingPort, queue, Dialect.MQTT, Offered(network=_BROKER))
            self._nursery.start_soon(self._end_of_session, session, session.port)
        try:
            expected = session.port.queue.expect(message, partial(self._opened, session, arrival, message))
            await hand_over(self._reception.bus, session.port, [arrival.payload])
            with trio.move_on_after(HTTP_REPLY_SECONDS):
                await expected.has_come.wait()
            session.port.queue.flush()
        finally:
            del self._opening[runtime_key]
            if not session.token_digest:  # it was not opened
                session.end()

    def _opened(self, session: MqttSession, arrival: Arrival, message: Message, reply: Message) -> None:
        """The reply that opens a session, before the runtime gets it: the session learns its token."""
        token = token_in(message, reply)
        if token:
            session.token_digest = digest_of(token)
            session.has_handled(arrival)
            self._sessions[session.runtime_key] = session

    async def _end_unless_heard(self, session: MqttSession) -> None:
        """A runtime is reported gone: end its session unless it sends something within MQTT_GONE_SECONDS."""
        session.was_heard = trio.Event()
        with trio.move_on_after(MQTT_GONE_SECONDS):
            await session.was_heard.wait()
            return
        session.end()

    async def _end_of_session(self, session: MqttSession, port: ExpectingPort) -> None:
        try:
            await session.ended.wait()
        finally:
            if self._sessions.get(session.runtime_key) is session:
                del self._sessions[session.runtime_key]
            self._reception.release(port)


def _token_of(arrival: Arrival, message: Message) -> str:
    """The token in a message: a property, or a member of its body."""
    return arrival.token or codec.body_text(bytes(message.peek.session_token))
