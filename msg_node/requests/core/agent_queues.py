"""Queue rules that agents announce: how long a request waits, and how many they work on at a time.

An agent announces it with its registration; without one it gets what the operator set. The announcement
stays when the agent goes, since that is when it is needed. Source: message specification, section 19.2.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from typing import Final, NamedTuple

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.errors import Code, PeerError
from protofly.limits import AGENT_QUEUES, AGENT_UNANSWERED

_MOST_SECONDS: Final = 1e9
"""Longer than any operator lets a request wait."""


class QueueRules(NamedTuple):
    """Rules for the queue of one agent.

    `expires_seconds` is how long a request waits at most, `unanswered` how many the agent has at a time.
    """

    expires_seconds: float
    unanswered: int


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """The announcement of one agent as it is stored; 0: it said nothing about that."""

    expires_seconds: float = 0.0
    unanswered: int = 0


class AgentQueues:
    """The announcements of all agents.

    Attributes:
        defaults: For agents that announced nothing.
        longest_seconds: The operator's cap on what they announce.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        defaults: QueueRules,
        longest_seconds: float,
        max_agents: int = AGENT_QUEUES,
    ) -> None:
        self._journal = journal
        self.defaults = defaults
        self.longest_seconds = longest_seconds
        self._max_agents = max_agents
        self._rows: dict[str, QueueRow] = {}

    def rules(self, agent: str) -> QueueRules:
        """Return the rules for the queue of an agent, by its canonical key."""
        row = self._rows.get(agent)
        if row is None:
            return self.defaults
        return QueueRules(
            min(row.expires_seconds or self.defaults.expires_seconds, self.longest_seconds),
            row.unanswered or self.defaults.unanswered,
        )

    def agents(self) -> KeysView[str]:
        """Agents that announced rules of their own; it stays true."""
        return self._rows.keys()

    def announce(self, agent: str, queue: object) -> None:
        """An agent registers with `queue: {"expires": seconds, "max": n}`; the caller has checked that it owns `agent`.

        Either member may be missing; None or {} takes an earlier announcement back.

        Raises:
            PeerError: BAD_BODY when it is no such object, QUOTA when too many agents have announced theirs.
        """
        if not queue:
            self.forget(agent)
            return
        if not isinstance(queue, Mapping):
            raise PeerError(Code.BAD_BODY, "queue must be an object")
        row = QueueRow(
            expires_seconds=_number(queue.get("expires"), _MOST_SECONDS, "queue.expires must be seconds, more than 0"),
            unanswered=int(_number(queue.get("max"), AGENT_UNANSWERED, "queue.max must be a number of at least 1")),
        )
        if agent not in self._rows and len(self._rows) >= self._max_agents:
            raise PeerError(Code.QUOTA, "too many agents have queues of their own")
        self._rows[agent] = row
        self._journal.put(Table.AGENT_QUEUES, agent, row)

    def forget(self, agent: str) -> None:
        """An agent is no more, or takes back what it announced."""
        if self._rows.pop(agent, None) is not None:
            self._journal.delete(Table.AGENT_QUEUES, agent)

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            self._rows[key] = decode_row(raw, QueueRow, table=Table.AGENT_QUEUES, key=key)

    def follow(self, key: str, raw: bytes | None) -> None:
        """Another node has changed the announcement of an agent, or taken it back (None). Raises HostError: STORAGE."""
        if raw is None:
            self._rows.pop(key, None)
        else:
            self.restore({key: raw})

    def follow_all(self, rows: Rows) -> None:
        """Take over what all nodes have stored, in place of what is known here. Raises HostError: STORAGE."""
        for key in self._rows.keys() - rows.keys():
            del self._rows[key]
        self.restore(rows)


def _number(value: object, most: float, detail: str) -> float:
    """A number from 1 to `most` (positive ones beyond count as these); 0.0 when it is missing."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise PeerError(Code.BAD_BODY, detail)
    return float(max(1, min(value, most)))
