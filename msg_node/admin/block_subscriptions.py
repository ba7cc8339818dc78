"""Block lists of other operators: asked for by URL, believed when signed, and applied as the settings say.

In mode `report` a list changes nothing: the log, an `admin_event` and `/status` show what it would block. In mode
`enforce` its domains are blocked as by an operator, each until the list expires, so a list that is not renewed ends
by itself. What an operator has blocked stays as it is, and our own domains and exempt ones are never blocked.

Source: message specification, section 15.3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from msg_node.admin import changes
from msg_node.admin.administered import Administered
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.settings.block_lists import BlockListSettings
from protofly.block_list import BlockList, read_block_list
from protofly.errors import HostError, PeerError
from protofly.records import AdminEvent
from protofly.signatures import KeyRecord

logger = logging.getLogger("msg_node")

Fetch = Callable[[], Awaitable[bytes]]
"""Asks for the list as it is published now. Raises HostError."""
_LOGGED = 20
_BY = "block list of "


@dataclass(slots=True)
class Subscription:
    """One list: what the settings say, how it is fetched, and what is known of it."""

    settings: BlockListSettings
    fetch: Fetch
    known: BlockList | None = None
    problem: str = ""
    matched: tuple[str, ...] = field(default=())
    """Domains of it that are, or would be, blocked by it."""

    @property
    def by(self) -> str:
        """Who has blocked what it blocks."""
        return f"{_BY}{self.settings.author}"

    def status(self, now: float) -> dict[str, object]:
        """What `/status` shows of it."""
        known = self.known
        is_over = known is None or known.expires <= now
        return {
            "author": self.settings.author,
            "mode": self.settings.mode,
            "serial": known.serial if known else 0,
            "expires": known.expires if known else 0.0,
            "entries": len(known.entries) if known else 0,
            "domains": [] if is_over else list(self.matched[:_LOGGED]),
            "problem": self.problem,
        }


class BlockSubscriptions:
    """All lists that a node has subscribed to.

    Args:
        node: What they apply to.
        lists: The lists.
        clock: Seconds since the Unix epoch.
    """

    def __init__(
        self, node: Administered, lists: Sequence[Subscription], clock: Callable[[], float] = time.time
    ) -> None:
        self._node = node
        self.lists = list(lists)
        self.clock = clock
        self._changed = trio.Event()

    def follow(self, lists: Sequence[Subscription]) -> None:
        """Follow these from now on; what is known of one whose settings are as before stays."""
        known = self.lists
        self.lists = [next((old for old in known if old.settings == one.settings), one) for one in lists]
        self._changed.set()

    def status(self) -> list[dict[str, object]]:
        """What `/status` shows."""
        return [one.status(self.clock()) for one in self.lists]

    async def run(self) -> None:
        """Ask for all lists, each in its interval, until cancelled; for others as soon as there are others."""
        while True:
            self._changed = trio.Event()
            self.let_go_unsubscribed()
            async with trio.open_nursery() as nursery:
                for one in self.lists:
                    nursery.start_soon(self._follow, one)
                await self._changed.wait()
                nursery.cancel_scope.cancel()

    def let_go_unsubscribed(self) -> None:
        """Lift the blocks of lists that the settings do not enforce any more."""
        enforced = {one.by for one in self.lists if one.settings.mode == "enforce"}
        restrictions = self._node.state.restrictions
        for found in [one for one in restrictions.of(Restricted.PEER) if one.by.startswith(_BY)]:
            if found.by not in enforced:
                logger.warning("%s is let through: the %s is not enforced any more", found.subject, found.by)
                changes.lift(self._node, Restricted.PEER, found.subject)
        self._node.bus.effects.store_rest()

    async def _follow(self, one: Subscription) -> None:
        while True:
            await self.ask(one)
            await trio.sleep(one.settings.poll_seconds)

    async def ask(self, one: Subscription) -> None:
        """Ask for a list once, and apply it; a list that cannot be had or believed leaves all as it was."""
        settings = one.settings
        try:
            raw = await one.fetch()
            keys = [KeyRecord(alg="ed25519", pub=pub) for pub in settings.keys]
            now, marks = self.clock(), self._node.state.list_marks
            least = marks.serial(settings.author, settings.keys)
            found = read_block_list(raw, author=settings.author, keys=keys, now=now, least_serial=least)
        except (PeerError, HostError) as error:
            self._note_problem(one, f"{error.code.word}: {error.detail}")
            return
        self._note_problem(one, "")
        is_news = one.known is None or found.serial > one.known.serial
        one.known = found
        marks.raise_to(settings.author, settings.keys, found.serial)
        if is_news or settings.mode == "enforce":
            self._apply(one, found, now)
        self._node.bus.effects.store_rest()  # a restart neither forgets its number nor lets go what it blocks

    def _note_problem(self, one: Subscription, problem: str) -> None:
        if problem and problem != one.problem:
            logger.warning("the %s cannot be used: %s", one.by, problem)
        elif one.problem and not problem:
            logger.info("the %s can be used again", one.by)
        one.problem = problem

    def _apply(self, one: Subscription, found: BlockList, now: float) -> None:
        before = set(one.matched)
        wanted = {restriction.subject: restriction for restriction in self._restrictions(one, found, now)}
        one.matched = tuple(sorted(wanted))
        # What was enforced before the mode was changed is let go.
        self._enforce(one, wanted if one.settings.mode == "enforce" else {})
        came, gone = sorted(wanted.keys() - before), sorted(before - wanted.keys())
        if came or gone:
            verb = "blocks" if one.settings.mode == "enforce" else "would block"
            logger.warning("the %s %s %s; no more: %s", one.by, verb, _some(came), _some(gone))
            self._record(one, found, came, gone)

    def _restrictions(self, one: Subscription, found: BlockList, now: float) -> list[Restriction]:
        """What the list asks for, without what it must not block and what others have blocked."""
        own, exempt = self._node.settings().own_domains, one.settings.exempt
        restrictions = []
        for entry in found.entries:
            restriction = Restriction(
                what=Restricted.PEER,
                subject=entry.domain,
                reason=f"{one.by}: {entry.reason}",
                by=one.by,
                since=now,
                until=found.expires,
            )
            there = self._node.state.restrictions.find(Restricted.PEER, entry.domain)
            is_ours = there is None or there.by == one.by
            if is_ours and not any(map(restriction.covers, own)) and not _is_exempt(entry.domain, exempt):
                restrictions.append(restriction)
        return restrictions

    def _enforce(self, one: Subscription, wanted: dict[str, Restriction]) -> None:
        restrictions = self._node.state.restrictions
        there = {found.subject: found for found in restrictions.of(Restricted.PEER) if found.by == one.by}
        for subject in there.keys() - wanted.keys():
            changes.lift(self._node, Restricted.PEER, subject)
        news = [
            restriction
            for subject, restriction in wanted.items()
            if subject not in there or there[subject].until != restriction.until
        ]
        if news:
            changes.block_all(self._node, news)

    def _record(self, one: Subscription, found: BlockList, came: Sequence[str], gone: Sequence[str]) -> None:
        arguments = {"author": one.settings.author, "mode": one.settings.mode, "serial": found.serial}
        self._node.record(
            AdminEvent(
                ts_us=time.time_ns() // 1000,
                operation="block-list",
                actor=one.by,
                way="node",
                arguments=changes.shown(arguments) or "{}",
                after=changes.shown({"came": came[:_LOGGED], "gone": gone[:_LOGGED], "domains": len(one.matched)}),
            )
        )


def _is_exempt(domain: str, exempt: Sequence[str]) -> bool:
    return any(domain.endswith(name[1:]) if name.startswith("*.") else domain == name for name in exempt)


def _some(domains: Sequence[str]) -> str:
    more = len(domains) - _LOGGED
    return (", ".join(domains[:_LOGGED]) or "none") + (f" and {more} more" if more > 0 else "")
