"""Who listens to which key: numbers of sessions, links and other nodes, found by the key that a message is for.

Three kinds of entries match more than themselves: `<base>/*` (everything below), and the children base
`<object>/children/` (every child). What a key resolves to is remembered, so the hot path is one dictionary hit.
Source: message specification, sections 8 and 20.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msg_node.addresses.core.allocation import ancestors
from msg_node.kernel.links import is_node
from protofly.limits import REMEMBERED_CHARS, TARGETS_REMEMBERED

CHILDREN = "/children/"


class ListenerIndex:
    """Numbers by key, each once.

    Attributes:
        on_heard: Called with a key that the first session or link listens to, and True; with False after the last one.
            Other nodes do not count. None: nobody needs it.
    """

    def __init__(self) -> None:
        self._exact: dict[str, tuple[int, ...]] = {}
        self._below: dict[str, tuple[int, ...]] = {}  # base of `<base>/*`
        self._resolved: dict[str, tuple[int, ...]] = {}
        self.on_heard: Callable[[str, bool], None] | None = None

    def targets(self, key: str) -> tuple[int, ...]:
        """Listeners of a canonical key, each once, in the order in which they came.

        One dictionary hit in the normal case.
        """
        found = self._resolved.get(key)
        if found is not None:
            return found
        found = tuple(dict.fromkeys(self._look_up(key)))
        if len(key) <= REMEMBERED_CHARS:
            if len(self._resolved) >= TARGETS_REMEMBERED:
                self._resolved.clear()
            self._resolved[key] = found
        return found

    def is_heard(self, key: str) -> bool:
        """True when a key has a listener. For keys of many that are asked about once: nothing is remembered.

        A sweep of the registry asks about every entry, and would push out what messages need.
        """
        found = self._resolved.get(key)
        return bool(self._look_up(key) if found is None else found)

    def listens(self, number: int, key: str) -> bool:
        """True when a listener gets what is sent to a key."""
        return number in self.targets(key)

    def heard_here(self) -> Iterator[str]:
        """The keys that sessions or links of this node listen to, as they were written."""
        for table, ending in ((self._exact, ""), (self._below, "/*")):
            for place, numbers in table.items():
                if _is_heard_here(numbers):
                    yield place + ending

    def add(self, number: int, key: str) -> None:
        """Let a listener hear a key that it does not hear yet."""
        table, place = self._place(key)
        before = table.get(place, ())
        table[place] = (*before, number)
        self._forget_resolved(key)
        if self.on_heard is not None and not is_node(number) and not _is_heard_here(before):
            self.on_heard(key, True)

    def discard(self, number: int, key: str) -> bool:
        """Let a listener hear a key no more that it hears; False when nobody does from then on."""
        table, place = self._place(key)
        rest = tuple(other for other in table[place] if other != number)
        if rest:
            table[place] = rest
        else:
            del table[place]
        self._forget_resolved(key)
        if self.on_heard is not None and not is_node(number) and not _is_heard_here(rest):
            self.on_heard(key, False)
        return bool(rest)

    def _look_up(self, key: str) -> tuple[int, ...]:
        """Listeners of a key, some of them more than once."""
        found = self._exact.get(key, ())
        start = key.find(CHILDREN)
        while start >= 0:
            base = key[: start + len(CHILDREN)]
            if base != key:
                found += self._exact.get(base, ())
            start = key.find(CHILDREN, start + 1)
        if self._below:
            for above in ancestors(key):
                found += self._below.get(above, ())
        return found

    def _place(self, key: str) -> tuple[dict[str, tuple[int, ...]], str]:
        return (self._below, key[:-2]) if key.endswith("/*") else (self._exact, key)

    def _forget_resolved(self, key: str) -> None:
        if key.endswith(("/*", CHILDREN)):
            self._resolved.clear()
        else:
            self._resolved.pop(key, None)


def _is_heard_here(numbers: tuple[int, ...]) -> bool:
    return any(not is_node(number) for number in numbers)
