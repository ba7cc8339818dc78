"""Where abuse by a sender begins: thresholds for those who count, and for those who say what was counted."""

from __future__ import annotations

from typing import Final

FAN_OUT_RECIPIENTS: Final = 100
"""Different recipients of one sender within five minutes."""
SCAN_ATTEMPTS: Final = 30
"""Messages of one sender in an hour to addresses that do not exist."""
SCAN_RECIPIENTS: Final = 20
"""Different addresses among those."""
SCAN_SHARE: Final = 0.5
"""Share of an hour's messages of one sender that went to nobody."""
