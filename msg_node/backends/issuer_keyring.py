"""Keys of identity providers, fetched: OpenID Connect discovery, then the JWK set, again and again.

    start, every hour (or as the answer says), or a token with an unknown key
        ─▶ <issuer>/.well-known/openid-configuration ─▶ jwks_uri ─▶ keys

Keys rotate: a token that names a key we do not have makes us ask again, but never more often than every ten seconds,
however many such tokens come. While a provider cannot be reached the keys that we have stay, for a day at most, and it
is asked again with growing pauses. Each provider has a task of its own: one that hangs holds no other up.

Source: OpenID Connect Discovery 1.0, sections 3 and 4; OpenID Connect Core 1.0, section 10.1.1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trio

from catalogue_client.fetcher import Fetched, Fetcher
from msg_node.identity.core.identity_service import KeysQuestion
from msg_node.kernel.issuer_keys import VerificationKey, keys_of_jwks
from protofly.errors import Code, HostError, PeerError
from protofly.limits import (
    KEYS_ASKED_AGAIN_SECONDS,
    KEYS_DOCUMENT_BYTES,
    KEYS_FETCH_SECONDS,
    KEYS_KEPT_SECONDS,
    KEYS_REFRESH_MIN_SECONDS,
    KEYS_REFRESH_SECONDS,
    KEYS_RETRY_MAX_SECONDS,
)
from protofly.pauses import doubling_seconds
from protofly.signatures import parse_strict

logger = logging.getLogger("msg_node.identity")

WELL_KNOWN = "/.well-known/openid-configuration"
"""Behind the issuer. Source: OpenID Connect Discovery 1.0, section 4."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """The place of the keys of one issuer.

    Attributes:
        issuer: As `iss` says it.
        discovery_url: Its discovery document; "" where `jwks_url` is known.
        jwks_url: Its JWK set; "" asks the discovery document.
        host: Whose address rules apply, and whom to blame.
    """

    issuer: str
    discovery_url: str
    jwks_url: str
    host: str

    @classmethod
    def of(cls, issuer: str, *, discovery_url: str = "", jwks_url: str = "") -> KeySource:
        """The usual places of an issuer, unless others are named."""
        discovery_url = "" if jwks_url else discovery_url or issuer.rstrip("/") + WELL_KNOWN
        return cls(issuer, discovery_url, jwks_url, urlsplit(discovery_url or jwks_url).hostname or "")


@dataclass(slots=True)
class _State:
    source: KeySource
    wanted: trio.Event = field(default_factory=trio.Event)
    fetched: trio.Event = field(default_factory=trio.Event)
    asked_at: float = float("-inf")
    succeeded_at: float = float("-inf")
    is_asking: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    failures: int = 0
    error: str = "not asked yet"
    keys: int = 0


class IssuerKeyring:
    """Fetches keys.

    Args:
        fetcher: None where there are no sources.
        on_keys: Called with an issuer and its keys, each time they were fetched; none when they are too old to be kept.
        clock: Seconds since some moment.

    Attributes:
        fetches: Sets of keys that were fetched.
    """

    def __init__(
        self,
        fetcher: Fetcher | None,
        sources: Iterable[KeySource],
        *,
        on_keys: Callable[[str, Sequence[VerificationKey]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._on_keys = on_keys
        self._clock = clock
        self._states = {source.issuer: _State(source) for source in sources}
        self._nursery: trio.Nursery | None = None
        self.fetches = 0

    def follow(self, fetcher: Fetcher | None, sources: Iterable[KeySource]) -> frozenset[str]:
        """Fetch from these places from now on; what is fetched from a place as before goes on.

        Returns:
            Issuers whose keys were fetched from a place that is not one of these.
        """
        self._fetcher = fetcher
        wanted = {source.issuer: source for source in sources}
        gone = [state for issuer, state in self._states.items() if wanted.get(issuer) != state.source]
        for state in gone:
            del self._states[state.source.issuer]
            state.scope.cancel()
            state.fetched.set()  # nobody has to wait for it
        for issuer, source in wanted.items():
            if issuer not in self._states:
                self._states[issuer] = _State(source)
                if self._nursery is not None:
                    self._nursery.start_soon(self._keep, self._states[issuer])
        return frozenset(state.source.issuer for state in gone)

    def want(self, issuer: str) -> None:
        """A token names a key of this issuer that we do not have. Never blocks; unknown issuers are none of ours."""
        state = self._states.get(issuer)
        if state is not None and not state.is_asking:  # else the newest ones are on their way
            state.wanted.set()

    async def refresh(self, question: KeysQuestion) -> bool:
        """Have keys fetched, unless they just were; whether there may be others than before."""
        state = self._states.get(question.issuer)
        if state is None:
            return False
        if state.is_asking or self._clock() - state.asked_at >= KEYS_ASKED_AGAIN_SECONDS:
            fetched = state.fetched
            self.want(question.issuer)
            await fetched.wait()
        return not state.error

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep keys fresh until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for state in self._states.values():
                nursery.start_soon(self._keep, state)
            task_status.started()
            await trio.sleep_forever()  # others may follow

    def status(self) -> list[dict[str, object]]:
        """Report the state of each provider for operators."""
        return [
            {"issuer": state.source.issuer, "keys": state.keys, "error": state.error, "failures": state.failures}
            for state in self._states.values()
        ]

    async def _keep(self, state: _State) -> None:
        with state.scope:
            while True:
                pause_seconds = await self._renew(state)
                with trio.move_on_after(pause_seconds):
                    await state.wanted.wait()
                    await trio.sleep(max(0.0, state.asked_at + KEYS_ASKED_AGAIN_SECONDS - self._clock()))
                state.wanted = trio.Event()

    async def _renew(self, state: _State) -> float:
        """Ask once; how long to leave the provider alone then."""
        state.asked_at, state.is_asking = self._clock(), True
        try:
            with trio.fail_after(KEYS_FETCH_SECONDS):
                keys, life_seconds = await self._fetch(state.source)
        except trio.TooSlowError:
            pause_seconds = self._failed(state, "no answer in time")
        except HostError as exc:
            pause_seconds = self._failed(state, str(exc))
        except Exception:
            logger.exception("keys of %s", state.source.issuer)  # a stranger's document must not end the node
            pause_seconds = self._failed(state, Code.INTERNAL.word)
        else:
            if state.error:
                logger.info("keys of %s: %d", state.source.issuer, len(keys))
            state.failures, state.error, state.keys = 0, "", len(keys)
            state.succeeded_at = state.asked_at
            self.fetches += 1
            self._on_keys(state.source.issuer, keys)
            pause_seconds = life_seconds
        state.is_asking = False
        fetched, state.fetched = state.fetched, trio.Event()
        fetched.set()
        return pause_seconds

    def _failed(self, state: _State, error: str) -> float:
        if error != state.error:
            logger.warning("keys of %s cannot be fetched: %s", state.source.issuer, error)
        state.error = error
        state.failures += 1
        if state.keys and self._clock() - state.succeeded_at > KEYS_KEPT_SECONDS:
            logger.error("keys of %s are too old and count no more", state.source.issuer)
            state.keys = 0
            self._on_keys(state.source.issuer, [])
        return doubling_seconds(KEYS_ASKED_AGAIN_SECONDS, state.failures, KEYS_RETRY_MAX_SECONDS)

    async def _fetch(self, source: KeySource) -> tuple[list[VerificationKey], float]:
        """The keys, and how long they may be used without asking."""
        url = source.jwks_url or await self._discover(source)
        fetched = await self._get(url, source)
        try:
            keys = keys_of_jwks(fetched.body)
        except ValueError as exc:
            raise PeerError(Code.BAD_REPLY, f"{url}: {exc}", domain=source.host) from exc
        life = KEYS_REFRESH_SECONDS if fetched.max_age_seconds is None else fetched.max_age_seconds
        return keys, min(max(life, KEYS_REFRESH_MIN_SECONDS), KEYS_REFRESH_SECONDS)

    async def _discover(self, source: KeySource) -> str:
        """The address of the JWK set, by a document that has to be the issuer's own."""
        url = source.discovery_url
        fetched = await self._get(url, source)
        try:
            document = parse_strict(fetched.body)
        except ValueError as exc:
            raise PeerError(Code.BAD_REPLY, f"{url}: {exc}", domain=source.host) from exc
        if not isinstance(document, dict) or document.get("issuer") != source.issuer:
            raise PeerError(Code.BAD_REPLY, f"{url} is not of this issuer", domain=source.host)
        jwks_url = document.get("jwks_uri")
        if not isinstance(jwks_url, str) or not jwks_url:
            raise PeerError(Code.BAD_REPLY, f"{url} names no `jwks_uri`", domain=source.host)
        return jwks_url

    async def _get(self, url: str, source: KeySource) -> Fetched:
        assert self._fetcher is not None, "there is one where there are sources"
        return await self._fetcher.fetch(
            url, domain=source.host, max_bytes=KEYS_DOCUMENT_BYTES, deadline_seconds=KEYS_FETCH_SECONDS
        )
