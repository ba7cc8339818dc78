"""A recording of one instance: what it was given and what it answered, byte for byte. Pure.

A stub is a pure function of its calls, so a recording that has all of them since the start can be played again on
another machine, with the same answers and the same trap. A log is bounded: beyond its bound it keeps the first
exchange, which holds `start`, and the last ones; then it is not whole, and can be read but not repeated.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from protofly.errors import Code, MisuseError, PeerError
from sandbox.core.budget import Budget
from sandbox.core.exchange import count_events

SPEC: Final = "rmn-stub-recording/1"
EXCHANGE_BYTES: Final = 400
"""What an exchange of one call occupies besides its buffers. Far ends choose how small the buffers are."""
CALL_BYTES: Final = 150
"""What each further call occupies."""
END_OF_TIME_SECONDS: Final = 253_402_300_800
"""Unix seconds of the first moment that has no date of four digits."""


class Exchange(msgspec.Struct, kw_only=True, array_like=True):
    """One exchange: event buffers with their numbers of events, and the action buffers that came back."""

    calls: list[tuple[int, bytes]]
    outputs: list[bytes] = []

    @property
    def size_bytes(self) -> int:
        """Bytes that it occupies, about."""
        buffers = sum(len(buffer) for _, buffer in self.calls) + sum(map(len, self.outputs))
        return EXCHANGE_BYTES + CALL_BYTES * (len(self.calls) - 1) + buffers


class RecordedStub(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the recorded stub. `budget` is that of the instance, as `Budget.to_bytes` writes it."""

    domain: str
    name: str
    version: str
    sha256: str
    budget: bytes


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one run. `fault` is why it ended, "" while it goes on; `at` Unix seconds."""

    spec: str
    stub: RecordedStub
    exchanges: list[Exchange]
    is_whole: bool
    fault: str
    at: float


class FlightLog:
    """The last exchanges of one instance, at most so many bytes, and the first one."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._first: Exchange | None = None
        self._last: deque[Exchange] = deque()
        self._bytes = 0
        self._is_whole = True

    def handed(self, calls: list[tuple[int, bytes]]) -> None:
        """Calls are about to be made."""
        exchange = Exchange(calls=calls)
        if self._first is None:
            self._first = exchange
        else:
            self._last.append(exchange)
        self._add(exchange.size_bytes)

    def answered(self, outputs: list[bytes]) -> None:
        """The answers to the calls that were handed last."""
        exchange = self._last[-1] if self._last else self._first
        if exchange is not None:
            exchange.outputs = outputs
            self._add(sum(map(len, outputs)))

    def _add(self, size: int) -> None:
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._last) > 1:
            self._bytes -= self._last.popleft().size_bytes
            self._is_whole = False

    def recording(self, stub: RecordedStub, *, fault: str, at: float) -> Recording:
        """The recording of everything in the log."""
        exchanges = [] if self._first is None else [self._first, *self._last]
        return Recording(spec=SPEC, stub=stub, exchanges=exchanges, is_whole=self._is_whole, fault=fault, at=at)


def encode_recording(recording: Recording) -> bytes:
    """A recording as bytes, not compressed."""
    return msgspec.msgpack.encode(recording)


def decode_recording(raw: bytes) -> Recording:
    """The inverse of `encode_recording`.

    Raises:
        PeerError: DOCUMENT_MALFORMED.
    """
    try:
        recording = msgspec.msgpack.decode(raw, type=Recording)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"no recording: {exc}") from exc
    if recording.spec != SPEC:
        raise PeerError(Code.DOCUMENT_MALFORMED, "no recording of a known form")
    if not 0 <= recording.at < END_OF_TIME_SECONDS:
        raise PeerError(Code.DOCUMENT_MALFORMED, "no recording: its time is none")
    return recording


def playable_budget(recording: Recording) -> Budget:
    """The budget to play a recording with, once all its calls are found to be such as a node of ours makes.

    A recording may come from anybody: one that is not such would end the player, or let a module run for weeks.

    Raises:
        PeerError: DOCUMENT_MALFORMED.
    """
    for number, exchange in enumerate(recording.exchanges, start=1):
        if not exchange.calls or any(count < 1 or count_events(buffer) != count for count, buffer in exchange.calls):
            detail = f"exchange {number} of the recording is none that a node makes: it has no calls, or no events"
            raise PeerError(Code.DOCUMENT_MALFORMED, detail)
    try:
        budget = Budget.from_bytes(recording.stub.budget)
    except MisuseError as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"the recording has no budget: {exc.detail}") from exc
    if not budget.is_granted_somewhere:
        raise PeerError(Code.DOCUMENT_MALFORMED, "the recording asks for a budget that no node grants to a stub")
    return budget
