"""Links to other domains for which messages wait, until nothing older is under way to where the link is.

A node that believes a link elsewhere than before sends a mark the old way, and holds its own messages until that has
arrived. A node that gave a link away and has it again may have passed on messages of other nodes meanwhile: they come
back to it before its mark does. So what others send it directly waits as well, and so do their marks. What has been
passed on is older, and goes at once. Source: docs/adr/0041-a-link-moves-with-all-it-has.md.
"""

from __future__ import annotations

from itertools import count


class HeldLinks:
    """The marks and answers that each held domain waits for, and the marks of other nodes that wait with it."""

    def __init__(self) -> None:
        self._awaited: dict[str, set[int]] = {}
        self._marks: dict[str, list[bytes]] = {}
        self._numbers = count(-1, -1)

    def __contains__(self, domain: str) -> bool:
        return domain in self._awaited

    def hold(self, domain: str, number: int) -> None:
        """Messages for a domain wait for one more mark or answer."""
        self._awaited.setdefault(domain, set()).add(number)

    def hold_for_answer(self, domain: str) -> int:
        """They wait for the answer of another node, too; the number to release it by, which no mark has."""
        number = next(self._numbers)
        self.hold(domain, number)
        return number

    def keep_mark(self, domain: str, mark: bytes) -> None:
        """A mark of another node waits for a held domain."""
        self._marks.setdefault(domain, []).append(mark)

    def release(self, domain: str, number: int) -> list[bytes] | None:
        """One mark or answer is waited for no more.

        Returns:
            The marks that have waited, to go on behind the messages that have; None while others are waited for (a link
            that moves twice at once leaves two ways that are not empty yet), or when the domain was not held.
        """
        awaited = self._awaited.get(domain)
        if awaited is None:
            return None
        awaited.discard(number)
        if awaited:
            return None
        del self._awaited[domain]
        return self._marks.pop(domain, [])
