"""The life of one stub: its states and the transitions between them, its restarts, its circuit breaker.

The stub's supervisor reports what happened and asks when it may start again. Crashes lead to a back-off that doubles;
too many of them inside a window open the circuit, and after a rest one probe decides whether it closes. A stub that has
run well for a while starts from the short delay again. Time and jitter are arguments.

`TRANSITIONS` is the only place that says which state follows which; docs/architecture.md shows it as a diagram.

Source: trust and hosts, section 4.2 (failure policy, restart back-off); docs/abi.md, "Budgets".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from protofly import limits
from protofly.errors import MisuseError
from protofly.pauses import doubling_seconds, jittered

JITTER_SHARE: Final = 0.25


class StubState(Enum):
    """States of a stub: of its deployment, of its connection, and of this host's own."""

    CREATED = "created"
    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    DEPLOYMENT_FAILED = "deployment-failed"
    IN_PROGRESS = "in-progress"
    LIVE = "live"
    FAILED = "failed"
    DISCONNECTED = "disconnected"
    VERIFY_FAILED = "verify-failed"
    QUARANTINED = "quarantined"
    DRAINING = "draining"


_REPORTED: Final = frozenset(
    {StubState.CREATED, StubState.IN_PROGRESS, StubState.LIVE, StubState.FAILED, StubState.DISCONNECTED}
)
_ENDED: Final = frozenset({StubState.FAILED, StubState.QUARANTINED, StubState.VERIFY_FAILED})
_DEPLOYING: Final = frozenset({StubState.DEPLOYING})
_RUNNING: Final = _REPORTED | _ENDED | {StubState.DRAINING}

TRANSITIONS: Final[Mapping[StubState, frozenset[StubState]]] = {
    StubState.CREATED: _RUNNING | _DEPLOYING,  # before the first deployment, or a running stub says so
    StubState.DEPLOYING: frozenset(
        {StubState.DEPLOYED, StubState.DEPLOYMENT_FAILED, StubState.VERIFY_FAILED, StubState.QUARANTINED}
    ),
    StubState.DEPLOYED: _ENDED | {StubState.IN_PROGRESS},
    StubState.DEPLOYMENT_FAILED: _DEPLOYING,
    StubState.IN_PROGRESS: _RUNNING,
    StubState.LIVE: _RUNNING,
    StubState.DISCONNECTED: _RUNNING | _DEPLOYING,  # its line is lost, or it ended in good order
    StubState.DRAINING: _ENDED | {StubState.DISCONNECTED},
    StubState.FAILED: _ENDED | _DEPLOYING,
    StubState.VERIFY_FAILED: _DEPLOYING,
    StubState.QUARANTINED: _DEPLOYING,
}
"""The legal transitions: the states that may follow each state. Any other one raises."""
_CAN_REPORT: Final = frozenset({StubState.CREATED, StubState.IN_PROGRESS, StubState.LIVE, StubState.DISCONNECTED})


def diagram() -> str:
    """The transitions as a Mermaid state diagram, for docs/architecture.md."""
    arrows = [
        f"    {state.name} --> {following.name}"
        for state, allowed in TRANSITIONS.items()
        for following in StubState
        if following in allowed and following is not state
    ]
    names = [f"    {state.name}: {state.value}" for state in StubState]
    return "\n".join(["stateDiagram-v2", "    [*] --> CREATED", *names, *arrows])


REPORTABLE: Final = {state.value: state for state in StubState if state in _REPORTED} | {
    "create": StubState.CREATED,
    "connected": StubState.LIVE,
    "LIVE": StubState.LIVE,
}
"""Words that a stub may say about itself with the `status` action; the last three are the words of old stubs.

Source: message specification, section 6.
"""


@dataclass(frozen=True, slots=True)
class Restart:
    """The earliest start of the next instance, in the caller's clock, and if this crash opened the circuit."""

    at: float
    opens_circuit: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """The pause of a link after a failed attempt.

    Attributes:
        seconds: Then it is tried again.
        asked_seconds: After so many it is tried as soon as messages wait for it; never more than `seconds`.
    """

    seconds: float = 0.0
    asked_seconds: float = 0.0

    @classmethod
    def whole(cls, seconds: float) -> Pause:
        """A pause that nobody shortens."""
        return cls(seconds, seconds)


class StubLifecycle:
    """State, back-off and circuit of one stub. Times are seconds of any monotonic clock.

    Every event may raise MisuseError: the state does not allow it, which is a defect of the caller.
    """

    def __init__(self) -> None:
        self.state = StubState.CREATED
        self.detail = ""
        self._recent: deque[float] = deque(maxlen=limits.CRASHES_BEFORE_CIRCUIT)
        self._in_a_row = 0
        self._next_start = 0.0
        self._live_since: float | None = None
        self._circuit_until: float | None = None
        self._is_probing = False
        self._failures = 0
        self._was_live = False

    @property
    def is_circuit_open(self) -> bool:
        """True from the crash too many until a probe went well."""
        return self._circuit_until is not None

    def starts_at(self) -> float:
        """The earliest time of the next start; in the past when nothing holds it."""
        return self._next_start

    def may_start(self, now: float) -> bool:
        """A new instance is allowed now. With an open circuit this is the one probe after the rest."""
        return now >= self._next_start

    def deploying(self, detail: str = "") -> None:
        """Its package is being fetched, verified and compiled."""
        self._move(StubState.DEPLOYING, detail)

    def deployed(self) -> None:
        """Its package may run, and has a worker process."""
        self._move(StubState.DEPLOYED)

    def started(self, now: float) -> None:
        """A new instance exists and has been given its `start` event.

        Raises:
            MisuseError: it was not allowed yet.
        """
        if not self.may_start(now):
            raise MisuseError(f"a stub was started {self._next_start - now:.3f} s too early")
        self._is_probing = self.is_circuit_open
        self._live_since = None
        self._move(StubState.IN_PROGRESS)

    def reported(self, text: str, now: float) -> StubState | None:
        """The stub's own `status` action: the new state, None when the word is unknown or comes too late."""
        word, _, detail = text.partition(" ")
        state = REPORTABLE.get(word)
        if state is None or self.state not in _CAN_REPORT:
            return None
        if state is StubState.LIVE:
            self._failures = 0
            self._was_live = True
            if self._live_since is None:
                self._live_since = now
            if self._is_probing:
                self._close_circuit()
        self._move(state, detail)
        return state

    def crashed(self, now: float, jitter: float, detail: str = "") -> Restart:
        """The instance or its worker is gone.

        Args:
            now: The time.
            jitter: A random number in [0, 1); spreads restarts by up to a quarter of the delay.
            detail: What to show to the operator.
        """
        if self._live_since is not None and now - self._live_since >= limits.RESTART_MAX_SECONDS:
            self._in_a_row = 0
        self._recent.append(now)
        if self._is_probing or self._is_crashing_too_often(now):
            self._circuit_until = self._next_start = now + limits.CIRCUIT_OPEN_SECONDS
            self._move(StubState.QUARANTINED, detail)
            return Restart(self._next_start, opens_circuit=True)
        self._in_a_row += 1
        delay = doubling_seconds(limits.RESTART_BASE_SECONDS, self._in_a_row, limits.RESTART_MAX_SECONDS)
        self._next_start = now + delay * (1 + JITTER_SHARE * jitter)
        self._failed(detail)
        return Restart(self._next_start, opens_circuit=False)

    def unreached(self, detail: str, *, draw: float, was_up: bool = False) -> Pause:
        """Its domain was not reached, or the far end refused us: nothing is wrong with its code.

        Args:
            detail: What to show to the operator.
            draw: A random number in [0, 1).
            was_up: The link was up before, by whatever carrier. Then messages shorten long pauses: an outage ends, and
                nobody has to wait for as long as it lasted. Who writes to domains that never answered shortens nothing.

        Returns:
            Seconds until the next try. They double with each failure in a row, until the stub is live.
        """
        self._failed(detail)
        seconds = self._pause(limits.RECONNECT_BASE_SECONDS, limits.RECONNECT_MAX_SECONDS, draw)
        if not (was_up or self._was_live):
            return Pause.whole(seconds)
        return Pause(seconds, min(seconds, jittered(limits.RECONNECT_ASKED_SECONDS, draw=draw)))

    def unusable(self, detail: str, *, draw: float, is_refused: bool) -> float:
        """It cannot run: what its domain publishes `is_refused`, before or while it ran, or something failed here.

        Arguments as for `unreached`; returns seconds that double in the same way.
        """
        if is_refused:
            self._move(StubState.VERIFY_FAILED, detail)
        else:
            self._failed(detail)
        return self._pause(limits.RESTART_BASE_SECONDS, limits.RESTART_MAX_SECONDS, draw)

    def ended(self) -> None:
        """The instance ended in good order."""
        self._failures = 0
        self._move(StubState.DISCONNECTED)

    def replaced(self) -> None:
        """Another package takes over: back-off and circuit of the old one are forgotten."""
        self._close_circuit()
        self._in_a_row = 0
        self._next_start = 0.0

    def draining(self) -> None:
        """No more messages will be handed over."""
        self._move(StubState.DRAINING)

    def _failed(self, detail: str) -> None:
        is_deployment = self.state is StubState.DEPLOYING
        self._move(StubState.DEPLOYMENT_FAILED if is_deployment else StubState.FAILED, detail)

    def _pause(self, first_seconds: float, most_seconds: float, draw: float) -> float:
        self._failures += 1
        return jittered(doubling_seconds(first_seconds, self._failures, most_seconds), draw=draw)

    def _is_crashing_too_often(self, now: float) -> bool:
        is_full = len(self._recent) == limits.CRASHES_BEFORE_CIRCUIT
        return is_full and now - self._recent[0] <= limits.CRASH_WINDOW_SECONDS

    def _close_circuit(self) -> None:
        self._circuit_until = None
        self._is_probing = False
        self._recent.clear()

    def _move(self, state: StubState, detail: str = "") -> None:
        if state is not self.state and state not in TRANSITIONS[self.state]:
            raise MisuseError(f"a stub that is {self.state.value} cannot become {state.value}")
        self.state = state
        self.detail = detail
