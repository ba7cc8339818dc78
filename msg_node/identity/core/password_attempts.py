"""How often somebody may try passwords. Pure.

Anyone who guesses sits in some network: an address in IPv4, a /64 in IPv6. So attempts are counted where they come
from, and those that are wrong in one network make nobody wait in another:

* **One user, one network.** After five that failed the next one waits, twice as long each time, five minutes at most.
  A right password forgets them; an hour without attempts does, too.
* **One network, all users.** Thirty at once, and one more every ten seconds: who tries one password for many users.
* **One user, all networks** where that user has not logged in during the last thirty days: a hundred at once, and one
  more every minute, for guesses from many networks. One network has used up its own five, and then twelve an hour,
  long before. Where the user logs in as always, this bound does not count: the idea of "device
  cookies" (OWASP), with networks in place of cookies.

Each attempt counts from the moment it is admitted, so that attempts side by side win nothing; a right one is taken
back. Names that nobody has are counted like others. Everything is bounded: what is oldest is forgotten.

Source: feature row SC-14.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

from msg_node.kernel.keyed_rates import KeyedRates

FREE_ATTEMPTS: Final = 5
LONGEST_WAIT_SECONDS: Final = 300.0
FORGOTTEN_SECONDS: Final = 3600.0
NETWORK_ATTEMPTS: Final = 30
NETWORK_SECONDS: Final = 10.0
"""A network has one more attempt after so long."""
USER_ATTEMPTS: Final = 100
USER_SECONDS: Final = 60.0
"""A user has one more attempt, from all networks, after so long."""
FAMILIAR_SECONDS: Final = 30 * 86_400.0
FAMILIAR_NETWORKS: Final = 8
COUNTED: Final = 10_000


class Bound(Enum):
    """The bound that an attempt has to wait for; its value says whose attempts there were too many of."""

    HERE = "for this user from your network"
    NETWORK = "from your network"
    USER = "for this user from networks where the user has not been before"


class Pause(NamedTuple):
    """An attempt that has to wait: not looked at, and not counted."""

    seconds: float
    bound: Bound


class _Count(NamedTuple):
    failed: int
    last: float


class PasswordAttempts:
    """The attempts at one node that have not been right.

    Args:
        most: How many pairs of a user and a network are counted, and as many of each other kind.
    """

    def __init__(self, *, most: int = COUNTED) -> None:
        self._most = most
        self._counts: OrderedDict[tuple[str, str], _Count] = OrderedDict()
        self._networks = KeyedRates(
            per_second=1 / NETWORK_SECONDS, burst_seconds=NETWORK_ATTEMPTS * NETWORK_SECONDS, most=most
        )
        self._users = KeyedRates(per_second=1 / USER_SECONDS, burst_seconds=USER_ATTEMPTS * USER_SECONDS, most=most)
        self._familiar: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def admit(self, user: str, network: str, now: float) -> Pause | None:
        """Count an attempt, and return None; or say how long it has to wait, and count nothing.

        Args:
            user: The name that was given.
            network: Where it comes from; see `wire.core.address_group`.
            now: Seconds, any clock, also one that is set back.
        """
        wait = self._wait(user, network, now)
        if wait > 0.0:
            return Pause(wait, Bound.HERE)
        wait = self._networks.take(network, now)
        if wait > 0.0:
            return Pause(wait, Bound.NETWORK)
        if not self._is_familiar(user, network, now):
            wait = self._users.take(user, now)
            if wait > 0.0:
                self._networks.give_back(network)
                return Pause(wait, Bound.USER)
        count = self._counts.pop((user, network), _Count(0, now))
        failed = 0 if now - count.last > FORGOTTEN_SECONDS else count.failed
        self._counts[user, network] = _Count(failed + 1, now)
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)
        return None

    def succeeded(self, user: str, network: str, now: float) -> None:
        """An attempt was right: take it back, forget those of its user in that network, and remember the network."""
        self._counts.pop((user, network), None)
        self._networks.give_back(network)
        if not self._is_familiar(user, network, now):
            self._users.give_back(user)
        networks = self._familiar.setdefault(user, OrderedDict())
        networks[network] = now
        networks.move_to_end(network)
        self._familiar.move_to_end(user)
        if len(networks) > FAMILIAR_NETWORKS:
            networks.popitem(last=False)
        if len(self._familiar) > self._most:
            self._familiar.popitem(last=False)

    def _is_familiar(self, user: str, network: str, now: float) -> bool:
        """True if the user has logged in from there lately."""
        networks = self._familiar.get(user)
        return networks is not None and now - networks.get(network, -FAMILIAR_SECONDS) <= FAMILIAR_SECONDS

    def _wait(self, user: str, network: str, now: float) -> float:
        count = self._counts.get((user, network))
        if count is None or count.failed < FREE_ATTEMPTS:
            return 0.0
        pause = min(2.0 ** (count.failed - FREE_ATTEMPTS), LONGEST_WAIT_SECONDS)
        return max(0.0, min(count.last, now) + pause - now)
