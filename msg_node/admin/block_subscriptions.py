"""Block lists of other operators: asked for by URL, believed when signed, and applied as the settings say.

In mode `report` a list changes nothing: the log, an `admin_event` and `/status` show what it would block. In mode
`enforce` its domains are blocked as by an operator, each until the list expires, so a list that is not renewed ends
by itself. What an operator has blocked stays as it is, and our own domains and exempt ones are never blocked. Where the
settings want several lists to agree, a domain is blocked while so many of those that are enforced name it.

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
from msg_node.admin.core.list_agreement import ListWord, agreed_until
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.settings.tables.block_lists import BlockListSettings
from protofly.block_list import BlockList, read_block_list
from protofly.errors import Code, HostError, PeerError
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

    reasons: dict[str, str] = field(default_factory=dict)
    """Why it names each of its domains."""

    def take(self, found: BlockList) -> None:
        """This is what it says now."""
        self.known, self.reasons = found, {entry.domain: entry.reason for entry in found.entries}

    @property
    def word(self) -> ListWord:
        """The domains that it blocks, and until when that counts, for the agreement of lists."""
        return ListWord(self.reasons, 0.0 if self.known is None else self.known.expires)

    @property
    def is_enforced(self) -> bool:
        """True if it blocks, and does not only report."""
        return self.settings.mode == "enforce"

    @property
    def by(self) -> str:
        """Name under which the blocks of this list are recorded."""
        return f"{_BY}{self.settings.author}"

    def status(self, now: float) -> dict[str, object]:
        """The state of the list, for `/status`."""
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
        """The state of each list, for `/status`."""
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
        """Block what the lists agree on by the settings of now, and lift what they do not agree on any more."""
        self._settle(self.clock())
        self._node.bus.effects.store_rest()

    async def _follow(self, one: Subscription) -> None:
        while True:
            try:
                await self.ask(one)
            except Exception:  # a stranger's list may cost itself, never the node
                logger.exception("the %s failed", one.by)
                self._note_problem(one, Code.INTERNAL.word)
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
        one.take(found)
        marks.raise_to(settings.author, settings.keys, found.serial)
        self._settle(now)
        self._node.bus.effects.store_rest()  # a restart neither forgets its number nor lets go what it blocks

    def _note_problem(self, one: Subscription, problem: str) -> None:
        if problem and problem != one.problem:
            logger.warning("the %s cannot be used: %s", one.by, problem)
        elif one.problem and not problem:
            logger.info("the %s can be used again", one.by)
        one.problem = problem

    def _settle(self, now: float) -> None:
        """Find out what each list blocks or would block, and have exactly that blocked."""
        for one in self.lists:
            before, one.matched = set(one.matched), tuple(sorted(self._agreed(one, now)))
            came, gone = sorted(set(one.matched) - before), sorted(before - set(one.matched))
            if one.known is not None and (came or gone):
                verb = "blocks" if one.is_enforced else "would block"
                logger.warning("the %s %s %s; no more: %s", one.by, verb, _some(came), _some(gone))
                self._record(one, one.known, came, gone)
        self._enforce(now)

    def _agreed(self, one: Subscription, now: float) -> dict[str, float]:
        """The domains of a list that lists in force agree on, it among them, and until when; without exempt ones."""
        settings = self._node.settings()
        chosen, own = settings.policy, settings.own_domains
        words = [other.word for other in self.lists if other.word.expires > now and (other.is_enforced or other is one)]
        exempt = (*one.settings.exempt, *chosen.lists_exempt)
        agreed = {}
        for domain in one.reasons if one.word.expires > now else ():
            until = agreed_until(domain, words, chosen.lists_agree)
            there = self._node.state.restrictions.find(Restricted.PEER, domain)
            is_operators = there is not None and not there.by.startswith(_BY)
            if until and not is_operators and domain not in own and not _is_exempt(domain, exempt):
                agreed[domain] = until
        return agreed

    def _enforce(self, now: float) -> None:
        restrictions = self._node.state.restrictions
        there = {found.subject: found for found in restrictions.of(Restricted.PEER) if found.by.startswith(_BY)}
        wanted: dict[str, Restriction] = {}
        for one in self.lists:
            for domain, until in self._agreed(one, now).items() if one.is_enforced else ():
                known = there.get(domain)
                if domain not in wanted or (known is not None and known.by == one.by):
                    wanted[domain] = self._restriction(one, domain, now if known is None else known.since, until)
        for subject, found in there.items():
            if subject not in wanted and not self._may_stay(found):
                if all(one.by != found.by or not one.is_enforced for one in self.lists):
                    logger.warning("%s is let through: the %s is not enforced any more", subject, found.by)
                changes.lift(self._node, Restricted.PEER, subject)
        news = [one for subject, one in wanted.items() if subject not in there or _differs(one, there[subject])]
        if news:
            changes.block_all(self._node, news)

    def _may_stay(self, found: Restriction) -> bool:
        """True if what was blocked before a restart may still be agreed on by lists that did not come since then."""
        enforced = [one for one in self.lists if one.is_enforced]
        if not any(one.by == found.by and (one.known is None or found.subject in one.reasons) for one in enforced):
            return False
        exempt = self._node.settings().policy.lists_exempt
        named = sum(one.known is None or found.subject in one.reasons for one in enforced)
        is_silent = any(one.known is None for one in enforced)
        return is_silent and named >= self._node.settings().policy.lists_agree and not _is_exempt(found.subject, exempt)

    def _restriction(self, one: Subscription, domain: str, since: float, until: float) -> Restriction:
        needed = self._node.settings().policy.lists_agree
        whose = one.by if needed == 1 else f"{one.by}, and {needed - 1} more"
        reason = f"{whose}: {one.reasons[domain]}"
        return Restriction(what=Restricted.PEER, subject=domain, reason=reason, by=one.by, since=since, until=until)

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


def _differs(one: Restriction, other: Restriction) -> bool:
    return (one.by, one.until) != (other.by, other.until)


def _some(domains: Sequence[str]) -> str:
    more = len(domains) - _LOGGED
    return (", ".join(domains[:_LOGGED]) or "none") + (f" and {more} more" if more > 0 else "")
