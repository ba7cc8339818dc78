"""When failed lines of a domain justify asking for its documents before they are due.

A domain that moves its endpoint says so in its `live` document, which others may hold for an hour. A line that cannot
be opened is a hint that this has happened; anybody can give it, also a domain that wants to keep us busy. So the first
failure asks at once, and each further one after a pause that doubles from one minute to ten, until a line has held for
a while. `DomainDocuments` adds a bound of its own: documents younger than a minute are not asked for again.
"""

from __future__ import annotations

from catalogue_client.core.state import DomainTrust
from protofly.pauses import doubling_seconds, jittered
from protofly.stub import VerifiedStub

FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 600.0
STEADY_SECONDS = 60.0
"""Seconds that a connection has to last before its next failure counts as a first one."""


class Renewal:
    """Counts the failures of one domain's lines. All times are monotonic seconds."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._asked = 0
        self._next_at = 0.0
        self._live_since: float | None = None

    def failed(self, now: float) -> None:
        """A line could not be opened, or the far end refused it."""
        if self._live_since is not None and now - self._live_since >= STEADY_SECONDS:
            self._asked, self._next_at = 0, 0.0
        self._live_since = None
        self._is_wanted = True

    def succeeded(self, now: float) -> None:
        """A line is up and proved: nothing needs to be asked."""
        self._live_since = now if self._live_since is None else self._live_since
        self._is_wanted = False

    def due_in(self, now: float) -> float | None:
        """Seconds until the documents may be asked for, None while no failure wants it."""
        return max(0.0, self._next_at - now) if self._is_wanted else None

    def asked(self, now: float, *, draw: float) -> None:
        """They are being asked for; `draw` is a random number in [0, 1)."""
        self._is_wanted = False
        self._asked += 1
        self._next_at = now + jittered(
            doubling_seconds(FIRST_PAUSE_SECONDS, self._asked, LONGEST_PAUSE_SECONDS), draw=draw
        )


def has_moved(stub: VerifiedStub, trust: DomainTrust) -> bool:
    """True when the endpoints of a stub are others by newer documents than those that it was started with."""
    declared = {endpoint.name: endpoint for endpoint in trust.live.endpoints}
    names = stub.manifest.permissions.connect
    return {name: declared[name] for name in names if name in declared} != dict(stub.endpoints)
