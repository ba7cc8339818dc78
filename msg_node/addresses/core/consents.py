"""Who may observe which object, as the node has seen reporters say: a 2xx reply from `O/subscription`.

Kept in memory, within bounds: a subscription that was made outlives its consent, so forgetting costs an observer
nothing but another request to the reporter. Source: message specification, section 8.5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from protofly.limits import CONSENT_OBJECTS, CONSENTS, CONSENTS_PER_OBJECT


class Consents:
    """Observers that reporters have accepted, by object."""

    def __init__(self) -> None:
        self._observers: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._count = 0

    def observers(self, object_key: str) -> Iterable[str]:
        """Keys of the runtimes and hyperties that may observe an object."""
        return self._observers.get(object_key, ())

    def forget(self, object_key: str) -> None:
        """An object is no more."""
        self._count -= len(self._observers.pop(object_key, ()))

    def withdraw(self, object_key: str, observers: Iterable[str]) -> None:
        """A reporter has taken observers off."""
        held = self._observers.get(object_key)
        if held is not None:
            self._count -= sum(held.pop(observer, self) is None for observer in observers)
            if not held:
                del self._observers[object_key]

    def grant(self, object_key: str, observer: str) -> None:
        """A reporter has accepted an observer, a runtime or hyperty by its key."""
        observers = self._observers.setdefault(object_key, OrderedDict())
        self._observers.move_to_end(object_key)
        self._count += observer not in observers
        observers[observer] = None
        observers.move_to_end(observer)
        if len(observers) > CONSENTS_PER_OBJECT:
            observers.popitem(last=False)
            self._count -= 1
        if len(self._observers) > CONSENT_OBJECTS or self._count > CONSENTS:
            self.forget(next(iter(self._observers)))
