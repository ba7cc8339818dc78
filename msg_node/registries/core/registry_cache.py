"""Answers of an external registry that may be given again: never longer than an entry in them lives.

Source: data formats, section 8, decision 7; feature row CN-32.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msg_node.registries.core.registry import identifiers_of
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.registry_query import By, Query
from msg_node.registries.core.registry_rest import Record
from protofly.address import canonical_key
from protofly.errors import PeerError
from protofly.limits import REGISTRY_CACHED_ANSWERS

_Subject = tuple[By, str]


class RegistryCache:
    """Records by query, and the queries that a change of an entry can touch.

    Args:
        max_seconds: How long an answer is given again at most; 0: never.
        max_answers: How many are kept.
    """

    def __init__(self, *, max_seconds: float, max_answers: int = REGISTRY_CACHED_ANSWERS) -> None:
        self._max_seconds = max_seconds
        self._max_answers = max_answers
        self._answers: OrderedDict[Query, tuple[float, list[Record]]] = OrderedDict()
        self._queries: dict[_Subject, set[Query]] = {}

    def get(self, query: Query, now: float) -> list[Record] | None:
        """Return the earlier answer if it may still be given, else None."""
        until, records = self._answers.get(query, (0.0, []))
        if now < until:
            return records
        self._drop(query)
        return None

    def put(self, query: Query, records: list[Record], now: float) -> None:
        """Keep an answer for as long as all that is in it lives. That nothing was found is not kept."""
        life_seconds = min([self._max_seconds, *(record.life_seconds(now) for record in records)])
        self._drop(query)
        if not records or life_seconds <= 0:
            return
        self._answers[query] = now + life_seconds, records
        for subject in _subjects_of(query, records):
            self._queries.setdefault(subject, set()).add(query)
        if len(self._answers) > self._max_answers:
            self._drop(next(iter(self._answers)))

    def forget(self, entry: RegistryEntry) -> None:
        """An entry is new, or another one now: forget every answer that it is in, or would be in."""
        for subject in _subjects(entry):
            for query in list(self._queries.get(subject, ())):
                self._drop(query)

    def _drop(self, query: Query) -> None:
        kept = self._answers.pop(query, None)
        if kept is None:
            return
        for subject in _subjects_of(query, kept[1]):
            queries = self._queries[subject]
            queries.discard(query)
            if not queries:
                del self._queries[subject]


def _subjects_of(query: Query, records: list[Record]) -> set[_Subject]:
    """Return the subjects of an answer: that of its question, and those of every entry in it."""
    return {_subject(query.by, query.text)} | {_subject(By.URL, record.url) for record in records}


def _subjects(entry: RegistryEntry) -> Iterator[_Subject]:
    """Iterate over the subjects by which an entry can be found."""
    yield _subject(By.URL, entry.url)
    texts = {By.USER: entry.user, By.GUID: entry.guid, By.NAME: entry.name, By.REPORTER: entry.reporter}
    yield from (_subject(by, text) for by, text in texts.items() if text)
    yield from (_subject(By.IDENTIFIER, name) for name in identifiers_of(entry.user))


def _subject(by: By, text: str) -> _Subject:
    if by is By.GUID:
        return by, text.removeprefix("user-guid://")
    if by in (By.URL, By.USER, By.REPORTER):
        try:
            return by, canonical_key(text)
        except PeerError:
            return by, text
    return by, text
