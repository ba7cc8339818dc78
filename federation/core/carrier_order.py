"""The carriers of one link that are up, in the order in which they are used, and which of them is to carry next."""

from __future__ import annotations

from federation.core.carrier import Carrier


class CarrierOrder(list[Carrier]):
    """Carriers that are up; messages go by the first.

    Attributes:
        successor: The one that is to follow the first; until it does, none takes messages.
        are_held: None takes messages.
    """

    def __init__(self) -> None:
        self.successor: Carrier | None = None
        self.are_held = False

    def may_take(self, carrier: Carrier) -> bool:
        """True while messages go by this carrier."""
        return bool(self) and self[0] is carrier and self.successor is None and not self.are_held

    def designate(self, old: Carrier, new: Carrier) -> bool:
        """Have one follow another; False if the old one does not carry, or the new one is not up."""
        if new not in self or self[0] is not old:
            return False
        self.successor = new
        return True

    def promote(self) -> Carrier | None:
        """Put the successor first, now; returns it, None if there is none."""
        successor, self.successor = self.successor, None
        if successor is not None:
            self.remove(successor)
            self.insert(0, successor)
        return successor

    def lose(self, carrier: Carrier) -> bool:
        """Take out one that is down; the first is followed by its successor. Returns whether it carried."""
        was_first = self[0] is carrier
        self.remove(carrier)
        if self.successor is carrier:
            self.successor = None
        elif was_first:
            self.promote()
        return was_first
