"""What happened to one link: audit records, and lines in the log within an allowance."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from federation.core.contact_trouble import ContactTrouble, Side
from federation.log_allowance import LogAllowance
from protofly.errors import Code
from protofly.limits import HEADER_CHARS
from protofly.records import LinkEvent, Record, StubEvent

logger = logging.getLogger("federation")

LOG_LINES_PER_MINUTE = 10
"""Lines of one kind in the log about one link: a peer whose line comes and goes all the time, or that sends nothing but
forgeries, does not fill the log. The link's counters and the audit records have them all."""
LOG_DETAIL_CHARS = 256
DETAIL_CHARS = 256
_LINES = {"out": "by their stub, which runs here", "in": "by our stub, which runs there"}

Direction = Literal["out", "in"]


class LinkEvents:
    """Records and logs what happens to the link of one domain.

    Args:
        domain: The foreign domain.
        record: Takes records; never blocks.
        monotonic: Seconds; decides which minute a line of the log belongs to.
    """

    def __init__(
        self, domain: str, record: Callable[[Record], None], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._domain = domain
        self._record = record
        self._about = {"domain": domain}
        self._log_lines = LogAllowance(LOG_LINES_PER_MINUTE, monotonic)
        self._trouble = ContactTrouble(domain)

    def came_up(self, direction: Direction, *, peer_node: str) -> None:
        """The link has a carrier more; `direction` says whose line it is. Whatever kept us from the domain is over."""
        self._trouble.over()
        event = self._event("up", direction)
        event.peer_node = peer_node or None
        self._record(event)
        self._log("is up", _LINES[direction] + (f", to {peer_node}" if peer_node else ""))

    def went_down(self, direction: Direction, *, waiting: int, detail: str) -> None:
        """The link has a carrier less; so many messages wait or are under way. `detail` may be a stub's words."""
        event = self._event("down", direction)
        event.waiting = waiting
        self._record(event)
        words = "".join(char if char.isprintable() else "." for char in detail[:LOG_DETAIL_CHARS])
        self._log("is down", f"{_LINES[direction]}, {waiting} messages wait" + (f"; {words}" if words else ""))

    def stepped(self, step: str, seconds: float) -> None:
        """A step of first contact is done; it took so long."""
        event = self._event("step", "out")
        event.step, event.duration_us = step or None, int(seconds * 1e6)
        self._record(event)

    def refused(self, code: Code, detail: str) -> None:
        """The domain, or the way to it, was refused by us."""
        event = self._event("refused", "out")
        event.code, event.detail = code.word, detail[:DETAIL_CHARS] or None
        self._record(event)

    def spoofed(self, sender: str, code: Code) -> None:
        """A message came in a name for which the other side does not speak; recorded within an allowance."""
        if self._log_lines.takes("spoofed"):
            event = self._event("spoofed", "in")
            event.code, event.src_key = code.word, sender[:HEADER_CHARS] or None
            self._record(event)
            logger.warning("%s sent a message in the name of %.128s", self._domain, sender, extra=self._about)

    def met(self, side: Side, text: str) -> None:
        """Something keeps us from the domain: a warning when it is another trouble than before."""
        warning = self._trouble.met(side, text, time.time())
        if warning and self._log_lines.takes("trouble"):
            logger.warning("%s", warning, extra=self._about)

    @property
    def trouble(self) -> str:
        """The trouble that keeps us from the domain, in one line; "" when there is none."""
        return self._trouble.text(time.time())

    @property
    def is_on_the_way(self) -> bool:
        """True if that trouble is on the way to the domain, and not in what it publishes or in its stub."""
        return self._trouble.is_on_the_way

    def stalled(self, detail: str) -> None:
        """The far end is silent although it owes us something."""
        if self._log_lines.takes("stall"):
            text = "the link to %s is stalled: %s; senders get 504 until it is heard"
            logger.warning(text, self._domain, detail, extra=self._about)

    def heard_again(self, seconds: float) -> None:
        """A stall has ended; it lasted so long."""
        if self._log_lines.takes("stall"):
            logger.warning("the link to %s is heard again after %.0f s", self._domain, seconds, extra=self._about)

    def throttled(self, detail: str) -> None:
        """The stub has used up its share of the node, as `detail` says; without one it has enough again."""
        code = Code.STUB_THROTTLED.word if detail else None
        state = "throttled" if detail else "unthrottled"
        self._record(
            StubEvent(ts_us=int(time.time() * 1e6), domain=self._domain, event="state", state=state, code=code)
        )
        if self._log_lines.takes("throttled"):
            text = f"{Code.STUB_THROTTLED.word}: {detail}" if detail else "its stub need not wait now"
            logger.warning("the link to %s: %s", self._domain, text, extra=self._about)

    def broken(self, exc: Exception) -> None:
        """Bytes came that are no message."""
        if self._log_lines.takes("broken"):
            logger.info("broken message from %s: %s", self._domain, exc, extra=self._about)

    def _log(self, event: str, text: str) -> None:
        if self._log_lines.takes("line"):
            logger.info("the link to %s %s: %s", self._domain, event, text, extra=self._about)

    def _event(self, event: Literal["step", "up", "down", "refused", "spoofed"], direction: Direction) -> LinkEvent:
        return LinkEvent(ts_us=int(time.time() * 1e6), domain=self._domain, event=event, direction=direction)
