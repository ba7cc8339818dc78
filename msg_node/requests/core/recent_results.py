"""Results of recent actions: an action that its sender repeats, since the answer was lost, is not done again.

A line that breaks takes answers with it, and a broker brings a message twice when its acknowledgement was lost. A
sender that repeats an action within half a minute of its end, with the same header and body, gets its result again.
What failed or was never done is not remembered: then a repetition is a new attempt. In memory, bounded; the oldest go
first. `now` is in seconds of a clock that nobody sets.

Source: message specification, section 20.8.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.parked import ParkedRequest, Sender
from protofly.limits import FINISHED_BYTES, FINISHED_REMEMBERED, REPEATED_SECONDS
from protofly.message import Message

_Transaction = tuple[str, bytes, str]


class _Said(NamedTuple):
    request_id: str
    sender: Sender
    digest: bytes
    word: StatusReport
    at: float
    size_bytes: int


class RecentResults:
    """The final words about actions that were completed."""

    def __init__(self, *, max_words: int = FINISHED_REMEMBERED, max_bytes: int = FINISHED_BYTES) -> None:
        self._max_words, self._max_bytes = max_words, max_bytes
        self._said: OrderedDict[_Transaction, _Said] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        """The number of results that are kept."""
        return len(self._said)

    def keep(self, entry: ParkedRequest, word: StatusReport, now: float) -> None:
        """Remember how a request of ours ended, if it was done."""
        request = entry.request
        if word.status is not Status.COMPLETED or entry.sender.domain or request.id is None:
            return
        transaction = entry.transaction
        if not entry.has_own_id:
            transaction = (transaction[0], request.id, transaction[2])
        said, size_bytes = self._said, len(word.value) + sum(map(len, transaction))
        if transaction in said:
            self._forget(transaction)
        said[transaction] = _Said(entry.request_id, entry.sender, _digest(request), word, now, size_bytes)
        self._bytes += size_bytes
        while said:
            oldest, one = next(iter(said.items()))
            serves_nobody = one.at + REPEATED_SECONDS < now
            if not serves_nobody and len(said) <= self._max_words and self._bytes <= self._max_bytes:
                break
            self._forget(oldest)

    def about(self, request: Message, sender: Sender, now: float) -> tuple[str, StatusReport] | None:
        """Request id and final word of the request that this one repeats."""
        said = None if request.id is None else self._said.get((request.from_key, request.id, request.to_key))
        if said is None or not said.at <= now <= said.at + REPEATED_SECONDS:
            return None
        is_same = said.sender == sender and said.digest == _digest(request)
        return (said.request_id, said.word) if is_same else None

    def _forget(self, transaction: _Transaction) -> None:
        self._bytes -= self._said.pop(transaction).size_bytes


def _digest(request: Message) -> bytes:
    return hashlib.blake2b(request.body, digest_size=16).digest()
