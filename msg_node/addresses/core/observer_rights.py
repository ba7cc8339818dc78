"""Who may observe which object: whom its reporter has accepted, and whom it has taken off.

Source: message specification, sections 8.5 and 9.6.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.core.interworking import Interworking
from msg_node.addresses.core.allocation import ancestors
from msg_node.addresses.core.consents import Consents
from msg_node.addresses.core.expulsions import Expulsions
from msg_node.addresses.core.holders import Holders
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.resources import is_child_form, object_of_events
from msg_node.kernel.rules import Rules
from protofly.address import scheme_of


class ObserverRights:
    """Judges observers.

    Attributes:
        consents: Observers that reporters have accepted.
        expulsions: Observers that reporters have taken off.
    """

    def __init__(
        self, holders: Holders, rules: Rules, interworking: Interworking, links: LinkNumbers, expulsions: Expulsions
    ) -> None:
        self._holders = holders
        self._owners = holders.owners
        self._listeners = holders.listeners
        self._rules = rules
        self._interworking = interworking
        self._links = links
        self.expulsions = expulsions
        self.consents = Consents()

    @property
    def matters(self) -> bool:
        """True if it matters whom reporters accept: consent is asked for, or an observer was taken off."""
        return self._rules.require_consent or len(self.expulsions) > 0

    def has_consent(self, number: int, key: str) -> bool:
        """True if the reporter has let a session or link observe an object, where that is asked for at all.

        `key` is an address of changes or children, in any spelling; all others need no consent. Source: message
        specification, section 8.5.
        """
        if not self.matters:
            return True
        base = object_of_events(key) or self._object_of_child(key)
        if not base or scheme_of(base) in ("", "runtime"):
            return True
        if self._holders.holder(base) == number or self._listeners.listens(number, key):
            return True
        if self.is_expelled(number, base):
            return False
        if not self._rules.require_consent:
            return True
        observers = self.consents.observers(base)
        if number < 0:
            return any(self._interworking.home_of(observer) == self._links.domain(number) for observer in observers)
        return any(self._owners.owner(observer) == number for observer in observers)

    def is_expelled(self, number: int, object_key: str) -> bool:
        """True if the reporter of an object has taken a session off it."""
        session = self._holders.sessions.get(number)
        if session is None:
            return False
        keys = self.expulsions.keys(object_key)
        return session.runtime_key in keys or any(self._owners.owner(key) == number for key in keys)

    def object_at(self, key: str) -> str:
        """The object whose changes or children an address stands for; the address itself where it stands for none."""
        base = object_of_events(key)
        if base or self._owners.owner(key) is not None:
            return base or key
        above = self._owners.owner_above(key) if is_child_form(key) else None
        return key if above is None else above[1]

    def object_deleted(self, object_key: str, notified: Iterable[int]) -> None:
        """Forget an object that was deleted; the links among those notified are subscribed to it no more.

        Source: message specification, section 9.6.
        """
        self.consents.forget(object_key)
        self.expulsions.forget(object_key)
        for number in [one for one in notified if one < 0]:
            self._listeners.remove_at(number, object_key)

    def _object_of_child(self, key: str) -> str:
        """The object of a child in the oldest spelling, `O/n` -> `O`; "" for all else.

        It is the nearest address above that somebody owns, else the nearest one that has observers, else the next.
        """
        if not is_child_form(key) or self._owners.owner(key) is not None:
            return ""
        owned = self._owners.owner_above(key)
        if owned is not None:
            return owned[1]
        above = list(ancestors(key))
        return next((one for one in above if self.consents.observers(one)), above[0] if above else "")
