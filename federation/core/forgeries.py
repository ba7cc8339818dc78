"""Messages in the name of others: counted by the name that they bear, and how many of them end a connection.

Who is forged for costs nobody but the forger. A far end that has proved itself as a node answers for its senders, and
loses its connection when too many forgeries come in a short time. One that has proved nothing cannot know its senders:
what they forge is dropped and counted, and everybody else behind it goes on.
Source: foreign nodes, section 3.4; message specification, section 18.4.
"""

from __future__ import annotations

from collections import deque

FORGERIES_BEFORE_CLOSE = 3
FORGERY_SECONDS = 60.0
NAMES_COUNTED = 64


class ForgeryLimit:
    """Counts forgeries of one connection, and closes it at `FORGERIES_BEFORE_CLOSE` within `FORGERY_SECONDS`.

    Args:
        is_node: True when the far end has proved itself as a node; else there is no limit.
    """

    def __init__(self, *, is_node: bool) -> None:
        self._is_node = is_node
        self._times: deque[float] = deque(maxlen=FORGERIES_BEFORE_CLOSE)

    def caught(self, now: float) -> None:
        """One more forgery came; `now` is monotonic seconds."""
        self._times.append(now)

    @property
    def is_reached(self) -> bool:
        """True when the connection has to end."""
        times = self._times
        return self._is_node and len(times) == FORGERIES_BEFORE_CLOSE and times[-1] - times[0] <= FORGERY_SECONDS


class ForgedNames:
    """Counts forgeries by name, and keeps the most frequent names.

    A name that is new while the table is full takes the place of the one that was counted least, and goes on from its
    count: then no count is too low (the Space-Saving method of Metwally and others).
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, name: str) -> None:
        """A message came in this name."""
        counts = self._counts
        if name in counts or len(counts) < NAMES_COUNTED:
            counts[name] = counts.get(name, 0) + 1
        else:
            least = min(counts, key=counts.__getitem__)
            counts[name] = counts.pop(least) + 1

    def most(self, number: int) -> dict[str, int]:
        """The names that were forged most often, most often first."""
        return dict(sorted(self._counts.items(), key=lambda item: -item[1])[:number])
