"""The client of dialect A over Engine.IO 3 / socket.io 1.x: long polling, and the upgrade to WebSocket.

Written from the frames that the published stub and nodes exchange. Polling payloads are `<length>:<packet>`, where each
packet is UTF-8 encoded before its length is counted, and the whole is encoded once more as the body. WebSocket frames
hold one packet, plain. The client sends the event `message` with a *string* that holds JSON, the node sends it with
the *object* itself.

Source: reference nodes, section 3.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import trio

from interop.conformance.http_line import HttpLine
from interop.conformance.jsontext import Json, shorten, write
from interop.conformance.wire import (
    CONNECT_SECONDS,
    Line,
    LineClosedError,
    LineRefusedError,
    Target,
    WebSocketLine,
    WireFaultError,
    parsed,
)

PATH: Final = "/socket.io/"
_QUEUE_PACKETS: Final = 4096
_OPEN, _CLOSE, _PING, _PONG, _MESSAGE, _UPGRADE, _NOOP = "0123456"
_CONNECT, _DISCONNECT, _EVENT = "0", "1", "2"


def encode_payload(packets: list[str]) -> bytes:
    """The body of a POST."""
    encoded = (packet.encode().decode("latin-1") for packet in packets)
    return "".join(f"{len(packet)}:{packet}" for packet in encoded).encode()


def decode_payload(body: bytes) -> Iterator[str]:
    """The packets in the body of an answer.

    Raises:
        WireFaultError: lengths do not fit, or it is not encoded twice.
    """
    try:
        rest = body.decode()
        while rest:
            digits, _, rest = rest.partition(":")
            length = int(digits)
            packet, rest = rest[:length], rest[length:]
            if length < 1 or len(packet) < length:
                raise WireFaultError(f"a polling payload that ends early: {shorten(packet)}")
            yield packet.encode("latin-1").decode()
    except ValueError as exc:  # UnicodeError is one
        raise WireFaultError(f"a polling payload that cannot be read: {exc}: {shorten(repr(body))}") from exc


class EngineIoLine(Line):
    """One Engine.IO session. With `is_upgrading`, the first message goes by POST and the rest over WebSocket."""

    def __init__(self, nursery: trio.Nursery, target: Target, *, is_upgrading: bool) -> None:
        self._nursery = nursery
        self._target = target
        self._is_upgrading = is_upgrading
        self._polling, self._posting = HttpLine(target), HttpLine(target)
        self._busy = itertools.count(1)
        self._sid = ""
        self._upgraded: WebSocketLine | None = None
        self._packets, self._incoming = trio.open_memory_channel[str | Exception](_QUEUE_PACKETS)
        self._pongs, self._ponged = trio.open_memory_channel[None](_QUEUE_PACKETS)
        self._poll_ended = trio.Event()
        self._must_stop_polling = False

    @classmethod
    async def connect(
        cls, nursery: trio.Nursery, target: Target, *, is_upgrading: bool, is_direct: bool = False
    ) -> EngineIoLine:
        """Shake hands, until the namespace is connected. `is_direct`: over WebSocket from the first byte, no polling.

        Raises:
            TransportError: nothing listens.
            LineRefusedError: no Engine.IO there.
            WireFaultError: the handshake is not what it has to be.
        """
        line = cls(nursery, target, is_upgrading=is_upgrading)
        nursery.start_soon(line._hold)
        with trio.move_on_after(CONNECT_SECONDS) as scope:
            await (line._shake_hands_directly() if is_direct else line._shake_hands())
        if scope.cancelled_caught:
            raise LineRefusedError(0, "the Engine.IO handshake was not completed")
        if not is_direct:
            nursery.start_soon(line._poll)
        return line

    async def _hold(self) -> None:
        """Let no TCP connection outlive the nursery."""
        try:
            await trio.sleep_forever()
        finally:
            await self._polling.drop()
            await self._posting.drop()

    def _resource(self, transport: str) -> str:
        resource = f"{self._target.prefix}{PATH}?EIO=3&transport={transport}"
        if transport == "polling":
            resource += f"&t=c{next(self._busy)}&b64=1"
        return resource + (f"&sid={self._sid}" if self._sid else "")

    async def _get(self) -> list[str]:
        answer = await self._polling.request("GET", self._resource("polling"))
        if answer.status != 200:
            raise LineClosedError(None, f"poll answered HTTP {answer.status} {shorten(answer.body.decode('latin-1'))}")
        return list(decode_payload(answer.body))

    async def _shake_hands(self) -> None:
        answer = await self._polling.request("GET", self._resource("polling"))
        if answer.status != 200:
            raise LineRefusedError(answer.status, shorten(answer.body.decode("latin-1"), 200))
        packets = list(decode_payload(answer.body))
        if not packets or not packets[0].startswith(_OPEN):
            raise WireFaultError(f"the first packet is not `open`: {packets}")
        self._check_open(parsed(packets[0][1:]))
        later = packets[1:]
        while not later:
            later = [packet for packet in await self._get() if packet != _NOOP]
        if later[0] != _MESSAGE + _CONNECT:
            raise WireFaultError(f"expected the packet `40` that connects the namespace, got {shorten(later[0])}")
        for packet in later[1:]:
            await self._take(packet)

    async def _shake_hands_directly(self) -> None:
        line = await WebSocketLine.connect(self._nursery, self._target, self._unprefixed("websocket"))
        opening = await line.receive_text()
        if not opening.startswith(_OPEN):
            raise WireFaultError(f"the first packet is not `open`: {shorten(opening)}")
        self._check_open(parsed(opening[1:]))
        connected = await line.receive_text()
        if connected != _MESSAGE + _CONNECT:
            raise WireFaultError(f"expected the packet `40` that connects the namespace, got {shorten(connected)}")
        self._upgraded = line
        self._nursery.start_soon(self._read_upgraded, line)

    def _unprefixed(self, transport: str) -> str:
        return self._resource(transport).removeprefix(self._target.prefix)

    def _check_open(self, facts: Json) -> None:
        facts = facts if isinstance(facts, dict) else {}
        sid, upgrades = facts.get("sid"), facts.get("upgrades")
        intervals = [facts.get(name) for name in ("pingInterval", "pingTimeout")]
        if not isinstance(sid, str) or not sid or not all(isinstance(value, int) and value > 0 for value in intervals):
            raise WireFaultError(f"the `open` packet lacks sid, pingInterval or pingTimeout: {write(facts)}")
        if not isinstance(upgrades, list):
            raise WireFaultError(f"the `open` packet has no list of upgrades: {write(facts)}")
        self._is_upgrading = self._is_upgrading and "websocket" in upgrades
        self._sid = sid

    async def _poll(self) -> None:
        try:
            while not self._must_stop_polling:
                for packet in await self._get():
                    await self._take(packet)
        except (LineClosedError, WireFaultError, LineRefusedError) as exc:
            await self._packets.send(exc)
        finally:
            self._poll_ended.set()

    async def _take(self, packet: str) -> None:
        if packet == _PONG:
            await self._pongs.send(None)
        elif packet != _NOOP:
            await self._packets.send(packet)

    async def _read_upgraded(self, line: WebSocketLine) -> None:
        try:
            while True:
                await self._take(await line.receive_text())
        except (LineClosedError, WireFaultError) as exc:
            await self._packets.send(exc)

    async def _upgrade(self) -> None:
        """`2probe`, `3probe`, let the hanging poll end, `5`."""
        try:
            line = await WebSocketLine.connect(self._nursery, self._target, self._unprefixed("websocket"))
        except LineRefusedError as exc:
            raise LineClosedError(None, f"before the upgrade: {exc}") from exc
        await line.send("2probe")
        with trio.move_on_after(CONNECT_SECONDS) as scope:
            probed = await line.receive_text()
            if probed != "3probe":
                raise WireFaultError(f"`2probe` was answered with {shorten(probed)}")
            self._must_stop_polling = True
            await self._poll_ended.wait()
        if scope.cancelled_caught:
            raise WireFaultError("the upgrade was not completed: no `3probe`, or the hanging poll was never ended")
        await line.send(_UPGRADE)
        self._upgraded = line
        self._nursery.start_soon(self._read_upgraded, line)

    async def _send_packets(self, *packets: str) -> None:
        if self._upgraded is not None:
            for packet in packets:
                await self._upgraded.send(packet)
            return
        answer = await self._posting.request("POST", self._resource("polling"), encode_payload(list(packets)))
        if answer.status != 200:
            raise LineClosedError(None, f"POST answered HTTP {answer.status} {shorten(answer.body.decode('latin-1'))}")
        if answer.body != b"ok":
            raise WireFaultError(f"POST answered {shorten(repr(answer.body))} instead of `ok`")

    async def send(self, text: str) -> None:
        """The event `message` with the text as its argument."""
        await self.send_together([text])

    async def send_together(self, texts: list[str]) -> None:
        """While polling, all events in one POST."""
        await self._send_packets(*(_MESSAGE + _EVENT + write(["message", text]) for text in texts))
        if self._is_upgrading and self._upgraded is None:
            await self._upgrade()

    async def receive(self) -> Json:
        """The object in the next event."""
        packet = await self._incoming.receive()
        if isinstance(packet, Exception):
            self._packets.send_nowait(packet)  # for the next request
            raise packet
        if packet == _CLOSE or packet.startswith(_MESSAGE + _DISCONNECT):
            self._packets.send_nowait(packet)
            raise LineClosedError(None, f"with packet {packet}")
        if not packet.startswith(_MESSAGE + _EVENT):
            raise WireFaultError(f"expected an event, got packet {shorten(packet)}")
        event = parsed(packet[2:])
        if not isinstance(event, list) or len(event) != 2 or event[0] != "message":
            raise WireFaultError(f'expected ["message",{{…}}], got {shorten(packet)}')
        if isinstance(event[1], str):
            raise WireFaultError("the node sent the event with a string; stubs expect the object itself")
        return event[1]

    async def ping(self) -> None:
        """Packet `2`, answered with `3`."""
        await self._send_packets(_PING)
        await self._ponged.receive()

    async def drop(self) -> None:
        """End the transport: packet `1` while polling, TCP after the upgrade."""
        if self._upgraded is None:
            await self._send_packets(_CLOSE)
        else:
            await self._upgraded.drop()
        await self._polling.drop()
        await self._posting.drop()
