"""Carries out what rules want beside their decisions: events about them, and copies of messages in quarantine.

Gates decide in the middle of a batch, so what is to be done only waits here, within bounds for each source, and is done
by a service of its own. An event about a decision is a message of the node: it passes no gate, goes only to addresses
of our own domains, and says nothing of the body, so that notices cause no notices and strangers get nothing repeated.
Source: message specification, section 15.3.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Container
from typing import Final

import trio

from federation.core.decision_budget import DecisionBudget
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.service import Event
from msg_node.records.quarantine import Quarantine, copy_of
from policy.core.attributes import ATTRIBUTES
from policy.core.gate import GateVerdict
from policy.core.model import Facts
from protofly.address import domain_of
from protofly.counters import Counters
from protofly.limits import (
    NOTICES_PER_MINUTE,
    NOTICES_PER_SOURCE,
    QUARANTINE_WAITING,
    QUARANTINE_WAITING_BYTES,
)

logger = logging.getLogger("msg_node")

_SHOWN_CHARS: Final = 256
"""Of each text in a notice that strangers choose."""


class PolicyDuties:
    """Queue of notices and quarantine copies that rules of one node asked for.

    Args:
        node: Our address, from which notices come.
        own_domains: The domains whose addresses get notices.
        quarantine: Keeps copies.

    Attributes:
        quarantine: The same.
        counters: What was done and left out.
    """

    def __init__(self, node: str, own_domains: Container[str], quarantine: Quarantine) -> None:
        self._node = node
        self._own_domains = own_domains
        self.quarantine = quarantine
        self._budget = DecisionBudget(NOTICES_PER_MINUTE, NOTICES_PER_SOURCE)
        self._notices: deque[Event] = deque()
        self._copies: dict[str, dict[str, bytes]] = {}
        self._bytes: Counter[str] = Counter()
        self._number = itertools.count()
        self._wanted = trio.Event()
        self.counters = Counters(NodeCount)

    def take(self, facts: Facts, verdict: GateVerdict) -> None:
        """See `federation.links.decision_records.CarryOut`."""
        duties = verdict.duties
        if duties is None:
            return
        if duties.notify:
            self._notify(duties.notify, facts, verdict)
        if duties.quarantine:
            self._copy(facts, verdict)
        self._wanted.set()

    def _notify(self, address: str, facts: Facts, verdict: GateVerdict) -> None:
        source = facts.link_domain or facts.message.from_
        left_out = None
        is_own = facts.message.from_ == self._node  # on its way to a listener abroad, a notice would cause the next one
        if domain_of(address) in self._own_domains and not is_own:
            left_out = self._budget.take(address, source, time.monotonic())
        if left_out is None:
            self.counters[NodeCount.NOTICES_LEFT_OUT] += 1
            return
        message = facts.message
        value: dict[str, object] = {
            "rule": verdict.rule_id,
            "decision": "permit" if verdict.permitted else "deny",
            "hook": facts.hook,
            "linkDomain": facts.link_domain,
            "type": message.type[:_SHOWN_CHARS],
            "from": message.from_[:_SHOWN_CHARS],
            "to": message.to[:_SHOWN_CHARS],
            "id": str(ATTRIBUTES["msgId"].read(facts) or "")[:_SHOWN_CHARS],
            "size": facts.size_bytes,
            "time": round(facts.now, 3),
        }
        if left_out:
            value["leftOut"] = left_out
        self._notices.append(Event(self._node, address, {"value": value}, type="event"))
        self.counters[NodeCount.NOTICES] += 1

    def _copy(self, facts: Facts, verdict: GateVerdict) -> None:
        place, text = self.quarantine.place(facts), copy_of(facts, verdict)
        waiting = self._copies.setdefault(place, {})
        if len(waiting) >= QUARANTINE_WAITING or self._bytes[place] + len(text) > QUARANTINE_WAITING_BYTES:
            self.counters[NodeCount.COPIES_LEFT_OUT] += 1
            return
        waiting[f"{int(facts.now * 1e6):016d}-{next(self._number) % 1_000_000:06d}.json"] = text
        self._bytes[place] += len(text)

    async def run(
        self, publish: Callable[[list[Event]], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Do what waits until cancelled; copies that wait then are written before it ends.

        Args:
            publish: Sends events to their listeners.
            task_status: Started at once.
        """
        task_status.started()
        try:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                notices, self._notices = list(self._notices), deque()
                _publish(notices, publish)
                await self._write()
        finally:
            for place, texts in self._copies.items():
                self._written(texts, is_kept=self.quarantine.copy(place, texts))

    async def _write(self) -> None:
        """Write what waits. What is being written goes on waiting, so that no cancellation loses it."""
        for place in list(self._copies):
            texts = dict(self._copies[place])
            is_kept = await trio.to_thread.run_sync(self.quarantine.copy, place, texts)
            self._written(texts, is_kept=is_kept)
            waiting = self._copies.pop(place)
            rest = {name: text for name, text in waiting.items() if name not in texts}
            self._bytes[place] = sum(map(len, rest.values()))
            if rest:
                self._copies[place] = rest

    def _written(self, texts: dict[str, bytes], *, is_kept: bool) -> None:
        self.counters[NodeCount.COPIES if is_kept else NodeCount.COPIES_LEFT_OUT] += len(texts)


def _publish(notices: list[Event], publish: Callable[[list[Event]], None]) -> None:
    """Send what is to be noticed."""
    try:
        publish(notices)
    except Exception:  # a defect of ours may cost these notices, never the node
        logger.exception("%d notices of policies cannot be sent", len(notices))
