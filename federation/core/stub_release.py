"""A newer version of a stub at this node, from its first start until it has proved itself or has failed.

    BESIDE   ──live──▶ CARRYING ──ten minutes──▶ PROVED
       │                │   ▲ │
       │            no line │ └──fault──▶ FAILED ◀──fault, or no line while the older one has one── BESIDE, ALONE
       │                ▼   │live                 ▲
    older ended ──▶   ALONE ┘                     │the older one gets a line
                        └────────no line──▶ SET ASIDE

It starts beside the version that runs, and takes over when it is live; where none runs, it starts alone. A fault of its
code is held against it. Missing lines are only where its predecessor has one: the node at the far end may just be
restarted. `TABLE` is the whole decision; what is to be done is the action. Times are arguments.

Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from protofly.limits import RELEASE_TRIAL_SECONDS


class Stage(Enum):
    """The stage of a newer version on its way into use."""

    BESIDE = "beside"
    ALONE = "alone"
    CARRYING = "carrying"
    SET_ASIDE = "set aside"
    PROVED = "proved"
    FAILED = "failed"


class ReleaseEvent(Enum):
    """An event in the life of a newer version."""

    LIVE = "live"
    FAULT = "fault"
    NO_LINE = "no line"
    NO_LINE_BUT_OLDER = "no line, but the older one has one"
    OLDER_ENDED = "older ended"
    OLDER_LIVE = "older live"


class ReleaseAction(Enum):
    """An action that follows from an event of a newer version."""

    NOTHING = "nothing"
    TAKE_OVER = "take over"
    """Messages go by it from now on, and the older one is ended in good order."""
    ROLL_BACK = "roll back"
    """Its module is marked as failed, and the older one goes on."""
    TRY_OLDER = "try older"
    """Nothing is held against it yet; the older one is tried."""


TABLE: Final = {
    (Stage.BESIDE, ReleaseEvent.LIVE): (Stage.CARRYING, ReleaseAction.TAKE_OVER),
    (Stage.BESIDE, ReleaseEvent.FAULT): (Stage.FAILED, ReleaseAction.ROLL_BACK),
    (Stage.BESIDE, ReleaseEvent.NO_LINE_BUT_OLDER): (Stage.FAILED, ReleaseAction.ROLL_BACK),
    (Stage.BESIDE, ReleaseEvent.NO_LINE): (Stage.SET_ASIDE, ReleaseAction.TRY_OLDER),
    (Stage.BESIDE, ReleaseEvent.OLDER_ENDED): (Stage.ALONE, ReleaseAction.NOTHING),
    (Stage.ALONE, ReleaseEvent.LIVE): (Stage.CARRYING, ReleaseAction.NOTHING),
    (Stage.ALONE, ReleaseEvent.FAULT): (Stage.FAILED, ReleaseAction.ROLL_BACK),
    (Stage.ALONE, ReleaseEvent.NO_LINE): (Stage.SET_ASIDE, ReleaseAction.TRY_OLDER),
    (Stage.CARRYING, ReleaseEvent.FAULT): (Stage.FAILED, ReleaseAction.ROLL_BACK),
    (Stage.CARRYING, ReleaseEvent.NO_LINE): (Stage.SET_ASIDE, ReleaseAction.TRY_OLDER),
    (Stage.SET_ASIDE, ReleaseEvent.LIVE): (Stage.CARRYING, ReleaseAction.TAKE_OVER),
    (Stage.SET_ASIDE, ReleaseEvent.FAULT): (Stage.FAILED, ReleaseAction.ROLL_BACK),
    (Stage.SET_ASIDE, ReleaseEvent.OLDER_LIVE): (Stage.FAILED, ReleaseAction.ROLL_BACK),
}
"""The stage that follows, and what is to be done. What is not in it changes nothing."""


class StubRelease:
    """One newer version of a stub.

    Args:
        is_beside: The older one runs.
    """

    def __init__(self, *, is_beside: bool) -> None:
        self.stage = Stage.BESIDE if is_beside else Stage.ALONE
        self._live_since: float | None = None

    def handle(self, event: ReleaseEvent, now: float) -> ReleaseAction:
        """Take in what happened at `now`, in monotonic seconds."""
        if self.seconds_until_proved(now) == 0.0:
            self.stage = Stage.PROVED
        self.stage, action = TABLE.get((self.stage, event), (self.stage, ReleaseAction.NOTHING))
        if self.stage is Stage.CARRYING and self._live_since is None:
            self._live_since = now
        return action

    def seconds_until_proved(self, now: float) -> float | None:
        """Seconds until it has carried for long enough; None while it does not carry, or has failed."""
        if self._live_since is None or self.stage is not Stage.CARRYING:
            return None
        return max(0.0, self._live_since + RELEASE_TRIAL_SECONDS - now)
