"""Finds the place of a foreign domain's documents: asks what the resolution says, remembers what came of it.

    resolve ─▶ name sound? not ours? permitted? ─▶ peer entry ─▶ cache ─▶ one look-up per domain, the others wait for it

Everything is refused before the first DNS query that can be: names that are none, our own domains, domains that policy
does not permit, askers who ask for too many. What fetching and verification find out later comes back through
`report_success` and `report_failure`, because "not a messaging node" is known only there.

Source: trust and hosts, sections 2.4 and 2.5.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import trio

from catalogue_client.core.location import Location
from federation.core import backoff
from federation.core.discovery_cache import Blocked, DiscoveryCache, Known
from federation.core.discovery_errors import Attempt, DiscoveryStep, Failure, failure_of
from federation.core.lookup_rates import LookupRates
from federation.core.resolution import PeerEntry, Resolved
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.lookup_places import Lane, LookupPlaces
from federation.discovery.name_client import NameClient
from federation.discovery.name_lookups import NameLookups
from protofly import limits
from protofly.address import valid_domain
from protofly.errors import Code, HostError, PeerError

VISITOR = "visitor "
"""Prefix of the name of an asker that came to us and named a domain; its network address follows."""
NOT_ASKED: Final = "nothing had to be looked up since the start, or the last answer has expired"
_RANDOM = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The state of discovery of a domain, with its reasons: the answer to the operator's question.

    `state` is "not-asked", "known", "negative" or "back-off"; `reason` is `discovery-failed:<step>`, "" when nothing
    failed.
    """

    domain: str
    state: str
    reason: str = ""
    code: str = ""
    detail: str = ""
    retry_after_seconds: float = 0.0
    location: Location | None = None
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolverStatistics:
    """Return how full the tables are, and counts since the start."""

    places: int
    negative: int
    in_flight: int
    lookups: int
    queries: int
    stale_used: int
    rate_refused: int


@dataclass(slots=True)
class _Flight:
    """One look-up under way. The outcome stays None when the task that led it was cancelled: then another one leads."""

    done: trio.Event
    outcome: Location | Failure | None = None


@dataclass(slots=True)
class _Done:
    """Counts since the start; see `ResolverStatistics`."""

    stale_used: int = 0
    rate_refused: int = 0


class Resolver:
    """Domain → location. One per node; `run` only refreshes in the background, `resolve` works without it."""

    def __init__(
        self,
        names: NameClient,
        *,
        own_domains: Collection[str],
        peers: Mapping[str, PeerEntry] | None = None,
        is_permitted: Callable[[str], bool] | None = None,
        log: AttemptLog | None = None,
        draw: Callable[[], float] = _RANDOM.random,
    ) -> None:
        """Prepare a resolver.

        Args:
            names: Asks name servers.
            own_domains: Domain and aliases of this node: never looked up.
            peers: Peer entries by exact domain.
            is_permitted: "May we talk to this domain at all?", asked before any query; None: yes.
            log: Where attempts are written, and the clock; share it with the dialler.
            draw: Random numbers in [0, 1).
        """
        self._own_domains = frozenset(own_domains)
        self._peers = dict(peers or {})
        self._is_permitted = is_permitted
        self._draw = draw
        self.log = log or AttemptLog()
        self._clock = self.log.clock
        self._lookups = NameLookups(names, self.log, draw)
        self._cache = DiscoveryCache()
        self._flights: dict[str, _Flight] = {}
        self._places = LookupPlaces()
        self._rates = LookupRates()
        self._refreshes_in, self._refreshes_out = trio.open_memory_channel[str](limits.DISCOVERY_IN_FLIGHT)
        self._done = _Done()
        self.asker_of: Callable[[str], str] = _as_it_is
        """Who asks, by the address that a message is from: a runtime may have thousands, and its share once."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Refresh in the background what is used and has lived for 80 % of its time, one domain after the other."""
        task_status.started()
        async for domain in self._refreshes_out:
            known = self._cache.find(domain, now=self._clock())
            if isinstance(known, Known) and known.is_refresh_due:
                await self._refresh(domain)

    async def _refresh(self, domain: str) -> None:
        async with self._places.place(domain, "", self._lane(domain, "")):
            if domain not in self._flights:
                await self._lead(domain)

    async def resolve(self, domain: str, *, asked_by: str = "", for_domain: str = "") -> Location:
        """Find the documents of a domain.

        Args:
            domain: The foreign domain.
            asked_by: Whose message needs it (a local runtime), or `VISITOR` and the group of an address; look-ups are
                bounded per asker. "" is the node itself.
            for_domain: The peer that claims `domain` as its alias: it is permitted in its place, it is the asker, and
                its address rules apply. Whether the name may be an alias at all is the caller's to judge.

        Raises:
            DiscoveryError: (a PeerError) NAME_INVALID, OWN_DOMAIN, DOMAIN_BLOCKED, RATE, SERVICE_DECLINED,
                NO_SUCH_DOMAIN, PORT_REFUSED, or whatever was reported about the domain and is still believed.
            DiscoveryLineError: (a TransportError) DNS_FAILED; DISCOVERY_BACKOFF with the seconds to wait.
        """
        self._judge(domain, for_domain or domain)
        location = await self._location(domain, asked_by or for_domain)
        return replace(location, for_domain=for_domain) if for_domain else location

    async def _location(self, domain: str, asked_by: str) -> Location:
        entry = self._peers.get(domain)
        while True:
            known = self._known(domain, entry)
            if known is not None:
                await trio.lowlevel.checkpoint()
                return known
            flight = self._flights.get(domain)
            if flight is None:
                outcome = await self._lead_in_turn(domain, asked_by)
            else:
                await flight.done.wait()
                outcome = flight.outcome
            if outcome is not None:
                return _unwrap(outcome)

    async def _lead_in_turn(self, domain: str, asked_by: str) -> Location | Failure | None:
        """Look a domain up as soon as there is a place; None if somebody else has begun, or has ended it, until then.

        A look-up without a place is no flight: others who ask for the domain would wait with its asker. They wait for
        places of their own; only the first of them counts.
        """
        asker = asked_by if asked_by.startswith(VISITOR) or not asked_by else self.asker_of(asked_by)
        if not self._places.is_wanted(domain):
            self._count(domain, asker)
        async with self._places.place(domain, asker, self._lane(domain, asked_by)):
            if domain in self._flights or self._cache.find(domain, now=self._clock()) is not None:
                return None
            return await self._lead(domain)

    def _lane(self, domain: str, asked_by: str) -> Lane:
        if domain in self._peers:
            return Lane.PEERS
        return Lane.STRANGERS if asked_by.startswith(VISITOR) else Lane.OURS

    def report_success(self, domain: str, *, max_age_seconds: float | None = None) -> float:
        """The domain's documents were accepted; seconds after which to fetch `live` again in the background."""
        now = self._clock()
        entry = self._peers.get(domain)
        named = entry.location() if entry else None
        if named is not None:  # remembered too, so that "worked lately" is known of it
            self._cache.store(domain, Resolved((named,), limits.DISCOVERY_DEFAULT_SECONDS), now=now)
        self._cache.succeeded(domain, now=now)
        life = backoff.document_life_seconds(max_age_seconds, draw=self._draw())
        return backoff.refresh_at(now, life) - now

    def report_failure(self, domain: str, error: HostError, *, is_waiting: bool = True) -> float:
        """A step after resolution failed; seconds until the next attempt is allowed (0: at once, to another target)."""
        failure = failure_of(error, domain=domain, attempts=self.log.of(domain))
        return self._cache.failed(failure, now=self._clock(), draw=self._draw(), is_waiting=is_waiting)

    def follow(self, peers: Mapping[str, PeerEntry]) -> None:
        """Other peer entries hold from now on."""
        self._peers = dict(peers)

    def forget_failures(self) -> int:
        """Let every domain that failed be tried again at once, as the operator asks; returns how many there are.

        Source: trust and hosts, section 2.5 (manual reset of the back-off).
        """
        return self._cache.forget_failures()

    def explain(self, domain: str) -> Explanation:
        """State of a domain with the chain of attempts that led to it. Asks nobody."""
        attempts = self.log.of(domain)
        found = self._cache.find(domain, now=self._clock())
        if isinstance(found, Blocked):
            return Explanation(
                domain=domain,
                state="negative" if found.is_negative else "back-off",
                reason=found.failure.reason,
                code=found.failure.code.word,
                detail=found.failure.detail,
                retry_after_seconds=found.retry_after_seconds,
                attempts=attempts or found.failure.attempts,
            )
        entry = self._peers.get(domain)
        location = found.location if found else entry.location() if entry else None
        if location is None:
            return Explanation(domain=domain, state="not-asked", detail=NOT_ASKED, attempts=attempts)
        return Explanation(domain=domain, state="known", location=location, attempts=attempts)

    def statistics(self) -> ResolverStatistics:
        """Return how full the tables are, and counts since the start."""
        return ResolverStatistics(
            places=len(self._cache),
            negative=self._cache.negative_count,
            in_flight=len(self._flights),
            lookups=self._lookups.lookups,
            queries=self._lookups.queries,
            stale_used=self._done.stale_used,
            rate_refused=self._done.rate_refused,
        )

    def _judge(self, domain: str, permitted: str) -> None:
        """Refuse what needs no query to be refused."""
        try:
            valid_domain(domain)
        except PeerError as error:
            raise Failure(domain[:64], DiscoveryStep.NAME, error.code, error.detail).error() from None
        if domain in self._own_domains:
            raise Failure(domain, DiscoveryStep.NAME, Code.OWN_DOMAIN, "one of our own domains").error()
        if self._is_permitted is not None and not self._is_permitted(permitted):
            raise Failure(
                domain, DiscoveryStep.POLICY, Code.DOMAIN_BLOCKED, "no policy lets us talk to this domain"
            ).error()

    def _known(self, domain: str, entry: PeerEntry | None) -> Location | None:
        """Return what needs no look-up: a complete entry, a fresh place, or a failure that is still believed."""
        found = self._cache.find(domain, now=self._clock())
        if isinstance(found, Blocked):
            raise _blocked_error(found)
        named = entry.location() if entry else None
        if named is not None or found is None:
            return named
        if found.is_refresh_due:
            self._ask_for_refresh(domain)
        return found.location

    def _ask_for_refresh(self, domain: str) -> None:
        try:
            self._refreshes_in.send_nowait(domain)
        except trio.WouldBlock:
            return  # enough of them wait; the next use of this domain asks again

    def _count(self, domain: str, asker: str) -> None:
        """Bound look-ups; see `LookupRates`. A visitor that names a peer takes nothing from its neighbours."""
        is_peer = domain in self._peers
        is_counted = not (is_peer and asker.startswith(VISITOR))
        wait = self._rates.take(asker if is_counted else "", is_peer=is_peer, now=self._clock())
        if wait:
            self._done.rate_refused += 1
            raise Failure(domain, DiscoveryStep.LIMITS, Code.RATE, "too many look-ups").error(retry_after_seconds=wait)

    async def _lead(self, domain: str) -> Location | Failure:
        """Look a domain up for all who ask for it meanwhile; the caller has a place."""
        flight = self._flights[domain] = _Flight(trio.Event())
        try:
            flight.outcome = await self._look_up(domain)
            return flight.outcome
        finally:
            del self._flights[domain]
            flight.done.set()

    async def _look_up(self, domain: str) -> Location | Failure:
        """Ask until there is an outcome, and remember it. A domain that worked lately gets three attempts."""
        began = self._clock()
        attempts = limits.RECENTLY_VALID_ATTEMPTS if self._cache.was_recently_valid(domain, now=began) else 1
        outcome = await self._lookups.look_up(domain)
        while attempts > 1 and isinstance(outcome, Failure) and outcome.is_temporary:
            attempts -= 1
            await trio.sleep(limits.RECENTLY_VALID_PAUSE_SECONDS)
            outcome = await self._lookups.look_up(domain)
        now = self._clock()
        if isinstance(outcome, Resolved):
            return self._cache.store(domain, outcome, now=now)
        stale = self._cache.stale(domain, now=now) if outcome.is_temporary else None
        if stale is not None:
            self._done.stale_used += 1
            self.log.add(
                domain, Attempt(DiscoveryStep.CACHE, "last known place", "ok", "name servers do not answer", now)
            )
            return stale
        attempts_made = self.log.of(domain, since=began)
        failure = Failure(
            domain, outcome.step, outcome.code, outcome.detail, attempts_made, life_seconds=outcome.life_seconds
        )
        self._cache.failed(failure, now=now, draw=self._draw())
        return failure


def _as_it_is(address: str) -> str:
    return address


def _unwrap(outcome: Location | Failure) -> Location:
    if isinstance(outcome, Failure):
        raise outcome.error()
    return outcome


def _blocked_error(blocked: Blocked) -> HostError:
    """The error for a domain that is left alone: its own code for a negative answer, back-off for a failed line."""
    failure, seconds = blocked.failure, blocked.retry_after_seconds
    if blocked.is_negative:
        return failure.error(retry_after_seconds=seconds)
    detail = f"{failure.code.word}: {failure.detail}; next attempt in {seconds:.0f} s"
    waiting = Failure(failure.domain, failure.step, Code.DISCOVERY_BACKOFF, detail, failure.attempts)
    return waiting.error(retry_after_seconds=seconds)
