"""Log-ins at the console: who has shown the token in a browser, for how long, and the word that its forms carry.

Only digests of the cookies are kept. A log-in ends after half an hour without a request, after twelve hours, when it
logs out, and when the token changes. There is room for a few; the one that was used longest ago makes room.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

LOG_INS: Final = 32
IDLE_SECONDS: Final = 1800.0
LIFE_SECONDS: Final = 12 * 3600.0


@dataclass(slots=True)
class LogIn:
    """One log-in. Times are seconds of one clock that only goes forward.

    Attributes:
        csrf: The word that its forms carry, which no page of others can know.
        token_digest: The token that it was opened with.
    """

    csrf: str
    token_digest: bytes
    opened_at: float
    used_at: float

    def is_right(self, csrf: str) -> bool:
        """True if a form carries the word of this log-in."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode("utf-8", "surrogatepass"))


class ConsoleSessions:
    """All log-ins."""

    def __init__(self) -> None:
        self._log_ins: OrderedDict[bytes, LogIn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._log_ins)

    def open(self, cookie: str, csrf: str, token_digest: bytes, now: float) -> LogIn:
        """Open one; `cookie` and `csrf` are fresh randomness."""
        made = self._log_ins[_digest(cookie)] = LogIn(csrf, token_digest, now, now)
        if len(self._log_ins) > LOG_INS:
            self._log_ins.popitem(last=False)
        return made

    def find(self, cookie: str, token_digest: bytes, now: float) -> LogIn | None:
        """Find the log-in of a cookie, if it counts with the token of now; it has been used then."""
        key = _digest(cookie)
        found = self._log_ins.get(key)
        if found is None:
            return None
        is_over = now - found.used_at > IDLE_SECONDS or now - found.opened_at > LIFE_SECONDS
        if is_over or not token_digest or found.token_digest != token_digest:
            del self._log_ins[key]
            return None
        found.used_at = now
        self._log_ins.move_to_end(key)
        return found

    def close(self, cookie: str) -> None:
        """End one."""
        self._log_ins.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()
