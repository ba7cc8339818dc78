"""What was seen, judged: for each promise whether it held, on how many cases, and what speaks against it.

A promise is `broken` by a case that nothing explains. What explains a case is narrow, and stands in `docs/lab.md`:

* A message may arrive twice when a node on its way was killed between the two arrivals, or shortly before the first.
* An event may not arrive when the node of its sender or receiver was killed or restarted, or its receiver was away,
  about when it was sent, or while other faults of its pair made it wait; or when a node's record says that it refused
  the event.
* A request may end without an answer when the sender's session ended. When the session is open again, the answer may
  still come. It may come twice as any message may.
* Where one of both nodes acknowledges nothing, an event may be lost and a request may end without an answer while a
  fault hits the pair, and until it has to be heard again.

A promise that was to be tested and for which there was no case is `not tested`, and the scene fails: a test that saw
nothing has shown nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Final

from interop.figures import percentile
from interop.lab.core.operations import Operation, unexplained
from interop.lab.core.scene import Bars, PromiseName
from interop.lab.core.seen import Answered, Arrived, FaultSpan, Hop, Key, Pair, Passage, Running, Seen, Sent
from protofly.limits import REQUEST_TTL_SECONDS

MARGIN_SECONDS: Final = 2.0
"""How long before a node dies a message may have been sent, and still be lost with it or repeated after it."""
RETURN_SECONDS: Final = 5.0
"""How long after a node is ready again its runtimes may still be away."""
EARLY_SECONDS: Final = 3.0
"""No node gives a request up earlier than this: one that does has a clock that jumps."""
_UNTESTED: Final[Mapping[PromiseName, str]] = {
    "once": "no message of a load arrived",
    "order": "no message of a load arrived",
    "kept": "no event was sent, and no request answered 2xx",
    "answered": "no request was sent",
    "genuine": "nothing arrived, and nobody forged",
    "recovery": "no pair that a fault hit sent after its end, or a later fault hit it first",
    "neighbours": "no pair that no fault hits sent while one lasted",
    "history": "no operation was done",
    "stubs": "nothing was released, or no node ran a stub of that domain",
}
"""Why there was no case for or against a promise."""
_REFUSED_FROM: Final = 300
_GIVEN_UP: Final = 504
EVIDENCE_SHOWN: Final = 20
_SHOWN_DIGITS: Final = 12
_ENDS: Final = frozenset({"kill", "restart"})
_LOSES: Final = frozenset({"kill", "restart", "full-disk", "engine-down", "partition"})
_KEPT_OUT: Final = "denied"
_EVENTS_DENIED: Final = frozenset({"denied", "expired", "undeliverable", "rejected", "trapped", "timeout"})


class State(Enum):
    """Result of a promise in a scene."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One case that speaks against a promise, with all that is known about its message."""

    what: str
    message: str = ""
    at: float = 0.0
    sent_at: float | None = None
    arrived_at: tuple[float, ...] = ()
    hops: tuple[Hop, ...] = ()
    records: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One promise. `cases` is how often it could have been broken, `excused` how often something explained the case."""

    promise: PromiseName
    state: State
    cases: int
    broken: int
    excused: int
    evidence: tuple[Evidence, ...] = ()
    figure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Seconds from fault `number` until a pair of runtimes got a message again; None: never."""

    number: int
    fault: str
    pair: str
    seconds: float | None


Finding = Evidence | None
"""A case: None held, `EXCUSED` is explained."""
EXCUSED: Final = Evidence(what="explained")


def judge(seen: Seen, bars: Bars, operations: Sequence[Operation] = ()) -> list[Judged]:
    """The promises that the scene tests, in their order."""
    case = _Case(seen, bars.recovery_seconds)
    judges: dict[PromiseName, Callable[[], tuple[list[Finding], str]]] = {
        "once": lambda: (list(case.once()), ""),
        "order": lambda: (list(case.order()), ""),
        "kept": lambda: (list(case.kept()), ""),
        "answered": lambda: (list(case.answered()), _refusals(seen)),
        "genuine": lambda: (list(case.genuine()), _shown_as_genuine(seen)),
        "recovery": lambda: _recovery(case, bars.recovery_seconds),
        "neighbours": lambda: _neighbours(case, bars.neighbours_p99_ms),
        "history": lambda: (_history(operations), ""),
        "stubs": lambda: _stubs(seen, bars.stub_seconds),
    }
    return [_judged(name, *judges[name]()) for name in bars.tests]


def _judged(name: PromiseName, findings: list[Finding], figure: str) -> Judged:
    against = [one for one in findings if one is not None and one is not EXCUSED]
    state = State.BROKEN if against else State.KEPT if findings else State.NOT_TESTED
    return Judged(
        promise=name,
        state=state,
        cases=len(findings),
        broken=len(against),
        excused=sum(one is EXCUSED for one in findings),
        evidence=tuple(against[:EVIDENCE_SHOWN]),
        figure=figure if findings else _UNTESTED[name],
    )


class _Case:
    """The observations, by message."""

    def __init__(self, seen: Seen, recovery_seconds: float) -> None:
        self.seen = seen
        self._recovery_seconds = recovery_seconds
        self.sent: dict[Key, Sent] = {one.key: one for one in seen.sent}
        self.arrivals: dict[Key, list[Arrived]] = defaultdict(list)
        for one in seen.arrived:
            if one.key is not None and self._is_addressed(one, one.key):
                self.arrivals[one.key].append(one)

    def _is_addressed(self, one: Arrived, key: Key) -> bool:
        """True if the sender's address and the receiver are those of the key."""
        return one.runtime == key[1] and self.seen.addresses.get(one.sender) == key[0]

    def once(self) -> Iterator[Finding]:
        """Every message that arrived did so once."""
        for key, arrivals in self.arrivals.items():
            first, *repeated = arrivals
            if not repeated:
                yield None
            elif all(self._may_repeat(key, first.at, one.at) for one in repeated):
                yield EXCUSED
            else:
                yield self.evidence(key, f"arrived {len(arrivals)} times")

    def _may_repeat(self, key: Key, first: float, second: float) -> bool:
        return any(
            fault.fault.does in _ENDS and first - MARGIN_SECONDS <= fault.ended and fault.began <= second
            for fault in self._faults_of(key)
            if fault.began >= self._sent_at(key, first) - MARGIN_SECONDS
        )

    def _sent_at(self, key: Key, otherwise: float) -> float:
        sent = self.sent.get(key)
        return sent.at if sent else otherwise

    def _faults_of(self, key: Key) -> Iterator[FaultSpan]:
        """Faults of the nodes of both runtimes."""
        domains = {self.seen.domains[key[0]], self.seen.domains[key[1]]}
        for fault in self.seen.faults:
            if fault.fault.domain in domains:
                yield fault

    def is_hit(self, pair: Pair, fault: FaultSpan) -> bool:
        """True if a fault affects messages of a pair."""
        return fault.hits(self.seen.domains[pair[0]], self.seen.domains[pair[1]])

    def order(self) -> Iterator[Finding]:
        """First arrivals of each pair are in the order of sending."""
        newest: dict[tuple[str, str], int] = {}
        firsts = sorted((arrivals[0].at, index, key) for index, (key, arrivals) in enumerate(self.arrivals.items()))
        for _, _, key in firsts:
            pair, number = key[:2], key[2]
            before = newest.get(pair, 0)
            newest[pair] = max(before, number)
            yield self.evidence(key, f"first arrived after number {before}") if number < before else None

    def kept(self) -> Iterator[Finding]:
        """A request that was answered 2xx has arrived; an event has arrived unless something explains why not."""
        granted = {one.key for one in self.seen.answered if 200 <= one.code < 300}
        for key, sent in self.sent.items():
            if sent.kind == "request" and key not in granted:
                continue
            if self.arrivals.get(key):
                yield None
            elif sent.kind == "request":
                yield self.evidence(key, "was answered 2xx, and its receiver never got it")
            else:
                yield EXCUSED if self._may_be_lost(sent) else self.evidence(key, "never arrived, and nothing says why")

    def _may_be_lost(self, sent: Sent) -> bool:
        if self._is_in_the_dark(sent):
            return True
        until = self.seen.may_wait_until(sent, self._recovery_seconds)
        for fault in self._faults_of(sent.key):
            if (
                fault.fault.does in _LOSES
                and fault.began - MARGIN_SECONDS <= until
                and sent.at <= fault.ended + RETURN_SECONDS
            ):
                return True
        away = [one for one in self.seen.away if one.runtime in sent.key]
        if any(one.began - MARGIN_SECONDS <= until and sent.at <= one.ended for one in away):
            return True
        return any(one.outcome in _EVENTS_DENIED for one in self.seen.passages.get(sent.record_id, ()))

    def _is_in_the_dark(self, sent: Sent) -> bool:
        """True if a fault hit a pair about when it sent, one of whose nodes acknowledges nothing."""
        pair = sent.key[0], sent.key[1]
        if not self.seen.silent & {self.seen.domains[pair[0]], self.seen.domains[pair[1]]}:
            return False
        return any(
            fault.began - MARGIN_SECONDS <= sent.at <= fault.ended + self._recovery_seconds
            for fault in self.seen.faults
            if self.is_hit(pair, fault)
        )

    def answered(self) -> Iterator[Finding]:
        """Every request has exactly one end, and an end without an answer goes with an end of the session."""
        answers: dict[Key, list[Answered]] = defaultdict(list)
        for one in self.seen.answered:
            if one.code:
                answers[one.key].append(one)
        for key, sent in self.sent.items():
            if sent.kind == "request":
                yield self._answers_finding(sent, answers[key])

    def _answers_finding(self, sent: Sent, answers: Sequence[Answered]) -> Finding:
        given_up = [one.at - sent.at for one in answers if one.code == _GIVEN_UP]
        if given_up and given_up[0] < EARLY_SECONDS:
            return self.evidence(sent.key, f"was given up after {given_up[0]:.2f} s")
        if len(answers) == 1:
            return None
        if not answers:
            is_explained = self._lost_its_sender(sent) or self._is_in_the_dark(sent)
            return EXCUSED if is_explained else self.evidence(sent.key, "got no answer, not even that of its own node")
        first, *repeated = answers
        if all(
            self._may_repeat(sent.key, first.at, one.at) and (one.code == first.code or self._was_forgotten(first, one))
            for one in repeated
        ):
            return EXCUSED
        return self.evidence(sent.key, f"got {len(answers)} answers")

    def _was_forgotten(self, first: Answered, second: Answered) -> bool:
        """True if a killed node may have given up a request before, and taken its reply soon after it was back.

        `docs/delivery.md` allows that under "Late replies".
        """
        domain = self.seen.domains[first.key[0]]
        return first.code == _GIVEN_UP and any(
            fault.fault.does == "kill"
            and fault.fault.domain == domain
            and first.at <= fault.ended
            and fault.began <= second.at <= fault.ended + REQUEST_TTL_SECONDS + MARGIN_SECONDS
            for fault in self.seen.faults
        )

    def _lost_its_sender(self, sent: Sent) -> bool:
        return any(one.runtime == sent.key[0] and one.ended >= sent.at for one in self.seen.away)

    def genuine(self) -> Iterator[Finding]:
        """Whatever arrives was sent by the runtime whose address it bears, as it arrived, and no node refused it."""
        for one in self.seen.arrived:
            yield self._forgery(one) or self._kept_out(one)
        yield from (None for _ in range(self.seen.forged))
        for lure in self.seen.lures:
            yield Evidence(what=f"{lure.reader} believed {lure.what}", at=lure.at) if lure.is_believed else None
        for span in self.seen.faults:
            is_met = any(span.began <= lure.at <= span.ended for lure in self.seen.lures)
            if span.fault.is_lure and not span.problem and not is_met:
                yield Evidence(what=f"{span.title}: nobody met what is false, so it tested nothing", at=span.began)
        yield from _unmet_policies(self.seen)

    def _forgery(self, one: Arrived) -> Finding:
        sent = self.sent.get(one.key) if one.key is not None else None
        what = ""
        if one.key is None or sent is None:
            what = "nobody sent it"
        elif not self._is_addressed(one, one.key):
            what = f"it was sent by {one.key[0]} to {one.key[1]}"
        elif sent.digest != one.digest:
            what = "its content differs from what was sent"
        if not what:
            return None
        message = "" if one.key is None else name_of(one.key)
        return Evidence(
            what=f"{one.runtime} got a message from {one.sender}; {what}",
            message=message,
            at=one.at,
            arrived_at=(one.at,),
        )

    def _kept_out(self, one: Arrived) -> Finding:
        """A node has recorded that its policy keeps this message out, or has a policy that does."""
        assert one.key is not None
        sent = self.sent[one.key]
        records = self.seen.passages.get(sent.record_id, ())
        nodes = sorted({record.node for record in records if record.outcome == _KEPT_OUT})
        if nodes:
            return self.evidence(one.key, f"arrived, and {nodes[0]} has recorded that it was denied")
        for denial in self.seen.denials_of(sent):
            if one.at < denial.until:
                what = f"arrived, and the policy that {denial.domain} had since {denial.since:.2f} s denies it"
                return self.evidence(one.key, what)
        return None

    def evidence(self, key: Key, what: str) -> Evidence:
        """All that is known about a message."""
        sent = self.sent.get(key)
        arrived = tuple(one.at for one in self.arrivals.get(key, ()))
        return Evidence(
            what=what,
            message=name_of(key),
            at=sent.at if sent else arrived[0] if arrived else 0.0,
            sent_at=sent.at if sent else None,
            arrived_at=arrived,
            hops=tuple(sorted(self.seen.hops.get(sent.trace, ()), key=lambda hop: hop.at)) if sent else (),
            records=tuple(self.seen.passages.get(sent.record_id, ())) if sent else (),
        )


def name_of(key: Key) -> str:
    """Format the name of a message for reports: `sender→recipient #number`."""
    return f"{key[0]}→{key[1]} #{key[2]}"


def recoveries(seen: Seen, bar_seconds: float) -> list[Recovery]:
    """For each fault and each pair that it hit: how long after it a message arrived again.

    A pair is judged if it sent for `bar_seconds` after the fault, or was heard again before that. If another fault that
    ended later hit it before it was heard again, it is judged for that one.
    """
    case, found = _Case(seen, bar_seconds), []
    arrivals: dict[Pair, list[float]] = defaultdict(list)
    for at, key in sorted((those[0].at, key) for key, those in case.arrivals.items()):
        arrivals[key[0], key[1]].append(at)
    last_sent: dict[Pair, float] = {}
    for sent in seen.sent:
        pair = sent.key[0], sent.key[1]
        last_sent[pair] = max(sent.at, last_sent.get(pair, 0.0))
    for fault, (pair, last) in product(seen.faults, sorted(last_sent.items())):
        if fault.problem or last < fault.ended or not case.is_hit(pair, fault):
            continue
        again = next((at for at in arrivals[pair] if at >= fault.ended), math.inf)
        if again == math.inf and last < fault.ended + bar_seconds:
            continue
        if any(case.is_hit(pair, one) and fault.ended < one.ended and one.began < again for one in seen.faults):
            continue
        seconds = None if again == math.inf else again - fault.ended
        name = f"{pair[0]}→{pair[1]}"
        found.append(Recovery(number=fault.number, fault=fault.title, pair=name, seconds=seconds))
    return found


def _unmet_policies(seen: Seen) -> Iterator[Finding]:
    """A policy that was put in force amid traffic, and had nothing to deny."""
    for span in seen.faults:
        if span.fault.does != "policy":
            continue
        put = [one for one in seen.denials if one.domain == span.fault.domain and span.began <= one.since <= span.ended]
        if not any(denial.holds_for(sent) for denial in put for sent in seen.sent):
            yield Evidence(what=f"{span.title}: nobody sent what it denies, so it tested nothing", at=span.began)


def _shown_as_genuine(seen: Seen) -> str:
    """How much nodes were shown that is false, or that their policies deny."""
    figures = {
        "forged": seen.forged,
        "false documents and impostors met": len(seen.lures),
        "sent against a policy": sum(bool(seen.denials_of(one)) for one in seen.sent),
    }
    return ", ".join(f"{count} {what}" for what, count in figures.items() if count)


def _recovery(case: _Case, bar_seconds: float) -> tuple[list[Finding], str]:
    found = recoveries(case.seen, bar_seconds)
    findings: list[Finding] = []
    for one in found:
        after = "not heard again" if one.seconds is None else f"heard again after {one.seconds:.2f} s"
        is_late = one.seconds is None or one.seconds > bar_seconds
        findings.append(Evidence(what=f"{one.fault}: {one.pair} was {after}") if is_late else None)
    findings += [Evidence(what=f"{one.title}: {one.problem}") for one in case.seen.faults if one.problem]
    times = [one.seconds for one in found if one.seconds is not None]
    return findings, f"longest {max(times):.2f} s" if times else ""


def _refusals(seen: Seen) -> str:
    """What was answered in place of 2xx, and how often: such requests need not arrive."""
    codes = Counter(f"{one.code} {one.reason}".rstrip() for one in seen.answered if one.code >= _REFUSED_FROM)
    return ", ".join(f"{count:,} with {code}" for code, count in sorted(codes.items()))


def _neighbours(case: _Case, bar_ms: float) -> tuple[list[Finding], str]:
    """Messages of pairs that no fault hits, sent while one lasts, arrive as fast as ever."""
    taken: list[tuple[float, Key]] = []
    for key, sent in case.sent.items():
        source, target = case.seen.domains[key[0]], case.seen.domains[key[1]]
        during = [one for one in case.seen.faults if one.began <= sent.at <= one.ended]
        touched = any(one.hits(source, target) for one in case.seen.faults)
        if not touched and (during or not case.seen.faults):
            arrivals = case.arrivals.get(key)
            taken.append((arrivals[0].at - sent.at if arrivals else math.inf, key))
    p99 = percentile([one for one, _ in taken], 0.99)
    if p99 is None:
        return [], ""
    is_slow = p99 * 1e3 > bar_ms
    slow = sorted(taken, reverse=True)[:EVIDENCE_SHOWN] if is_slow else []
    findings: list[Finding] = [None] * (len(taken) - len(slow))
    findings += [case.evidence(key, f"took {seconds * 1e3:,.0f} ms") for seconds, key in slow]
    return findings, f"p99 {p99 * 1e3:,.1f} ms"


def _stubs(seen: Seen, bar_seconds: float) -> tuple[list[Finding], str]:
    """In time after each release, every node that runs a stub of that domain runs the one that is wanted.

    What was revoked need not be replaced: where the other domain's line carries, no stub is needed.
    """
    findings: list[Finding] = []
    taken = []
    for number, release in enumerate(seen.releases):
        later = [one.at for one in seen.releases[number + 1 :] if one.domain == release.domain]
        for node in sorted({one.node for one in seen.running if one.domain == release.domain}):
            runs = [one for one in seen.running if (one.node, one.domain) == (node, release.domain)]
            after = [one for one in runs if release.at <= one.at < min([*later, math.inf])]
            late = [one for one in after if one.at > release.at + bar_seconds]
            what = f"{release.what}: {node} runs {_named(after)} {bar_seconds:.0f} s later"
            if not late:
                findings.append(Evidence(what=f"{what}, as far as was seen", at=release.at))
            elif not all(release.is_followed(one) for one in late):
                findings.append(Evidence(what=f"{what}, not {release.wanted[:_SHOWN_DIGITS]}", at=release.at))
            else:
                taken.append(next(one.at for one in after if release.is_followed(one)) - release.at)
                findings.append(None)
    return findings, f"longest {max(taken):.2f} s" if taken else ""


def _named(runs: Sequence[Running]) -> str:
    return (runs[-1].sha256[:_SHOWN_DIGITS] if runs else "") or "nothing"


def _history(operations: Sequence[Operation]) -> list[Finding]:
    findings: list[Finding] = [None] * len(operations)
    for number, problem in enumerate(unexplained(operations)):
        lines = "; ".join(str(one) for one in problem)
        findings[number] = Evidence(what=f"no order of single steps explains: {lines}", at=problem[0].began)
    return findings
