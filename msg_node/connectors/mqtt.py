"""Dialect A through an MQTT broker: runtimes publish messages to a topic of their own and listen to another one.

A topic names its runtime, and the broker's access rules say who may use it; on top of that each message carries the
token of its session. The session hangs on the topic: who opens again goes through the same rules of take-over as on any
other connection.

A broker that has gone and comes back may have forgotten what was on its way, and who listens. Until it is known that a
runtime is there again its session is *in doubt*: what is for it waits here. It is there when its broker says that
somebody listens to its topic (MQTT 5), or when it says something itself. Then actions that it has not acknowledged are
handed to it again, under their ids, unless the broker is known to have kept them.

Source: message specification, sections 5.4 and 19.5; docs/bindings.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, OrderedDict
from collections.abc import Collection
from functools import partial
from typing import Final, NamedTuple

import trio

from msg_node.bus.runtime_port import STUCK_SECONDS
from msg_node.connectors.core.mqtt_topics import GONE, Topics
from msg_node.connectors.expecting_port import ExpectingPort, token_in
from msg_node.connectors.mqtt_client import Arrival, BrokerMemory, BrokerOptions, MqttClient
from msg_node.connectors.reception import Reception
from msg_node.connectors.websocket import hand_over
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.resources import SESSION_KEY
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Dialect
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import (
    HTTP_REPLY_SECONDS,
    MQTT_DOUBT_SECONDS,
    MQTT_GONE_SECONDS,
    MQTT_OPENS_AT_ONCE,
    MQTT_REPEATS_REMEMBERED,
    MQTT_UNACKNOWLEDGED,
    SESSIONS,
)
from protofly.message import Message

_OPENINGS: Final = frozenset({"open", "re-open", "reopen", "re_open"})
_NO_PAYLOAD: Final = b""
_PROBE_SECONDS: Final = 0.25  # doubled, so that a crowd that comes back is not asked for ever


class MqttOptions(NamedTuple):
    """How runtimes come through a broker.

    `needs_token`: each message carries the token of its session; else the broker's access rules alone vouch for it.
    """

    broker: BrokerOptions
    prefix: str
    needs_token: bool = True


class MqttSession:
    """One runtime behind the broker; see `MessageChannel`."""

    silent_periods: int = sys.maxsize
    """Who has gone is told by the broker: by a will, or when nobody is there for a sign of life."""
    stuck_seconds: float = STUCK_SECONDS

    def __init__(self, runtime_key: str, binding: MqttBinding) -> None:
        self.runtime_key = runtime_key
        self.port: ExpectingPort | None = None
        self.token_digest = ""
        self.unacknowledged = 0
        self.ended = trio.Event()
        self.was_heard = trio.Event()
        """Since the broker said that it had gone."""
        self.is_in_doubt = False
        """The broker was away, and nobody knows whether the runtime is there."""
        self.may_lack = False
        """What was published for it may never have come."""
        self.probes = 0
        """Questions whether it is there that the broker has not answered."""
        self._binding = binding
        self._handled: OrderedDict[bytes, None] = OrderedDict()

    @property
    def is_closed(self) -> bool:
        """See `MessageChannel`."""
        return self.ended.is_set()

    @property
    def takes_more(self) -> bool:
        """See `MessageChannel`."""
        is_open = self._binding.client.is_connected and not self.is_in_doubt and not self.ended.is_set()
        return is_open and self.unacknowledged < MQTT_UNACKNOWLEDGED

    def send(self, messages: list[bytes]) -> None:
        """See `MessageChannel`."""
        for raw in messages:
            self._binding.publish(self, raw)

    def ping(self) -> None:
        """See `MessageChannel`: an empty payload, which finds out whether anybody is there."""
        if self._binding.client.is_connected:
            self._binding.publish(self, _NO_PAYLOAD)

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - the messages in front of it have said so
        """See `MessageChannel`."""
        self.end()

    def drop(self) -> None:
        """See `MessageChannel`."""
        self.end()

    def end(self) -> None:
        """It is over. May be called again."""
        if self.port is not None:
            self.port.is_closing = True
            self.port.give_up_all()
        self.ended.set()

    def has_handled(self, arrival: Arrival) -> bool:
        """Whether the broker brings again what was handled; remembers what it brings."""
        digest = hashlib.blake2b(arrival.payload, digest_size=16).digest()
        if arrival.is_repeated and digest in self._handled:
            return True
        self._handled[digest] = None
        if len(self._handled) > MQTT_REPEATS_REMEMBERED:
            self._handled.popitem(last=False)
        return False


class MqttBinding:
    """All runtimes behind one broker.

    Args:
        reception: Where runtimes get their ports.
        options: How they come.
        node: Our runtime address, which signs what is refused.
        domains: Our domains: only their runtimes have topics.
    """

    def __init__(self, reception: Reception, options: MqttOptions, *, node: str, domains: Collection[str]) -> None:
        self._reception = reception
        self._needs_token = options.needs_token
        self._tells_listeners = options.broker.is_version_5
        self._node = node
        self._topics = Topics(options.prefix, domains)
        self._sessions: dict[str, MqttSession] = {}  # by runtime key
        self._publishers: dict[int, MqttSession] = {}  # whose message has that number at the broker
        self._probes: set[int] = set()  # those of them that say nothing
        self._doubts = trio.CancelScope()
        self._opening: Counter[str] = Counter()
        self.client = MqttClient(
            options.broker,
            topics=self._topics.subscriptions(),
            take=self._take,
            published=self._published,
            available=self._available,
            lost=self._broker_lost,
        )

    @property
    def live_sessions(self) -> int:
        """Sessions of runtimes behind the broker."""
        return len(self._sessions)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the broker may come and go."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.client.run)
            task_status.started()

    # Out.

    def publish(self, session: MqttSession, raw: bytes) -> None:
        """Send something to a runtime; one for which nothing can be sent any more is lost."""
        number = self.client.publish(self._topics.down(session.runtime_key), raw)
        if not number:
            self._reception.counters["mqtt publications refused"] += 1
            session.end()
            return
        self._publishers[number] = session
        if not raw:
            self._probes.add(number)
            session.probes += 1
        session.unacknowledged += 1

    def _published(self, number: int, is_anybody_there: bool) -> None:
        session = self._publishers.pop(number, None)
        if session is None:
            return
        is_probe = number in self._probes
        if is_probe:
            self._probes.discard(number)
            session.probes -= 1
        session.unacknowledged -= 1
        if session.is_in_doubt:
            if is_anybody_there and self._tells_listeners:
                self._is_back(session)
            elif not is_probe:
                session.may_lack = True  # it came too early
        elif not is_anybody_there:
            self._reception.counters["mqtt runtimes gone"] += 1
            session.end()
        elif session.port is not None and session.port.queued:
            session.port.flush()

    def _broker_lost(self) -> None:
        """A broker that ends says of everybody that he has gone."""
        self._doubts.cancel()
        for session in self._sessions.values():
            session.was_heard.set()

    # A broker that is back.

    def _available(self, memory: BrokerMemory) -> None:
        """The broker is there (again). Version 3.1.1 does not say who listens: one that remembers is believed."""
        for session in list(self._sessions.values()):
            session.may_lack = session.may_lack or memory is not BrokerMemory.KEPT
            session.is_in_doubt = self._tells_listeners or memory is BrokerMemory.LOST
            if not session.is_in_doubt:
                self._is_back(session)
        self._doubts = trio.CancelScope()
        self._nursery.start_soon(self._settle_doubts, self._doubts)

    async def _settle_doubts(self, scope: trio.CancelScope) -> None:
        """Ask for those in doubt until they are there, and end the sessions of those who do not come."""
        with scope:
            pause_seconds = _PROBE_SECONDS
            with trio.move_on_after(MQTT_DOUBT_SECONDS):
                while self._in_doubt():
                    for session in self._in_doubt() if self._tells_listeners else ():
                        if not session.probes:
                            session.ping()
                    await trio.sleep(pause_seconds)
                    pause_seconds *= 2
            for session in self._in_doubt():
                self._reception.counters["mqtt runtimes gone"] += 1
                session.end()

    def _in_doubt(self) -> list[MqttSession]:
        return [session for session in self._sessions.values() if session.is_in_doubt and not session.is_closed]

    def _is_back(self, session: MqttSession) -> None:
        """A runtime is there: what it may lack comes again, and then what waited for it."""
        session.is_in_doubt = False
        if session.port is None:
            return
        if session.may_lack and session.port.sid is not None:
            self._reception.bus.deliveries.agents.hand_over_again(session.port.sid)
        session.may_lack = False
        session.port.flush()

    # In.

    async def _take(self, arrivals: list[Arrival]) -> None:
        """Hand on what arrived: in order for each runtime, and as one batch."""
        frames: dict[MqttSession, list[bytes]] = {}
        for arrival in arrivals:
            name = self._topics.read(arrival.topic)
            session = None if name is None else self._sessions.get(name.runtime_key)
            if name is None:
                self._reception.counters["mqtt topics of nobody"] += 1
            elif name.word == GONE:
                if session is not None:
                    self._nursery.start_soon(self._end_unless_heard, session)
            elif len(arrival.payload) > self._reception.max_bytes:
                self._reception.counters["mqtt messages too large"] += 1
            elif self._is_for_session(name.runtime_key, arrival, session):
                assert session is not None
                frames.setdefault(session, []).append(arrival.payload)
        for session, raws in frames.items():
            await self._hand_over(session, raws)

    async def _hand_over(self, session: MqttSession, raws: list[bytes]) -> None:
        if raws and session.port is not None:
            await hand_over(self._reception.bus, session.port, raws)

    def _is_for_session(self, runtime_key: str, arrival: Arrival, session: MqttSession | None) -> bool:
        """Whether a message goes to the bus as one of a session; else it is refused, or opens one, or says nothing."""
        if session is not None:
            session.was_heard.set()
        if session is not None and session.has_handled(arrival):
            self._reception.counters["mqtt messages repeated"] += 1
            return False
        try:
            message = codec.decode(arrival.payload)[0]
        except PeerError:
            self._reception.counters["mqtt messages broken"] += 1
            return False
        is_proved = session is not None and self._speaks_for(session, arrival, message)
        if session is not None and is_proved and session.is_in_doubt:
            self._is_back(session)
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
        self._reception.counters[f"mqtt refused {code.word}"] += 1
        if message.expects_reply and self.client.is_connected:
            refusal = codec.refusal(message, code, source=self._node)
            self.client.publish(self._topics.down(runtime_key), refusal.raw)

    # Sessions.

    def _begin(self, runtime_key: str, arrival: Arrival, message: Message, session: MqttSession | None) -> None:
        """Let a session be opened, or renewed if it is there."""
        try:
            is_own = runtime_part(message.from_key) == runtime_key
        except PeerError:
            is_own = False
        if not is_own:
            self._refuse(runtime_key, message, Code.SPOOFED_SOURCE)
        elif self._opening.total() >= MQTT_OPENS_AT_ONCE or self._opening[runtime_key] or self._is_full(session):
            self._refuse(runtime_key, message, Code.OVERLOAD)
        else:
            self._opening[runtime_key] += 1
            self._nursery.start_soon(self._open, runtime_key, arrival, message, session)

    def _is_full(self, session: MqttSession | None) -> bool:
        return session is None and len(self._sessions) >= SESSIONS

    async def _open(self, runtime_key: str, arrival: Arrival, message: Message, renewed: MqttSession | None) -> None:
        session = renewed or MqttSession(runtime_key, self)
        if session.port is None:
            session.port = self._reception.welcome_as(
                ExpectingPort, session, Dialect.MQTT, Offered(), self._reception.queue
            )
            self._nursery.start_soon(self._say_farewell, session, session.port)
        try:
            expected = session.port.expect(message, partial(self._opened, session, arrival, message))
            await hand_over(self._reception.bus, session.port, [arrival.payload])
            with trio.move_on_after(HTTP_REPLY_SECONDS):
                await expected.has_come.wait()
            session.port.flush()
        finally:
            del self._opening[runtime_key]
            if not session.token_digest:  # it did not come to be
                session.end()

    def _opened(self, session: MqttSession, arrival: Arrival, message: Message, reply: Message) -> None:
        """What a runtime hears first of its session is this reply; from here on the session knows its token."""
        token = token_in(message, reply)
        if token:
            session.token_digest = digest_of(token)
            session.has_handled(arrival)
            self._sessions[session.runtime_key] = session

    async def _end_unless_heard(self, session: MqttSession) -> None:
        """The broker says that a runtime has gone, which may come back at once; then it goes on."""
        session.was_heard = trio.Event()
        with trio.move_on_after(MQTT_GONE_SECONDS):
            await session.was_heard.wait()
            return
        session.end()

    async def _say_farewell(self, session: MqttSession, port: ExpectingPort) -> None:
        try:
            await session.ended.wait()
        finally:
            if self._sessions.get(session.runtime_key) is session:
                del self._sessions[session.runtime_key]
            self._reception.farewell(port)


def _token_of(arrival: Arrival, message: Message) -> str:
    """The token that a message carries: as a property, or in its body."""
    return arrival.token or codec.body_text(bytes(message.peek.session_token))
