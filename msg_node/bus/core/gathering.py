"""When a busy event loop waits for company before it looks for input again.

Each look at the sockets of a node costs the same whether one of them has something or many have. Where a few thousand
messages a second come one by one, the node pays for a look, a batch to a stub, a frame to a link and an acknowledgement
for each of them; a look per millisecond finds several. At low rates a look costs nobody anything, and in a flood each
look finds much anyway: there the loop looks at once, as ever. So it does where waiting brings no company, because a
sender waits for each answer, and where it makes senders slower, because they wait for some: that is tried out.

The figures of one window decide about the next one; a window whose first waits bring no company ends with them.
Pure: `now` is monotonic seconds. See ADR 40.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 0.128
CALM_SECONDS: Final = 0.5
"""Between two looks at a loop with few messages, which cost it a fifty-thousandth of its time."""
BUSY_SHARE: Final = 0.35
"""A loop that works for a smaller part of its time does not wait: its processor has time to spare."""
MESSAGES_PER_SECOND: Final = 1_000
TURNS_PER_SECOND: Final = 500
COMPANY: Final = 1.5
"""Messages per look that was put off; fewer are not worth the wait."""
FEWEST_WAITS: Final = 16
KEPT_RATE: Final = 0.85
"""Of the messages per second of the window before, so many have to come while looks are put off."""
PAUSE_SECONDS: Final = 1.0
"""Waiting that was not worth it is tried again after so long."""
TRIAL_SECONDS: Final = 5.0
"""Waiting that is worth it stops for one window after so long, to compare again."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals of a read loop since the start of the node.

    Attributes:
        messages: Those that it has read.
        turns: How often it read some.
        worked_seconds: Processor time of its thread.
    """

    messages: int
    turns: int
    worked_seconds: float


class Gathering:
    """Decides before each look for input how long it is put off.

    Call `watch` while no look is put off. Once that has set `is_on`, call `looks` before each look and `found` after
    it, until `is_on` is False again.

    Args:
        seconds: So far apart are two looks that wait for input while looks are put off.

    Attributes:
        is_on: True while looks are put off.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_on = False
        self._watched: Progress | None = None
        self._began = 0.0  # this window
        self._messages = 0  # when it began
        self._waits = 0  # looks that were put off in it
        self._found = 0.0
        self._rate_before: float | None = None
        self._next_trial = 0.0

    def watch(self, now: float, progress: Progress) -> float:
        """Decide by what happened since the last call whether looks are put off from now on.

        Returns:
            The seconds after which to call this again, if they are not.
        """
        before, seconds = self._watched, now - self._began
        self._watched, self._began = progress, now
        if now < self._next_trial:
            return self._next_trial - now
        if before is None or seconds <= 0:
            return WINDOW_SECONDS
        rate = (progress.messages - before.messages) / seconds
        if rate < MESSAGES_PER_SECOND:
            return CALM_SECONDS
        has_many_turns = progress.turns - before.turns >= TURNS_PER_SECOND * seconds
        if has_many_turns and progress.worked_seconds - before.worked_seconds >= BUSY_SHARE * seconds:
            self.is_on, self._rate_before, self._next_trial = True, rate, now + TRIAL_SECONDS
            self._messages, self._waits = progress.messages, 0
        return WINDOW_SECONDS

    def looks(self, now: float, timeout: float, messages: int) -> float:
        """The loop is about to look for input: returns the seconds that it should wait before.

        Args:
            now: Monotonic seconds.
            timeout: How long the look itself may wait; 0 when tasks are ready to run, which never wait.
            messages: Read since the start of the node.
        """
        if now - self._began >= WINDOW_SECONDS or self._is_alone(messages):
            self._judge(now, messages)
        if not self.is_on or timeout <= 0:
            return 0.0
        rest = self._found + self._seconds - now
        if rest <= 0:
            return 0.0
        self._waits += 1
        return min(rest, timeout)

    def found(self, now: float, timeout: float) -> None:
        """The loop has looked; `timeout` is what `looks` was given."""
        if timeout > 0:
            self._found = now

    def _is_alone(self, messages: int) -> bool:
        """True once the first waits of a window brought no company: a sender that waits for answers loses no more."""
        return self._waits == FEWEST_WAITS and messages - self._messages < COMPANY * FEWEST_WAITS

    def _judge(self, now: float, messages: int) -> None:
        """Decide by the window that ends whether looks are put off in the next one."""
        if not self.is_on:
            return
        gained = messages - self._messages
        has_company = gained >= COMPANY * self._waits and self._waits >= FEWEST_WAITS
        is_slower = self._rate_before is not None and gained < KEPT_RATE * self._rate_before * (now - self._began)
        self._rate_before = None
        if is_slower or not has_company:
            self.is_on, self._next_trial = False, now + PAUSE_SECONDS
        elif now >= self._next_trial:
            self.is_on = False
        self._began, self._messages, self._waits = now, messages, 0
        if not self.is_on:
            self._watched = None
