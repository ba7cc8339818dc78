"""A small authoritative name server on loopback: the DNS of the demo and of the tests.

It answers from a table, as a resolver would: CNAME chains are followed inside the table, names that have other records
give an empty answer, unknown ones NXDOMAIN with an SOA. It can also misbehave on request (`Fault`), and change its mind
from one query to the next (`Turns`), because that is what hostile name servers do.

Records are written as in a zone file, without owner and class, with or without a TTL in front: `"A 127.0.0.1"`,
`"SVCB 1 mn.b.example. port=8444"`, `"300 TXT id=1"`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.CNAME
import dns.rrset
import trio

from protofly.errors import SettingsError

_CHAIN_STEPS: Final = 64
_UDP_BYTES: Final = 1232
_TCP_IDLE_SECONDS: Final = 10.0
_TCP_CONNECTIONS: Final = 64
_QUERIES_REMEMBERED: Final = 10_000
_BIND_ATTEMPTS: Final = 16


class Fault(Enum):
    """A way to answer wrongly, for every query of one name."""

    SILENT = "silent"
    SERVFAIL = "servfail"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    WRONG_ID = "wrong-id"
    WRONG_QUESTION = "wrong-question"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Turns:
    """Answers that change: each query of one name and type takes the next entry, the last one stays."""

    answers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class SeenQuery:
    """One query as it arrived. `name` has no final dot; `transport` is "udp" or "tcp"."""

    name: str
    kind: str
    transport: str


Records = Sequence[str] | Turns


@dataclass(slots=True)
class NameServer:
    """Serves `records` (name → records) over UDP and TCP on one port.

    `faults` names the names that are answered wrongly. `is_validating` sets the AD bit, as a validating resolver would.
    """

    records: Mapping[str, Records]
    faults: Mapping[str, Fault] = field(default_factory=dict)
    ttl_seconds: int = 60
    negative_seconds: int = 60
    is_validating: bool = False
    queries: deque[SeenQuery] = field(default_factory=lambda: deque(maxlen=_QUERIES_REMEMBERED))
    _turns: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replace(self.records)

    def replace(self, records: Mapping[str, Records]) -> None:
        """Serve other records from now on.

        Raises:
            SettingsError: A record does not parse; the old ones stay.
        """
        table = {name.lower().removesuffix("."): texts for name, texts in records.items()}
        for name, texts in table.items():
            for text in _all_texts(texts):
                _parse_record(name, text, self.ttl_seconds)
        self.records = table
        self._turns.clear()

    def asked(self, name: str, kind: str = "") -> int:
        """Count the queries for a name (and type), over both transports."""
        return sum(1 for query in self.queries if query.name == name and kind in {"", query.kind})

    async def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled; `nursery.start` returns the port, which is the same for UDP and TCP."""
        listener, datagrams = await _bind_both(host, port)
        with datagrams:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve_datagrams, datagrams)
                nursery.start_soon(self._serve_listener, listener)
                task_status.started(int(datagrams.getsockname()[1]))

    async def _serve_listener(self, listener: trio.SocketListener) -> None:
        limiter = trio.CapacityLimiter(_TCP_CONNECTIONS)
        await trio.serve_listeners(partial(self._serve_stream, limiter=limiter), [listener])

    async def _serve_datagrams(self, datagrams: trio.socket.SocketType) -> None:
        while True:
            try:
                wire, client = await datagrams.recvfrom(65_535)
                answer = self.answer(wire, "udp")
                if answer:
                    await datagrams.sendto(answer, client)
            except OSError:  # an ICMP error of an earlier answer: that client's matter, not ours
                continue

    async def _serve_stream(self, stream: trio.SocketStream, *, limiter: trio.CapacityLimiter) -> None:
        async with stream:
            try:
                limiter.acquire_nowait()
            except trio.WouldBlock:
                return
            try:
                with suppress(trio.BrokenResourceError), trio.move_on_after(_TCP_IDLE_SECONDS):
                    await self._answer_queries(stream)
            finally:
                limiter.release()

    async def _answer_queries(self, stream: trio.SocketStream) -> None:
        while (wire := await _read_framed(stream)) and (answer := self.answer(wire, "tcp")):
            await stream.send_all(struct.pack("!H", len(answer)) + answer)

    def answer(self, wire: bytes, transport: str) -> bytes:
        """Answer one query, b"" for none: what is not a query of one question gets silence."""
        try:
            query = dns.message.from_wire(wire)
        except (dns.exception.DNSException, ValueError):
            return b""
        if query.flags & dns.flags.QR or len(query.question) != 1:
            return b""
        question = query.question[0]
        name, kind = _plain(question.name), dns.rdatatype.to_text(question.rdtype)
        self.queries.append(SeenQuery(name, kind, transport))
        fault = self.faults.get(name)
        if fault is not None:
            return _misbehave(fault, query, wire, transport)
        return _to_wire(self._respond(query, name, kind), transport)

    def _respond(self, query: dns.message.Message, name: str, kind: str) -> dns.message.Message:
        response = dns.message.make_response(query, recursion_available=True)
        response.flags |= dns.flags.AA | (dns.flags.AD if self.is_validating else 0)
        for _ in range(_CHAIN_STEPS):
            found = list(self._find(name, kind))
            response.answer += found
            if not found or kind == "CNAME" or found[0].rdtype != dns.rdatatype.CNAME:
                break
            alias = found[0][0]
            assert isinstance(alias, dns.rdtypes.ANY.CNAME.CNAME)
            name = _plain(alias.target)
        if not response.answer:
            response.authority.append(self._authority(name))
            if not self._exists(name):
                response.set_rcode(dns.rcode.NXDOMAIN)
        return response

    def _find(self, name: str, kind: str) -> Iterator[dns.rrset.RRset]:
        texts = self.records.get(name, ())
        if isinstance(texts, Turns):
            turn = self._turns.get((name, kind), 0)
            self._turns[name, kind] = turn + 1
            texts = texts.answers[min(turn, len(texts.answers) - 1)]
        found: dns.rrset.RRset | None = None
        for text in texts:
            record = _parse_record(name, text, self.ttl_seconds)
            if record.rdtype not in {dns.rdatatype.from_text(kind), dns.rdatatype.CNAME}:
                continue
            if found is None:
                found = record
            else:
                found.add(record[0], record.ttl)
        if found is not None:
            yield found

    def _exists(self, name: str) -> bool:
        return name in self.records or any(other.endswith("." + name) for other in self.records)

    def _authority(self, name: str) -> dns.rrset.RRset:
        zone = ".".join(name.split(".")[-2:])
        soa = f"ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 {self.negative_seconds}"
        return dns.rrset.from_text(zone + ".", self.negative_seconds, "IN", "SOA", soa)


def _all_texts(records: Records) -> Iterator[str]:
    if isinstance(records, Turns):
        for answer in records.answers:
            yield from answer
    else:
        yield from records


def _parse_record(name: str, text: str, default_ttl_seconds: int) -> dns.rrset.RRset:
    head, _, rest = text.strip().partition(" ")
    ttl = default_ttl_seconds
    if head.isdigit():
        ttl = int(head)
        head, _, rest = rest.strip().partition(" ")
    try:
        return dns.rrset.from_text(name + ".", ttl, "IN", head, rest)
    except (dns.exception.DNSException, ValueError) as exc:
        raise SettingsError(f"name server: record of {name} does not parse: {text!r}: {exc}") from exc


def _plain(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


def _to_wire(response: dns.message.Message, transport: str) -> bytes:
    if transport == "tcp":
        return response.to_wire(max_size=65_535)
    try:
        return response.to_wire(max_size=_UDP_BYTES)
    except dns.exception.TooBig:
        return _truncated(response)


def _truncated(response: dns.message.Message) -> bytes:
    response.answer.clear()
    response.authority.clear()
    response.flags |= dns.flags.TC
    return response.to_wire()


def _misbehave(fault: Fault, query: dns.message.Message, wire: bytes, transport: str) -> bytes:
    response = dns.message.make_response(query, recursion_available=True)
    if fault is Fault.SILENT:
        return b""
    if fault is Fault.GARBAGE:
        return wire[:2] + b"\x80\x00" + b"\xff" * 20
    if fault is Fault.WRONG_ID:
        response.id ^= 0x5555
    elif fault is Fault.WRONG_QUESTION:
        response.question = dns.message.make_query("other.example.", "TXT").question
    elif fault is Fault.TRUNCATED:
        return _truncated(response)
    else:
        response.set_rcode(dns.rcode.SERVFAIL if fault is Fault.SERVFAIL else dns.rcode.REFUSED)
    return _to_wire(response, transport)


async def _bind_both(host: str, port: int) -> tuple[trio.SocketListener, trio.socket.SocketType]:
    """One free port for both transports: TCP chooses it, and another is taken when UDP has it already."""
    for attempt in range(_BIND_ATTEMPTS):
        listener = (await trio.open_tcp_listeners(port, host=host))[0]
        family, chosen = listener.socket.family, int(listener.socket.getsockname()[1])
        datagrams = trio.socket.socket(family, trio.socket.SOCK_DGRAM)
        try:
            await datagrams.bind((host, chosen))
        except OSError as exc:
            datagrams.close()
            await listener.aclose()
            if port or attempt == _BIND_ATTEMPTS - 1:
                raise SettingsError(f"name server: cannot bind UDP {host} port {chosen}: {exc}") from exc
        else:
            return listener, datagrams
    raise AssertionError("unreachable")


async def _read_framed(stream: trio.SocketStream) -> bytes:
    """One length-prefixed DNS message, b"" when the client has gone or sent none."""
    head = await _read_exactly(stream, 2)
    return await _read_exactly(stream, struct.unpack("!H", head)[0]) if len(head) == 2 else b""


async def _read_exactly(stream: trio.SocketStream, count: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < count:
        chunk = await stream.receive_some(count - len(buffer))
        if not chunk:
            return b""
        buffer += chunk
    return bytes(buffer)
