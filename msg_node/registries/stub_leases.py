"""The life of an interworking stub is the lease of what it has registered.

Source: message specification, section 16, rule 5; feature row LI-10.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msg_node.kernel.registrations import StatusChange
from msg_node.registries.core.tables import RegistryTables


class StubLeases:
    """Notified when links come and go; both are no news for links without an interworking stub.

    Args:
        publish: Notifies subscribers of changes of statuses and stores them.
        then: Called for every link that is up, after its stub may register.
        clock: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        state: RegistryTables,
        publish: Callable[[list[StatusChange]], None],
        *,
        then: Callable[[str], None] = lambda _domain: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._publish = publish
        self._then = then
        self._clock = clock

    def came(self, domain: str) -> None:
        """A link is up: its stub may register what it has."""
        self._state.interworking.came(domain)
        self._then(domain)

    def went(self, domain: str) -> None:
        """A link is down, whether its stub was stopped, has failed, or has lost its line: nobody is behind it."""
        if self._state.interworking.went(domain):
            number = self._state.links.number(domain)
            self._publish(self._state.registry.disconnect_session(number, now=self._clock()))
