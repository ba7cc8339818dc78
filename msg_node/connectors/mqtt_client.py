"""The node's connection to an MQTT broker: Paho's client, driven by trio through its external-loop interface.

Paho keeps what was published and not yet acknowledged, and sends it again after a reconnect; what arrives is
acknowledged only when the node has taken it (`manual_ack`). Connecting blocks, so a thread does it; everything else
runs in trio. Source: MQTT 5.0, sections 4.3 and 4.4.
"""

from __future__ import annotations

import logging
import random
import select
import socket
import ssl
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, cast

import trio
from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from protofly.limits import (
    MQTT_CONNECT_SECONDS,
    MQTT_KEEP_ALIVE_SECONDS,
    MQTT_QUEUED_MESSAGES,
    MQTT_RETRY_SECONDS,
    MQTT_WINDOW_MESSAGES,
)
from protofly.pauses import doubling_seconds, jittered

logger = logging.getLogger("msg_node.mqtt")

NO_SUBSCRIBERS: Final = 0x10
"""Reason code of version 5 for a message without a subscriber. Source: MQTT 5.0, section 3.4.2.1."""
TOKEN_PROPERTY: Final = "token"  # noqa: S105 - a name
_SHUTTING_DOWN: Final = 0x8B  # MQTT 5.0, section 3.14.2.1
_ARRIVALS_AT_ONCE: Final = 200
_MISC_SECONDS: Final = 1.0


class BrokerOptions(NamedTuple):
    """The address of the broker, and the credentials of the node.

    `client_id` names the node's session at the broker, in which messages wait while the node is away.
    """

    host: str
    port: int
    client_id: str
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None
    is_version_5: bool = True
    max_bytes: int = 1 << 20


class Arrival(NamedTuple):
    """A message of the broker; `token` is its user property, "" without one."""

    topic: str
    payload: bytes
    is_repeated: bool
    token: str
    mid: int
    qos: int


class BrokerMemory(Enum):
    """State that a broker still has when it is back: all, that on its disk, or none."""

    KEPT = "kept"
    UNSURE = "unsure"
    LOST = "lost"


class BrokerUser(Protocol):
    """The user of a connection to a broker. Nothing here may raise."""

    async def take(self, arrivals: list[Arrival]) -> None:
        """Handle messages, in order. They are acknowledged to the broker when this returns."""

    def published(self, number: int, *, has_subscriber: bool) -> None:
        """The broker has taken the message of this number. `has_subscriber`: not known to be without one (MQTT 5)."""

    def available(self, memory: BrokerMemory) -> None:
        """Messages can be published, for the first time or again."""

    def lost(self) -> None:
        """The connection is lost."""


class _TlsSocket(ssl.SSLSocket):
    """Closes itself when its handshake fails, which Paho leaves to the collector."""

    def do_handshake(self, block: bool = False) -> None:
        """See `ssl.SSLSocket`."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


class MqttClient:
    """One connection, made anew whenever it breaks.

    Args:
        options: Where the broker is.
        topics: Topic filters to subscribe to.
        user: Gets the messages, and is notified about the connection.
    """

    def __init__(self, options: BrokerOptions, topics: list[str], user: BrokerUser) -> None:
        self._options = options
        self._topics = topics
        self._user = user
        self._arrived: list[Arrival] = []
        self._wants_write = trio.Event()
        self._socket: socket.socket | None = None
        self._connected = trio.Event()
        self.is_connected = False
        self.error = "not connected yet"
        """Why there is no connection; empty while there is one."""
        self.retained_ignored = 0
        self._has_session = False
        self._ended_orderly = False
        self._client = self._make_client()

    def _make_client(self) -> Client:
        options = self._options
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=options.client_id,
            clean_session=None if options.is_version_5 else False,
            protocol=MQTTv5 if options.is_version_5 else MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = MQTT_CONNECT_SECONDS
        client.max_queued_messages_set(MQTT_QUEUED_MESSAGES)
        client.max_inflight_messages_set(MQTT_WINDOW_MESSAGES)
        if options.username:
            client.username_pw_set(options.username, options.password or None)
        if options.tls is not None:
            options.tls.sslsocket_class = _TlsSocket
            client.tls_set_context(options.tls)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_socket_register_write = self._on_wants_write
        client.on_socket_close = self._on_socket_close
        return client

    # Called by the node.

    def publish(self, topic: str, payload: bytes) -> int:
        """Send a message at least once. Returns its number, or 0 if the queue is full and it was not taken."""
        info = self._client.publish(topic, payload, qos=1)
        return 0 if info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE else info.mid

    async def wait_connected(self) -> None:
        """Wait until the node is connected and subscribed."""
        while not self.is_connected:
            await self._connected.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay connected until cancelled."""
        task_status.started()
        failures = 0
        try:
            while True:
                if await self._connect():
                    failures = 0
                    await self._serve()
                    logger.warning("the connection to the broker is lost")
                failures += 1
                seconds = doubling_seconds(MQTT_RETRY_SECONDS, failures, 30.0)
                await trio.sleep(jittered(seconds, draw=random.random()))  # noqa: S311 - spreads load, protects nothing
        finally:
            self._client.disconnect()
            sock = self._client.socket()
            self._lost("stopped")
            if sock is not None:
                sock.close()

    async def _connect(self) -> bool:
        options = self._options
        properties = None
        if options.is_version_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0xFFFFFFFF
            properties.ReceiveMaximum = MQTT_WINDOW_MESSAGES
            properties.MaximumPacketSize = options.max_bytes + 4096

        def connect() -> None:
            if options.is_version_5:
                self._client.connect(
                    options.host, options.port, MQTT_KEEP_ALIVE_SECONDS, clean_start=False, properties=properties
                )
            else:
                self._client.connect(options.host, options.port, MQTT_KEEP_ALIVE_SECONDS)

        try:
            await trio.to_thread.run_sync(connect, abandon_on_cancel=True)
        except (OSError, ValueError) as exc:
            if self.error != str(exc):
                logger.warning("broker %s:%d: %s", options.host, options.port, exc)
            self.error = str(exc)
            return False
        return True

    # The loop.

    async def _serve(self) -> None:
        """Read, write and keep alive until the connection ends."""
        sock = cast("socket.socket", self._client.socket())
        self._socket = sock
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, sock)
            nursery.start_soon(self._keep_alive)
            await self._read(sock)
            nursery.cancel_scope.cancel()
        self._lost(self.error or "the broker has closed the connection")

    async def _read(self, sock: socket.socket) -> None:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while self._client.socket() is not None:
            try:
                await trio.lowlevel.wait_readable(sock)
            except trio.ClosedResourceError:
                return
            for _ in range(_ARRIVALS_AT_ONCE):
                if self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS or self._client.socket() is None:
                    return
                if not (poll.poll(0) or (isinstance(sock, ssl.SSLSocket) and sock.pending())):
                    break
            await self._hand_over()

    async def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        if not arrived:
            return
        try:
            await self._user.take(arrived)
        except Exception:  # a defect of ours may cost these messages, never the node
            logger.exception("%d messages of the broker cannot be taken", len(arrived))
        for one in arrived:
            if one.qos:
                self._client.ack(one.mid, one.qos)

    async def _write(self, sock: socket.socket) -> None:
        while True:
            await self._wants_write.wait()
            self._wants_write = trio.Event()
            while self._client.want_write() and self._client.socket() is not None:
                try:
                    await trio.lowlevel.wait_writable(sock)
                except trio.ClosedResourceError:
                    return
                self._client.loop_write()

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(_MISC_SECONDS)
            if self._client.loop_misc() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return

    def _lost(self, why: str) -> None:
        self.is_connected = False
        self._connected = trio.Event()
        self._socket = None
        self.error = why
        self._arrived.clear()  # the broker delivers again what was not acknowledged
        self._user.lost()

    def _memory(self) -> BrokerMemory:
        """Return what the broker can still have: one that ended without a notice may have been killed."""
        if not self._has_session:
            return BrokerMemory.LOST
        return BrokerMemory.KEPT if self._ended_orderly else BrokerMemory.UNSURE

    # Called by Paho, always from within one of the calls above.

    def _on_connect(self, client: Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self.error = f"the broker refuses the connection of this node: {reason}"
            logger.warning("%s", self.error)
            return
        self._has_session = flags.session_present
        client.subscribe([(topic, 1) for topic in self._topics])

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, reasons: list[Any], _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self.error = f"the broker refuses the subscription of this node: {', '.join(map(str, reasons))}"
            logger.warning("%s", self.error)
            return
        memory, self._ended_orderly = self._memory(), False
        self.is_connected, self.error = True, ""
        self._connected.set()
        host, port = self._options.host, self._options.port
        logger.info("connected to the broker %s:%d, which has %s the state of this node", host, port, _MEMORIES[memory])
        self._user.available(memory)

    def _on_disconnect(self, _client: Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        self._ended_orderly = flags.is_disconnect_packet_from_server and reason.value == _SHUTTING_DOWN

    def _on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        if message.retain:  # sent to all future subscribers: never a message of a runtime
            self.retained_ignored += 1
            topic = ""
        if topic:
            self._arrived.append(
                Arrival(topic, bytes(message.payload), message.dup, _token_of(message), message.mid, message.qos)
            )
        elif message.qos:
            client.ack(message.mid, message.qos)

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self._user.published(mid, has_subscriber=reason is None or reason.value != NO_SUBSCRIBERS)

    def _on_wants_write(self, _client: Client, _data: Any, _sock: Any) -> None:
        self._wants_write.set()

    def _on_socket_close(self, _client: Client, _data: Any, sock: Any) -> None:
        if self._socket is not None and sock is self._socket:
            trio.lowlevel.notify_closing(self._socket)
            self._socket = None


_MEMORIES: Final = {
    BrokerMemory.KEPT: "kept",
    BrokerMemory.UNSURE: "kept, as far as its disk has it,",
    BrokerMemory.LOST: "no memory of",
}


def _token_of(message: MQTTMessage) -> str:
    pairs = getattr(message.properties, "UserProperty", None) or []
    return next((value for name, value in pairs if name == TOKEN_PROPERTY), "")
