"""Batch adapter around the sans-I/O protocol of the `websockets` library.

Feed what one `recv` brought, get every complete message in it; queue any number of messages, take one block of bytes
to write. The library does RFC 6455; what is added here is the batch shape, the assembly of fragments, and four rules:
text is UTF-8, one connection speaks one kind of message (text for runtimes, binary for links), no frame comes before
the request was answered, and a message has a bounded number of fragments. Compression is never negotiated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState
from websockets.exceptions import ProtocolError as WebSocketProtocolError
from websockets.frames import Frame, Opcode, apply_mask  # type: ignore[attr-defined]
from websockets.http11 import Request, Response
from websockets.protocol import CLOSING, CONNECTING, OPEN, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from protofly.errors import Code, PeerError
from protofly.limits import CONTROL_FRAMES, FRAME_BYTES, MESSAGE_FRAGMENTS

GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
UNSUPPORTED = 1003
INVALID_DATA = 1007
POLICY = 1008
TOO_BIG = 1009
TRY_AGAIN_LATER = 1013
TAKEN_OVER = 4001

# Heads of frames. Source: RFC 6455, section 5.2.
_FINAL = 0x80
_MASKED = 0x80
_MASK_BYTES = 4
_SHORT_HEAD_BYTES = 2
_TWO_BYTES = 126
_EXTRA_BYTES = {126: 2, 127: 8}
_RESERVED = 0x70
_OPCODE = 0x0F
_PING = _FINAL | int(Opcode.PING)
_PONG = _FINAL | int(Opcode.PONG)
_CONTROLS = frozenset({_PING, _PONG})
_CONT, _TEXT, _BINARY = Opcode.CONT, Opcode.TEXT, Opcode.BINARY
"""Before Python 3.12 a member costs ten times as much by way of its enumeration."""
_DATA = frozenset({int(Opcode.CONT), int(Opcode.TEXT), int(Opcode.BINARY)})
_CONTROL_BYTES = 125

_END_OF_HEAD = b"\r\n\r\n"


class WebSocket:
    """One established or closing WebSocket, seen from either side.

    Not made directly: see `ServerWebSocket` and `ClientWebSocket`.
    """

    __slots__ = (
        "_binary",
        "_controls",
        "_fragment_count",
        "_fragments",
        "_frames_itself",
        "_has_failed",
        "_mask_bytes",
        "_missing_bytes",
        "_opcode",
        "_partial",
        "_pings",
        "_plain_head",
        "protocol",
    )

    def __init__(self, protocol: Protocol, *, is_binary: bool, mask_bytes: int) -> None:
        """`mask_bytes`: in the heads of frames of the other side, 4 if it is a client, else 0."""
        self.protocol = protocol
        self._mask_bytes = mask_bytes
        self._binary = is_binary
        self._opcode = Opcode.BINARY if is_binary else Opcode.TEXT
        self._fragments: bytearray | None = None
        self._fragment_count = 0
        self._frames_itself = False
        self._has_failed = False
        self._plain_head = _FINAL | self._opcode
        self._partial = bytearray()  # a list of pieces would take forty bytes for each, however short
        self._missing_bytes = 0
        self._pings: list[bytes] = []  # not answered yet
        self._controls = 0  # pings and pongs in what is received now

    @property
    def is_binary(self) -> bool:
        """True if messages are binary frames; else they are text."""
        return self._binary

    @property
    def is_open(self) -> bool:
        """True if messages can be sent."""
        return self.protocol.state is OPEN

    @property
    def is_listening(self) -> bool:
        """True while messages may still come: also after our close, until the other side has closed."""
        protocol = self.protocol
        if protocol.state is not CLOSING:
            return protocol.state is OPEN
        return protocol.close_rcvd is None and protocol.parser_exc is None and not self._has_failed

    @property
    def close_code(self) -> int | None:
        """Code with which the other side closed or agreed to close, None as long as it did neither."""
        received = self.protocol.close_rcvd
        return int(received.code) if received is not None else None

    @property
    def is_broken(self) -> bool:
        """True if a fault of the other side has ended it; a line that just ends is none."""
        fault = self.protocol.parser_exc
        return self._has_failed or not (fault is None or isinstance(fault, EOFError))

    @property
    def fault_code(self) -> int | None:
        """Code with which we closed it because of a fault of the other side, None while there was none."""
        sent = self.protocol.close_sent
        return int(sent.code) if sent is not None and self.is_broken else None

    def receive(self, data: bytes) -> list[bytes]:
        """Take received bytes (b"" at the end of the stream) and return every message that is now complete.

        Pings are answered, closes are echoed, broken frames close the connection: `data_to_send` then has the answer
        and `is_open` is false. So do more pings and pongs at once than anybody needs.
        """
        messages: list[bytes] = []
        self._controls = 0
        if self._frames_itself and (not data or self.protocol.state is not OPEN):
            self._leave_to_library(bytes(self._partial), messages)  # of the frame that is half here, if there is one
        if self._frames_itself:
            self._take_frames(data, messages)
        else:
            self._feed(data, messages)
        return messages

    def _feed(self, data: bytes, messages: list[bytes]) -> None:
        """Let the library read."""
        protocol = self.protocol
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        _drop_tracebacks(protocol.parser_exc)
        _drop_tracebacks(protocol.handshake_exc)
        opcode = self._opcode
        for event in protocol.events_received():
            if type(event) is not Frame:
                self._handshake_event(event)
            elif self._has_failed:
                return  # frames that came together with the one that ended it
            elif event.opcode is opcode and event.fin and self._fragments is None:
                self._take_message(bytes(event.data), messages)
            else:
                self._receive_rest(event, messages)

    def _take_frames(self, data: bytes, messages: list[bytes]) -> None:
        """Cut the stream into frames; read the usual ones here, hand all others to the library, whole.

        A plain frame is a complete data message: final, masked by a client and by nobody else, without extensions. The
        library sees only whole frames, so that it always stands at a frame boundary, and judges everything that is not
        usual. It takes 4 µs per frame where this takes 0.6, and 12 to 18 µs for the shortest: 64 KiB of pings would
        keep everybody else waiting for a fifth of a second. A test holds the two against each other.
        """
        if len(data) < self._missing_bytes:
            self._partial += data
            self._missing_bytes -= len(data)
            return
        if self._partial:
            data = b"".join((self._partial, data))
            self._partial.clear()
        protocol, is_binary, mask_bytes = self.protocol, self._binary, self._mask_bytes
        position, end = 0, len(data)
        most = protocol.max_message_size or end
        while True:
            start, stop = _span_of_frame(data, position, end, mask_bytes)
            if stop - start > most or stop < 0:
                self._leave_to_library(data[position:], messages)
                return
            if stop > end:
                break
            if data[position] == self._plain_head and self._fragments is None:
                message = data[start:stop]
                if mask_bytes:
                    message = apply_mask(message, data[start - _MASK_BYTES : start])
                if is_binary or message.isascii():
                    messages.append(message)
                else:
                    self._take_message(message, messages)
            elif not self._take_other(data[position:stop], start - position, messages):
                self._leave_to_library(data[position:], messages)
                return
            if protocol.state is not OPEN:
                self._leave_to_library(data[stop:], messages)
                return
            position = stop
        self._missing_bytes = stop - end
        if position < end:
            self._partial += data[position:]

    def _take_other(self, frame: bytes, start: int, messages: list[bytes]) -> bool:
        """Take a frame that is not plain, whose payload begins at `start`; False if the library has to go on alone."""
        head, within = frame[0], self._fragments is not None
        opcode, size = head & _OPCODE, len(frame) - start
        is_control = head in _CONTROLS and size <= _CONTROL_BYTES
        if not is_control:
            is_usual = opcode in _DATA if within else opcode == self._opcode
            if head & _RESERVED or not is_usual:
                if within:  # a close within a message is a fault, which only the library sees
                    return False
                self._feed(frame, messages)
                return True
        else:
            self._controls += 1
            if self._controls > CONTROL_FRAMES:
                self.fail(POLICY, f"at most {CONTROL_FRAMES} pings and pongs at once")
                return True
        payload = frame[start:]
        if size and self._mask_bytes:
            payload = apply_mask(payload, frame[start - _MASK_BYTES : start])
        if head == _PING:
            self._pings.append(payload)
        elif is_control:
            return True
        elif within and opcode:
            self.fail(PROTOCOL_ERROR, "the message before has not ended")
        else:
            self._receive_rest(Frame(self._opcode if opcode else _CONT, payload, head >= _FINAL), messages)
        return True

    def _leave_to_library(self, data: bytes, messages: list[bytes]) -> None:
        """From here on the library reads alone: the stream has ended, or is broken, closing or too large."""
        self._frames_itself = False
        self._partial.clear()
        if self._fragments is not None and not self._has_failed:
            begun, count = Frame(self._opcode, bytes(self._fragments), fin=False), self._fragment_count
            self._fragments = None
            self._feed(begun.serialize(mask=self._mask_bytes > 0), messages)
            self._fragment_count = count
        if data:
            self._feed(data, messages)

    def _receive_rest(self, frame: Frame, messages: list[bytes]) -> None:
        """Fragments, control frames and the wrong kind of message."""
        if frame.opcode is _CONT:
            if self._fragments is None:
                return
            self._fragments += frame.data
            self._fragment_count += 1
            most = self.protocol.max_message_size
            if self._fragment_count > MESSAGE_FRAGMENTS or (most is not None and len(self._fragments) > most):
                self._fragments = None
                self.fail(TOO_BIG, f"a message has at most {MESSAGE_FRAGMENTS} fragments and {most} bytes")
            elif frame.fin:
                message, self._fragments = bytes(self._fragments), None
                self._take_message(message, messages)
        elif frame.opcode is self._opcode:
            self._fragments, self._fragment_count = bytearray(frame.data), 1
        elif frame.opcode in (_TEXT, _BINARY):
            self.fail(UNSUPPORTED, f"this connection carries {'binary' if self._binary else 'text'} messages")

    def _take_message(self, message: bytes, messages: list[bytes]) -> None:
        """A text that is not UTF-8 ends the connection. Source: RFC 6455, section 8.1."""
        if not self._binary and not message.isascii():
            try:
                message.decode()
            except UnicodeDecodeError:
                self.fail(INVALID_DATA, "text messages are UTF-8")
                return
        messages.append(message)

    def _handshake_event(self, event: object) -> None:
        """Take what the library read of the handshake; each side does."""

    def send(self, messages: Iterable[bytes]) -> None:
        """Queue messages; each becomes one frame. Silently nothing once the connection is closing."""
        send = self.protocol.send_binary if self._binary else self.protocol.send_text
        if self.protocol.state is OPEN:
            for message in messages:
                send(message)

    def ping(self, payload: bytes = b"") -> None:
        """Queue a ping."""
        if self.is_open:
            self.protocol.send_ping(payload)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Start the closing handshake."""
        if self.is_open:
            self.protocol.send_close(code, reason.encode()[:120].decode(errors="ignore"))

    def fail(self, code: int, reason: str = "") -> None:
        """Close at once because of a fault of the other side; nothing that came behind it counts."""
        self._has_failed = True
        self.protocol.fail(code, reason.encode()[:120].decode(errors="ignore"))

    def data_to_send(self) -> bytes:
        """One block of all bytes queued so far, b"" when there are none."""
        return b"".join(self.protocol.data_to_send())


def _drop_tracebacks(fault: BaseException | None) -> None:
    """Forget where faults were raised: the frames hold the connection, which would wait for the garbage collector."""
    while fault is not None:
        fault.__traceback__ = None
        fault = fault.__cause__ or fault.__context__


def _span_of_frame(data: bytes, position: int, end: int, mask_bytes: int) -> tuple[int, int]:
    """Where the payload of the frame at `position` begins and ends; an end beyond `end` says how much is missing.

    As long as a part of the length is missing, so much at least: the first bytes of a number are never more than all.
    An end below 0: the frame is masked and should not be, or the other way round, which is for the library to refuse.
    """
    start = position + _SHORT_HEAD_BYTES + mask_bytes
    if end < start and end - position < _SHORT_HEAD_BYTES:
        return position, start
    second = data[position + 1]
    if (second >= _MASKED) != (mask_bytes > 0):
        return position, -1
    if end < start:
        return position, start
    length = second & ~_MASKED
    if length >= _TWO_BYTES:
        start += _EXTRA_BYTES[length]
        length = int.from_bytes(data[position + _SHORT_HEAD_BYTES : start - mask_bytes], "big")
    return start, start + length


class ServerWebSocket(WebSocket):
    """The accepting side. `request_path` is None until the request has come; then call `accept` or `reject`."""

    __slots__ = ("_answer", "_is_early", "_queued", "_request", "_tail", "bearer", "request_path")

    def __init__(self, *, is_binary: bool = False, max_bytes: int = FRAME_BYTES) -> None:
        super().__init__(ServerProtocol(max_size=max_bytes), is_binary=is_binary, mask_bytes=_MASK_BYTES)
        self._request: Request | None = None
        self._answer: Response | None = None
        self.request_path: str | None = None
        self.bearer = ""
        self._tail = b""
        self._is_early = False
        self._queued: list[bytes] = []

    def _handshake_event(self, event: object) -> None:
        if isinstance(event, Request):
            self._request, self.request_path = event, event.path
            scheme, _, token = self.header("Authorization").partition(" ")
            self.bearer = token.strip() if scheme.lower() == "bearer" else ""

    def receive(self, data: bytes) -> list[bytes]:
        """See `WebSocket.receive`. A client that does not wait for the answer to the request is refused by it."""
        if self._frames_itself or self.protocol.state is not CONNECTING or not data:
            messages = super().receive(data)
            for payload in self._pings:
                self._queued += (bytes((_PONG, len(payload))), payload)
            self._pings.clear()
            return messages
        if self.request_path is not None:
            self._is_early = True
            return []
        end = (self._tail + data).find(_END_OF_HEAD)
        if end < 0:
            self._tail = (self._tail + data)[1 - len(_END_OF_HEAD) :]
            return super().receive(data)
        rest = end + len(_END_OF_HEAD) - len(self._tail)
        self._is_early = rest < len(data)
        return super().receive(data[:rest])

    @property
    def handshake_failed(self) -> bool:
        """True if what came was no upgrade request; `data_to_send` holds the HTTP answer, if any."""
        return self.protocol.handshake_exc is not None

    def header(self, name: str) -> str:
        """Value of a request header, "" when absent or given more than once."""
        if self._request is None:
            return ""
        values = self._request.headers.get_all(name)
        return values[0] if len(values) == 1 else ""

    def send(self, messages: Iterable[bytes]) -> None:
        """See `WebSocket.send`; frames of a server need no mask, so that there is nothing to do but their heads."""
        if self.protocol.state is not OPEN:
            return
        queued, plain_head = self._queued, self._plain_head
        for message in messages:
            size = len(message)
            if size < _TWO_BYTES:
                queued += (bytes((plain_head, size)), message)
            elif size < 1 << 16:
                queued += (bytes((plain_head, _TWO_BYTES, size >> 8, size & 0xFF)), message)
            else:
                queued += (bytes((plain_head, 127)) + size.to_bytes(8, "big"), message)

    def data_to_send(self) -> bytes:
        """See `WebSocket.data_to_send`. Messages go before what the library has to say, which may be the close."""
        queued, self._queued = self._queued, []
        return b"".join((*queued, *self.protocol.data_to_send()))

    def allow_bytes(self, max_bytes: int) -> None:
        """Accept messages up to `max_bytes` from now on."""
        self.protocol.max_message_size = max_bytes

    @property
    def is_upgrade(self) -> bool:
        """True if `accept` will answer the request with 101; to be asked before anything else is done."""
        if self._answer is None and self._request is not None:
            self._answer = self._answer_to(self._request)
        return self._answer is not None and self._answer.status_code == 101

    def _answer_to(self, request: Request) -> Response:
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)
        if self._is_early:  # RFC 6455, section 4.1: the client waits; what it said to somebody else is not read by us
            return protocol.reject(400, "frames come after the answer to the request\n")
        return protocol.accept(request)

    def accept(self, *, subprotocol: str | None = None, is_binary: bool | None = None) -> None:
        """Answer 101, with a subprotocol if the client offered it.

        Raises:
            PeerError: PROTOCOL_ERROR when the request is no valid upgrade.
        """
        assert self._request is not None
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)
        if is_binary is not None:
            self._binary, self._opcode = is_binary, Opcode.BINARY if is_binary else Opcode.TEXT
            self._plain_head = _FINAL | self._opcode
        answer = self._answer or self._answer_to(self._request)
        if answer.status_code == 101 and subprotocol is not None and subprotocol in _offered(self._request):
            answer.headers["Sec-WebSocket-Protocol"] = subprotocol
        protocol.send_response(answer)
        self._queued += protocol.data_to_send()  # whatever is queued from now on goes behind it
        # A thousand quiet sessions need not keep their headers, which the library's parser still refers to.
        self._request.headers.clear()
        self._request = self._answer = None
        if answer.status_code != 101:
            raise PeerError(Code.PROTOCOL_ERROR, "not a WebSocket request")
        self._frames_itself = True

    def reject(self, status: int, text: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer with an HTTP error."""
        protocol = self.protocol
        assert isinstance(protocol, ServerProtocol)
        answer = protocol.reject(status, text)
        for name, value in (headers or {}).items():
            answer.headers.pop(name, None)
            answer.headers[name] = value
        protocol.send_response(answer)


def _offered(request: Request) -> set[str]:
    return {name.strip() for value in request.headers.get_all("Sec-WebSocket-Protocol") for name in value.split(",")}


class ClientWebSocket(WebSocket):
    """The opening side: the request is queued at once; `is_open` once it was accepted.

    Of the pings in what is received at once it answers the last. Source: RFC 6455, section 5.5.3.
    """

    __slots__ = ("_tail", "subprotocol")

    def __init__(
        self,
        url: str,
        *,
        subprotocol: str = "",
        headers: Mapping[str, str] | None = None,
        is_binary: bool = True,
        max_bytes: int = FRAME_BYTES,
    ) -> None:
        offered = [Subprotocol(subprotocol)] if subprotocol else None
        protocol = ClientProtocol(parse_uri(url), subprotocols=offered, max_size=max_bytes)
        super().__init__(protocol, is_binary=is_binary, mask_bytes=0)
        self._tail = b""
        request = protocol.connect()
        for name, value in (headers or {}).items():
            request.headers[name] = value
        protocol.send_request(request)
        self.subprotocol = ""

    def _handshake_event(self, event: object) -> None:
        protocol = self.protocol
        if isinstance(event, Response) and isinstance(protocol, ClientProtocol):
            self.subprotocol = str(protocol.subprotocol or "")

    def receive(self, data: bytes) -> list[bytes]:
        """See `WebSocket.receive`."""
        messages: list[bytes] = []
        if data and not self._frames_itself and self.is_waiting:
            rest = (self._tail + data).find(_END_OF_HEAD) + len(_END_OF_HEAD) - len(self._tail)
            if rest + len(self._tail) < len(_END_OF_HEAD):
                self._tail = (self._tail + data)[1 - len(_END_OF_HEAD) :]
                return super().receive(data)
            messages = super().receive(data[:rest])
            self._frames_itself, data = self.is_open, data[rest:]
            if not data:
                return messages
        messages += super().receive(data)
        if self._pings and self.is_open:
            self.protocol.send_pong(self._pings[-1])
        self._pings.clear()
        return messages

    @property
    def is_waiting(self) -> bool:
        """True if the server has not answered the request yet."""
        return self.protocol.state is CONNECTING and not self.refusal

    @property
    def refusal(self) -> str:
        """Reason why the server refused the handshake, "" if it did not."""
        protocol = self.protocol
        assert isinstance(protocol, ClientProtocol)
        return str(protocol.handshake_exc) if protocol.handshake_exc is not None else ""


__all__ = [
    "ClientWebSocket",
    "InvalidHandshake",
    "InvalidState",
    "ServerWebSocket",
    "WebSocket",
    "WebSocketProtocolError",
]
