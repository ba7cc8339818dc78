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
BUSY_SHARE: Final = 0.35
"""A loop that works for a smaller part of its time does not wait: its processor has time to spare."""
MESSAGES_PER_SECOND: Final = 1_000
LOOKS_PER_SECOND: Final = 500
COMPANY: Final = 1.5
"""Messages per look that was put off; fewer are not worth the wait."""
FEWEST_WAITS: Final = 16
KEPT_RATE: Final = 0.85
"""Of the messages per second of the window before, so many have to come while looks are put off."""
PAUSE_SECONDS: Final = 1.0
"""Waiting that was not worth it is tried again after so long."""
TRIAL_SECONDS: Final = 5.0
"""Waiting that is worth it stops for one window after so long, to compare again."""


@dataclass(slots=True)
class _Window:
    """What happened in one window.

    Attributes:
        began: Monotonic seconds.
        messages: Read since the start of the node, when the window began.
        worked: Seconds in which tasks ran.
        looks: Looks for input that could wait.
        waits: Those that were put off.
    """

    began: float = 0.0
    messages: int = 0
    worked: float = 0.0
    looks: int = 0
    waits: int = 0


class Gathering:
    """Decides before each look for input how long it is put off.

    Call `looks` before each look and `found` after it.

    Args:
        seconds: So far apart are two looks that wait for input while looks are put off.

    Attributes:
        is_on: True while looks are put off.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_on = False
        self._window = _Window()
        self._found = 0.0
        self._works_since = 0.0
        self._rate_before: float | None = None
        self._next_trial = 0.0

    def looks(self, now: float, timeout: float, messages: int) -> float:
        """The loop is about to look for input: returns the seconds that it should wait before.

        Args:
            now: Monotonic seconds.
            timeout: How long the look itself may wait; 0 when tasks are ready to run, which never wait.
            messages: Read since the start of the node.
        """
        window = self._window
        window.worked += now - self._works_since
        if now - window.began >= WINDOW_SECONDS or self._is_alone(messages):
            self._judge(now, messages)
            window = self._window
        if not self.is_on or timeout <= 0:
            return 0.0
        rest = self._found + self._seconds - now
        if rest <= 0:
            return 0.0
        window.waits += 1
        return min(rest, timeout)

    def found(self, now: float, timeout: float) -> None:
        """The loop has looked; `timeout` is what `looks` was given."""
        self._works_since = now
        if timeout > 0:
            self._found = now
            self._window.looks += 1

    def _is_alone(self, messages: int) -> bool:
        """True once the first waits of a window brought no company: a sender that waits for answers loses no more."""
        window = self._window
        return window.waits == FEWEST_WAITS and messages - window.messages < COMPANY * FEWEST_WAITS

    def _judge(self, now: float, messages: int) -> None:
        """Decide about the next window by the one that ends, which is a new one then."""
        window, seconds = self._window, now - self._window.began
        rate = (messages - window.messages) / seconds
        if self.is_on:
            has_company = messages - window.messages >= COMPANY * window.waits and window.waits >= FEWEST_WAITS
            is_slower = self._rate_before is not None and rate < KEPT_RATE * self._rate_before
            self._rate_before = None
            if is_slower or not has_company:
                self.is_on, self._next_trial = False, now + PAUSE_SECONDS
            elif now >= self._next_trial:
                self.is_on = False
        elif (
            now >= self._next_trial
            and rate >= MESSAGES_PER_SECOND
            and window.looks >= LOOKS_PER_SECOND * seconds
            and window.worked >= BUSY_SHARE * seconds
        ):
            self.is_on, self._rate_before, self._next_trial = True, rate, now + TRIAL_SECONDS
        self._window = _Window(began=now, messages=messages)
