"""What one link writes down: a record per message and side, decisions worth a line, what happened to the link.

Every message costs one record, so the record is a copy of a template in which only what differs is set: 0.4 µs where
building it anew takes 2. Source: design, section 7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from federation.core.outbound_queue import Pending
from federation.decision_records import decision_record
from federation.log_allowance import LogAllowance
from policy.core.engine import Facts
from policy.core.gate import Gate, Verdict
from policy.core.recorded_facts import FactsRecorder
from protofly.errors import Code
from protofly.limits import HEADER_CHARS
from protofly.message import Message
from protofly.records import GateFacts, LinkEvent, MessageRecord, Record, StubEvent, envelope_digest

logger = logging.getLogger("federation")

LOG_LINES_PER_MINUTE = 10
"""Lines of one kind in the log about one link: whoever lets its line come and go all the time, or sends nothing but
forgeries, does not fill the log. The link's counters and the records have them all."""

LOG_DETAIL_CHARS = 256
_LINES = {"out": "by their stub, which runs here", "in": "by our stub, which runs there"}

Outcome = Literal["delivered", "trapped", "timeout", "rejected", "expired", "undeliverable"]


class Recording(Protocol):
    """What the records of a link need from its node; see `LinkContext`."""

    @property
    def our_domain(self) -> str:
        """Our main domain."""

    @property
    def gate(self) -> Gate:
        """Judges."""

    @property
    def record(self) -> Callable[[Record], None]:
        """Takes records."""

    @property
    def hides_addresses(self) -> bool:
        """Whether records hash addresses."""


class LinkRecords:
    """The audit records of the link to one domain, or of its guests."""

    def __init__(self, domain: str, context: Recording) -> None:
        our_domain = context.our_domain
        self._domain = domain
        self._gate = context.gate
        self._recorder = FactsRecorder(our_domain, domain, is_hashed=context.hides_addresses)
        self.record = context.record
        self._out = _template("out", our_domain, domain)
        self._in = _template("in", domain, our_domain)
        self._log_lines = LogAllowance(LOG_LINES_PER_MINUTE)

    def carried(self, *, channel: str, peer_node: str, stub_version: str) -> None:
        """From now on messages go this way."""
        for template in (self._out, self._in):
            template.channel = channel or None
            template.peer_node = peer_node or None
        self._out.stub_ver = stub_version or None

    def facts_of(self, facts: Facts) -> GateFacts | None:
        """What the record of a message keeps of the facts that the gate was shown."""
        return self._recorder.record(facts, self._gate.facts_read)

    def delivered(self, gone: Iterable[Pending], now: float) -> None:
        """The far end answers for these; `now` is monotonic seconds."""
        record, fill, template = self.record, self._fill, self._out
        for pending in gone:
            entry: MessageRecord = template.__copy__()
            fill(entry, pending, now)
            record(entry)

    def ended(self, pending: Pending, outcome: Outcome, code: Code, now: float) -> None:
        """A message of ours ended here in another way than by arriving."""
        entry: MessageRecord = self._out.__copy__()
        self._fill(entry, pending, now)
        entry.outcome, entry.outcome_code = outcome, code.word
        self.record(entry)
        if outcome == "trapped":
            self.record(
                StubEvent(
                    ts_us=int(time.time() * 1e6),
                    domain=self._domain,
                    event="quarantined",
                    stub_ver=entry.stub_ver,
                    code=code.word,
                    trap=pending.trap,
                    msg_id=entry.msg_id,
                )
            )

    @staticmethod
    def _fill(entry: MessageRecord, pending: Pending, now: float) -> None:
        message = pending.message
        entry.ts_us = pending.ts_us
        entry.msg_id = pending.msg_id.hex()
        entry.attempt = pending.suspected + 1
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = len(message.raw)
        entry.size_wire = len(pending.wire)
        entry.digest = pending.digest
        entry.policy_rev = pending.revision or None
        entry.rule_id = pending.rule_id or None
        entry.reason = pending.reason
        entry.facts = pending.facts
        entry.d_policy_us = pending.policy_us
        entry.d_stub_us = pending.stub_us
        entry.fuel = pending.fuel
        entry.trap = pending.trap
        if pending.handed_seconds:
            entry.d_peer_us = int((now - pending.handed_seconds) * 1e6)
        entry.d_total_us = int((now - pending.accepted_seconds) * 1e6)

    def kept_back(
        self,
        facts: Facts,
        verdict: Verdict,
        msg_id: bytes,
        code: Code,
        *,
        outcome: Literal["denied", "rejected"],
        policy_us: int,
    ) -> None:
        """A message of ours did not get as far as the queue: our gate denied it, or the link takes none."""
        message = facts.message
        entry: MessageRecord = self._out.__copy__()
        entry.channel = entry.peer_node = entry.stub_ver = None
        digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.outcome, entry.outcome_code, entry.d_policy_us = outcome, code.word, policy_us
        if outcome == "denied":
            entry.decision = "deny"
            self.decided(facts, verdict, msg_id)
        self.record(entry)

    def handed(self, facts: Facts, verdict: Verdict, msg_id: bytes, code: Code | None, *, policy_us: int) -> None:
        """A message of ours was given to a guest at once; `code` says why not."""
        message = facts.message
        entry: MessageRecord = self._out.__copy__()
        digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.d_policy_us = policy_us
        if code is not None:
            entry.outcome, entry.outcome_code = "undeliverable", code.word
        self.record(entry)

    def _judged(self, entry: MessageRecord, facts: Facts, verdict: Verdict, msg_id: bytes, digest: str) -> None:
        """What is known about a message at the gate."""
        message = facts.message
        entry.ts_us = int(facts.now * 1e6)
        entry.msg_id = msg_id.hex()
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = len(message.raw)
        entry.digest = digest
        entry.policy_rev = verdict.revision
        entry.rule_id = verdict.rule_id or None
        entry.reason = verdict.step
        entry.facts = self.facts_of(facts)

    def refused(self, message: Message, msg_id: bytes, code: Code, now: float, size_bytes: int) -> None:
        """A message of the peer's was turned away before our gate saw it; `now` is seconds since the Unix epoch."""
        entry: MessageRecord = self._in.__copy__()
        entry.ts_us = int(now * 1e6)
        entry.msg_id = msg_id.hex()
        entry.src_key = message.from_
        entry.dst_key = message.to
        entry.msg_type = message.type
        entry.size_in = entry.size_wire = size_bytes
        entry.digest = envelope_digest(message.type, message.from_, message.to, message.id, message.body)
        entry.outcome, entry.outcome_code, entry.decision = "rejected", code.word, None
        self.record(entry)

    def entering(self, facts: Facts, verdict: Verdict, msg_id: bytes, digest: str) -> MessageRecord:
        """Begin the record of a message of the peer's that came to our gate; `arrived` or `denied` ends it."""
        entry: MessageRecord = self._in.__copy__()
        self._judged(entry, facts, verdict, msg_id, digest)
        entry.size_wire = facts.size_bytes
        return entry

    def arrived(self, entry: MessageRecord, code: Code | None, total_us: int) -> None:
        """The message was handed to the bus; `code` says why nobody could be given it."""
        entry.d_total_us = total_us
        if code is not None:
            entry.outcome, entry.outcome_code = "undeliverable", code.word
        self.record(entry)

    def denied(self, entry: MessageRecord, facts: Facts, verdict: Verdict, msg_id: bytes) -> None:
        """Our gate did not let a message of the peer's pass."""
        code = verdict.code or Code.POLICY
        entry.decision, entry.outcome, entry.outcome_code = "deny", "denied", code.word
        self.decided(facts, verdict, msg_id)
        self.record(entry)

    def decided(self, facts: Facts, verdict: Verdict, msg_id: bytes = b"") -> None:
        """A gate said no, or a rule in report mode would have said something else."""
        self.record(decision_record(facts, verdict, self.facts_of(facts), msg_id=msg_id))

    def came_up(self, direction: Literal["out", "in"], *, peer_node: str) -> None:
        """The link has a carrier more; `direction` says whose line it is."""
        self.happened("up", direction=direction, peer_node=peer_node)
        self._log("is up", _LINES[direction] + (f", to {peer_node}" if peer_node else ""))

    def went_down(self, direction: Literal["out", "in"], *, waiting: int, detail: str) -> None:
        """The link has a carrier less; so many messages wait or are under way. `detail` may be a stub's words."""
        self.happened("down", direction=direction, waiting=waiting)
        words = "".join(char if char.isprintable() else "." for char in detail[:LOG_DETAIL_CHARS])
        self._log("is down", f"{_LINES[direction]}, {waiting} messages wait" + (f"; {words}" if words else ""))

    def troubled(self, text: str) -> None:
        """The domain is not reached, for another reason than before."""
        if self._log_lines.takes("trouble"):
            logger.warning("%s", text, extra={"domain": self._domain})

    def stalled(self, detail: str) -> None:
        """The far end is silent although it owes us something."""
        if self._log_lines.takes("stall"):
            logger.warning(
                "the link to %s is stalled: %s; senders get 504 until it is heard",
                self._domain,
                detail,
                extra={"domain": self._domain},
            )

    def heard_again(self, seconds: float) -> None:
        """A stall has ended; it lasted so long."""
        if self._log_lines.takes("stall"):
            logger.warning(
                "the link to %s is heard again after %.0f s", self._domain, seconds, extra={"domain": self._domain}
            )

    def spoofed(self, sender: str, code: Code) -> None:
        """A message came in a name for which the other side does not speak; told within an allowance."""
        if self._log_lines.takes("spoofed"):
            self.happened("spoofed", direction="in", code=code, sender=sender)
            logger.warning(
                "%s sent a message in the name of %.128s", self._domain, sender, extra={"domain": self._domain}
            )

    def broken(self, exc: Exception) -> None:
        """What came is no message."""
        if self._log_lines.takes("broken"):
            logger.info("broken message from %s: %s", self._domain, exc, extra={"domain": self._domain})

    def _log(self, event: str, text: str) -> None:
        if self._log_lines.takes("line"):
            logger.info("the link to %s %s: %s", self._domain, event, text, extra={"domain": self._domain})

    def happened(
        self,
        event: Literal["step", "up", "down", "refused", "spoofed"],
        *,
        direction: Literal["out", "in"],
        code: Code | None = None,
        detail: str = "",
        peer_node: str = "",
        waiting: int | None = None,
        sender: str = "",
        step: str = "",
        seconds: float | None = None,
    ) -> None:
        """Something happened to the link; `sender` is whom a forged message named, `step` one of first contact."""
        self.record(
            LinkEvent(
                ts_us=int(time.time() * 1e6),
                domain=self._domain,
                event=event,
                direction=direction,
                code=None if code is None else code.word,
                detail=detail[:256] or None,
                peer_node=peer_node or None,
                waiting=waiting,
                src_key=sender[:HEADER_CHARS] or None,
                step=step or None,
                duration_us=None if seconds is None else int(seconds * 1e6),
            )
        )


def _template(role: Literal["out", "in"], src_domain: str, dst_domain: str) -> MessageRecord:
    return MessageRecord(
        ts_us=0,
        role=role,
        msg_id="",
        attempt=1,
        src_domain=src_domain,
        dst_domain=dst_domain,
        src_key="",
        dst_key="",
        msg_type="",
        size_in=0,
        digest="",
        outcome="delivered",
        decision="permit",
    )
