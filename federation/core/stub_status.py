"""What we know of the stub that we host for one domain: one line of the inventory that operators read.

The state is the stub's own: its link may be live all the same, when the other node carries it. Source: message
specification, section 6.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from federation.core.stub_meters import StubMeters

_STUB_ID_BYTES = 12
STATES_KEPT = 10


@dataclass(frozen=True, slots=True)
class StubAddresses:
    """The addresses that stubs have on this node: one per foreign domain.

    They stay the same over restarts, differ from those of every other node, of the same name or not, and have one
    length, so that none begins with another: a foreign node may keep sessions by them. Source: foreign nodes, section
    3.5.

    Attributes:
        node: Address of our node.
        key: What only this node has, and keeps; at most 64 bytes.
    """

    node: str
    key: bytes = b""

    def of(self, domain: str) -> str:
        """The address of the stub of a domain."""
        digits = hashlib.blake2b(domain.encode(), digest_size=_STUB_ID_BYTES, key=self.key).hexdigest()
        return f"{self.node}/protostub/{digits}"


@dataclass(slots=True)
class StepTimes:
    """Durations of the steps of first contact, in milliseconds and in order."""

    steps: list[tuple[str, float]] = field(default_factory=list)
    is_warm: bool = False

    def add(self, name: str, seconds: float) -> None:
        """One more step is done."""
        self.steps.append((name, seconds * 1000))


@dataclass(slots=True)
class StubStatus:
    """One hosted stub, from its first deployment on.

    Attributes:
        url: Its address on our node, `<node>/protostub/<id>`.
        domain: Whose stub it is.
        module_sha256: Hex digest of the module that was verified last, "" before there was one.
        version: What its manifest says.
        ranges: The legacy addresses that it speaks for, if it is an interworking stub.
        state: A word of the specification, "" while there has been no deployment: of the deployment (`deploying`,
            `deployed`, `deployment-failed`), then of the connection, or one of this node's own.
        detail: The reason, for operators.
        update: What happened to a newer version last, "" if there was none.
        worker_pid: Its worker process, while there is one.
        started_sha256: Digest of the module that was started last, "" before there was one.
        description: What operators are shown of it.
        times: How long the steps of the last deployment took.
        meters: What it has used.
        states: The last states, oldest first, each with the time in seconds since the Unix epoch and its reason.
        on_change: Called after each change of the state, once the other attributes are right.
    """

    url: str
    domain: str
    module_sha256: str = ""
    version: str = ""
    ranges: str = ""
    state: str = ""
    detail: str = ""
    update: str = ""
    worker_pid: int | None = None
    started_sha256: str = ""
    description: dict[str, object] = field(default_factory=dict)
    times: StepTimes = field(default_factory=StepTimes)
    meters: StubMeters = field(default_factory=StubMeters)
    states: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=STATES_KEPT))
    on_change: Callable[[StubStatus], None] = lambda _: None

    def became(self, state: str, detail: str = "", *, now: float) -> None:
        """It is in a state; `now` is in seconds since the Unix epoch."""
        is_change = state != self.state
        if is_change:
            self.state = state
            self.states.append((now, state, detail))
        self.detail = detail
        if is_change:
            self.on_change(self)

    @property
    def since(self) -> float:
        """Seconds since the Unix epoch at which it entered its state; 0 while it has none."""
        return self.states[-1][0] if self.states else 0.0

    @property
    def signature(self) -> Literal["valid", "unverified"]:
        """The verdict on the last package that was offered: `valid` if it passed every check."""
        return "valid" if self.module_sha256 else "unverified"

    def verified(self, *, module_sha256: str, version: str, ranges: str = "") -> None:
        """A package of it passed every check."""
        self.module_sha256, self.version = module_sha256, version
        self.ranges = ranges

    def refused(self) -> None:
        """A package that was offered did not pass: none is left that could run."""
        self.module_sha256, self.version, self.ranges = "", "", ""

    def line(self) -> dict[str, str]:
        """Its line of the inventory: members of the specification, and two of our own.

        `interworking` are the ranges of such a stub, `desc` is there where there is something to explain.
        """
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        line = {
            "url": self.url,
            "domain": self.domain,
            "package": self.module_sha256 and f"sha256-{self.module_sha256}",
            "version": self.version,
            "signature": self.signature,
            "state": self.state,
            "since": since,
        }
        optional = {"interworking": self.ranges, "desc": self.detail}
        return {**line, **{name: text for name, text in optional.items() if text}}
