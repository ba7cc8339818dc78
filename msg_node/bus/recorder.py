"""The recorder: what passes the node and matches a rule goes into a sealed file, for a time, if an operator wants it.

It sees what taps see: what sessions and other domains send, and what the node answers. While nothing is recorded, no
message of a session passes it: the steps are made anew when a recording starts and when it ends. What it has written
down waits in memory for a thread that seals and writes it, at most PENDING_BYTES: beyond that messages are left out and
counted, and nobody waits.

Left out are secrets and tokens (`protofly.conversation`), all that is said to and by `mn:/session`, whose addresses
have tokens in them, and the bodies of what is said to and by other services that get secrets.
Feature row AM-06.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import trio
from msgspec import Raw

from federation.links.link_context import Refusal
from msg_node.bus.core.tables import BusTables
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.taps import is_confidential, is_of_sessions
from msg_node.kernel.service import SessionNews
from msg_node.records.conversation_file import ConversationFile
from protofly.address import canonical_key
from protofly.conversation import (
    ABSENT,
    ConversationRule,
    Ended,
    Line,
    Passed,
    SessionChanged,
    Side,
    Started,
    encode_line,
    redacted_body,
    shown_body,
)
from protofly.errors import HostError
from protofly.message import Message

logger = logging.getLogger("msg_node")

FLUSH_SECONDS: Final = 0.5
PENDING_BYTES: Final = 8 << 20
CLOSE_SECONDS: Final = 5.0
MOST_RUNTIMES: Final = 10_000
"""Runtimes whose sessions are followed in one recording."""
BY_OPERATOR: Final = "an operator stopped it"
BY_TIME: Final = "its time is over"
BY_BYTES: Final = "it is as large as it may be"
BY_STOP: Final = "the node stops"
BY_ANOTHER: Final = "another recording was started"
BY_DISK: Final = "it could not be written"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingTerms:
    """Scope and bounds of one recording.

    Attributes:
        rule: Which messages.
        has_bodies: With what they say, without secrets; otherwise only with what routing needs.
        seconds: The longest time.
        max_bytes: Of all lines together.
        by: Who asked for it.
    """

    rule: ConversationRule
    has_bodies: bool
    seconds: float
    max_bytes: int
    by: str


@dataclass(slots=True)
class _Running:
    """A recording under way; `why` it has ended is "" until then."""

    file: ConversationFile
    terms: RecordingTerms
    began: float
    messages: int = 0
    left_out: int = 0
    bytes: int = 0
    why: str = ""
    pending: bytearray = field(default_factory=bytearray)
    runtimes: dict[str, str] = field(default_factory=dict)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def took(self) -> float:
        """Seconds since it began."""
        return round(time.monotonic() - self.began, 6)

    def take(self, line: Line) -> bool:
        """Keep a line to be written; False if the recording would become too large. The last line always fits."""
        text = encode_line(line) + b"\n"
        if not self.why and self.bytes + len(text) > self.terms.max_bytes:
            return False
        self.bytes += len(text)
        self.pending += text
        return True


class Recorder:
    """Records conversations of one node, one after the other.

    Args:
        node: Our runtime address.
        domain: Our domain.

    Attributes:
        on_changed: Called when a recording has started or ended.
    """

    name: Final = "recorder"

    def __init__(self, state: BusTables, send_queues: SendQueues, *, node: str, domain: str) -> None:
        self._state = state
        self._node = node
        self._domain = domain
        self._running: _Running | None = None
        self._unwritten: list[_Running] = []
        self._wake = trio.Event()
        self.on_changed: Callable[[], None] = lambda: None
        send_queues.watchers.own.append(self.own)
        send_queues.watchers.news.append(self.news)

    @property
    def is_looking(self) -> bool:
        """True while something is recorded."""
        return self._running is not None

    @property
    def facts(self) -> dict[str, object] | None:
        """Facts about the current recording, for operators; None if there is none."""
        running = self._running
        if running is None:
            return None
        return {
            "file": str(running.file.path),
            "messages": running.messages,
            "left_out": running.left_out,
            "bytes": running.bytes,
            "seconds": round(running.took, 1),
            "ends_after_seconds": running.terms.seconds,
            "bodies": running.terms.has_bodies,
            "by": running.terms.by,
        }

    def start(self, file: ConversationFile, terms: RecordingTerms) -> None:
        """Record into a file from the next message on. A recording under way ends."""
        self.stop(BY_ANOTHER)
        running = _Running(file, terms, time.monotonic())
        first = Started(
            node=self._node,
            domain=self._domain,
            at=time.time(),
            has_bodies=terms.has_bodies,
            rule=terms.rule,
            seconds=terms.seconds,
            bytes=terms.max_bytes,
        )
        running.take(first)
        self._running = running
        self._unwritten.append(running)
        self._wake.set()
        logger.warning("%s: recording to %s begins", terms.by, file.path)
        self.on_changed()

    def stop(self, why: str) -> None:
        """End the recording under way, if there is one; the rest of it is written soon."""
        running = self._running
        if running is None:
            return
        self._running = None
        running.why = why
        running.take(Ended(at=running.took, why=why, messages=running.messages, left_out=running.left_out))
        running.ended.set()
        logger.warning("recording to %s has ended with %d messages: %s", running.file.path, running.messages, why)
        self.on_changed()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write recordings until cancelled; those under way then end in order."""
        task_status.started()
        try:
            while True:
                while self._unwritten:
                    await self._follow(self._unwritten[0])
                    del self._unwritten[0]
                await self._wake.wait()
                self._wake = trio.Event()
        finally:
            self.stop(BY_STOP)
            for running in self._unwritten:
                await self._write(running)

    async def _follow(self, running: _Running) -> None:
        """Write a recording from time to time until it has ended."""
        while not await self._write(running):
            left = running.terms.seconds - running.took
            with trio.move_on_after(max(0.0, min(FLUSH_SECONDS, left))):
                await running.ended.wait()
            if not running.why and running.took >= running.terms.seconds:
                self.stop(BY_TIME)

    async def _write(self, running: _Running) -> bool:
        """Write what is pending, in a thread; True when that was the end of the recording."""
        is_last, text = bool(running.why), bytes(running.pending)
        running.pending.clear()
        try:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await trio.to_thread.run_sync(partial(running.file.append, text, is_last=is_last))
        except HostError as exc:
            logger.error("a recording has ended: %s", exc)
            running.file.discard()
            if not is_last:
                self.stop(BY_DISK)
            return True
        return is_last

    def step(self, message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        """Record what a session sends; a step that refuses nothing, see `middleware.MessageStep`."""
        session = self._state.sessions.get(sid)
        if session is not None:
            self._record(message, "runtime", session.runtime)
        return None

    def from_domain(self, domain: str, messages: Sequence[Message]) -> None:
        """Record what another domain brings."""
        for message in messages if self._running is not None else ():
            self._record(message, "domain", domain)

    def own(self, message: Message, _sid: int | None = None) -> None:
        """Record what the node itself sends to a session."""
        self._record(message, "node", self._node)

    def over_answers(self, answer: Callable[[Message], None]) -> Callable[[Message], None]:
        """The same way for what our links answer in place of other domains, recorded."""

        def recorded(message: Message) -> None:
            self.own(message)
            answer(message)

        return recorded

    def news(self, news: SessionNews) -> None:
        """Record what happened to the session of a runtime that has been recorded."""
        running = self._running
        runtime = None if running is None else running.runtimes.get(news.runtime_key)
        if running is not None and runtime is not None:
            self._keep(running, SessionChanged(at=running.took, runtime=runtime, event=news.event))

    def _record(self, message: Message, side: Side, origin: str) -> None:
        running = self._running
        if running is None or not running.terms.rule.takes(message.from_, message.to):
            return
        if is_of_sessions(message):
            return
        if len(running.pending) > PENDING_BYTES:
            running.left_out += 1
            return
        if side == "runtime" and len(running.runtimes) < MOST_RUNTIMES:
            running.runtimes.setdefault(canonical_key(origin), origin)
        line = Passed(
            at=running.took,
            side=side,
            origin=origin,
            type=message.type,
            from_=message.from_,
            to=message.to,
            id=ABSENT if message.id is None else Raw(message.id),
            body=_recorded_body(message, has_bodies=running.terms.has_bodies, is_of_node=side == "node"),
        )
        if self._keep(running, line):
            running.messages += 1

    def _keep(self, running: _Running, line: Line) -> bool:
        """Keep a line; a recording that has no room for it ends."""
        if running.take(line):
            return True
        self.stop(BY_BYTES)
        return False


def _recorded_body(message: Message, *, has_bodies: bool, is_of_node: bool) -> Raw:
    body = message.body
    if not body:
        return ABSENT
    if is_confidential(message):
        code = bytes(message.peek.code)
        return Raw(b'{"code":%s,"redacted":""}' % code if code else b'{"redacted":""}')
    try:
        if has_bodies:
            return Raw(shown_body(body))
        return Raw(redacted_body(body, from_=message.from_, to=message.to, is_of_node=is_of_node))
    except (msgspec.DecodeError, RecursionError):
        return Raw(b'{"redacted":""}')
