"""The only way out of the node: connects to addresses that were judged, never to names.

    connect(host, port) ─▶ port judged ─▶ A, AAAA asked ─▶ every address judged ─▶ connected to one ─▶ peer compared

One refused address refuses the whole answer: mixed answers are how rebinding begins. Well-known documents, catalogues,
modules, stub channels and registries all come through here. No proxy of the environment is ever used.

Source: trust and hosts, section 2.6.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from catalogue_client.fetcher import Dialler as DiallerInterface
from federation.core.backoff import clamped_ttl_seconds
from federation.core.discovery_errors import DiscoveryStep, Failure
from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.name_client import NameClient
from protofly import limits
from protofly.address import valid_domain
from protofly.errors import Code, PeerError, SettingsError
from wire.core.network import Network, judge_address, judge_port, parse_address, same_address

_NAMES_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Addresses of a name as they were answered. Judged at every use: rules differ by domain and change."""

    addresses: tuple[str, ...]
    expires_at: float


class Dialler(DiallerInterface):
    """Connects under the address rules of a domain: the Internet, and the ranges that the operator opened for it."""

    def __init__(
        self,
        names: NameClient,
        *,
        allow_addresses: Mapping[str, tuple[Network, ...]] | None = None,
        log: AttemptLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare a dialler.

        Args:
            names: Asks name servers.
            allow_addresses: Opened ranges by exact domain.
            log: Where attempts are written; share it with the resolver.
            clock: Seconds since the epoch.

        Raises:
            SettingsError: A range for a wildcard.
        """
        self._names = names
        self._clock = clock
        self.log = log or AttemptLog(clock)
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._allowed: dict[str, tuple[Network, ...]] = {}
        self.replace_allowed(allow_addresses or {})

    def replace_allowed(self, allow_addresses: Mapping[str, tuple[Network, ...]]) -> None:
        """Use other ranges from now on.

        Raises:
            SettingsError: A range for a wildcard; the old ones stay.
        """
        for domain, networks in allow_addresses.items():
            if "*" in domain and networks:
                raise SettingsError(f"peer {domain}: allow_addresses needs a domain that is named in full")
        self._allowed = dict(allow_addresses)

    async def connect(self, host: str, port: int, *, domain: str) -> trio.SocketStream:
        """Connect to `host`, an address or a name, under the address rules of `domain`.

        Raises:
            DiscoveryError: (a PeerError) PORT_REFUSED, NAME_INVALID, NO_SUCH_DOMAIN or ADDRESS_REFUSED.
            DiscoveryLineError: (a TransportError) DNS_FAILED or CONNECT_FAILED.
        """
        began = self._clock()
        outcome = await self._dial(host, port, domain)
        if isinstance(outcome, trio.SocketStream):
            return outcome
        attempts = self.log.of(domain, since=began)
        failure = Failure(
            domain, outcome.step, outcome.code, outcome.detail, attempts, life_seconds=outcome.life_seconds
        )
        raise failure.error()

    def forget(self, host: str) -> None:
        """Drop the remembered addresses of a name."""
        self._remembered.pop(host, None)

    async def _dial(self, host: str, port: int, domain: str) -> trio.SocketStream | Failure:
        try:
            judge_port(port)
        except PeerError as error:
            return self._refused(domain, DiscoveryStep.PORT, f"{host} port {port}", error)
        addresses = await self._addresses(host, domain)
        if isinstance(addresses, Failure):
            return addresses
        allowed = self._allowed.get(domain, ())
        try:
            for address in addresses:
                judge_address(address, allowed=allowed)
        except PeerError as error:
            return self._refused(domain, DiscoveryStep.ADDRESS, host, error)
        stream = await self._connect_first(_interleaved(addresses)[: limits.DIAL_ADDRESSES], port, domain)
        if stream is None:
            self.forget(host)  # the next attempt asks where it is now
            detail = f"no connection to {host} port {port} ({', '.join(addresses[: limits.DIAL_ADDRESSES])})"
            return Failure(domain, DiscoveryStep.CONNECT, Code.CONNECT_FAILED, detail)
        return stream

    def _refused(self, domain: str, step: DiscoveryStep, subject: str, error: PeerError) -> Failure:
        with self.log.attempt(domain, step, subject) as attempt:
            attempt.outcome, attempt.detail = error.code.word, error.detail
        return Failure(domain, step, error.code, f"{subject}: {error.detail}")

    async def _addresses(self, host: str, domain: str) -> tuple[str, ...] | Failure:
        """Addresses of a host: itself if it is one, those remembered, or those that are answered now."""
        if parse_address(host) is not None:
            return (host,)
        try:
            valid_domain(host)
        except PeerError as error:
            return self._refused(domain, DiscoveryStep.NAME, host[:64], error)
        remembered = self._remembered.get(host)
        if remembered is not None and self._clock() < remembered.expires_at:
            self._remembered.move_to_end(host)
            return remembered.addresses
        return await self._ask(host, domain)

    async def _ask(self, host: str, domain: str) -> tuple[str, ...] | Failure:
        answers: dict[RecordKind, Answer] = {}

        async def ask(kind: RecordKind) -> None:
            question = Question(host, kind)
            with self.log.attempt(domain, DiscoveryStep.ADDRESS, str(question)) as attempt:
                answer = answers[kind] = await self._names.ask(question)
                attempt.outcome = answer.status.value
                attempt.detail = answer.detail or ", ".join(answer.addresses)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, RecordKind.AAAA)
            nursery.start_soon(ask, RecordKind.A)
        both = (answers[RecordKind.AAAA], answers[RecordKind.A])
        addresses = tuple(address for answer in both for address in answer.addresses)
        if not addresses:
            return _without_address(host, domain, both)
        if all(answer.status is not AnswerStatus.FAILED for answer in both):  # half an answer is not remembered
            self._remember(host, addresses, both)
        return addresses

    def _remember(self, host: str, addresses: tuple[str, ...], answers: Sequence[Answer]) -> None:
        ttls = [answer.ttl_seconds for answer in answers if answer.addresses and answer.ttl_seconds is not None]
        life = clamped_ttl_seconds(min(ttls, default=0.0))
        self._remembered[host] = _Remembered(addresses, self._clock() + life)
        self._remembered.move_to_end(host)
        while len(self._remembered) > _NAMES_REMEMBERED:
            self._remembered.popitem(last=False)

    async def _connect_first(self, addresses: Sequence[str], port: int, domain: str) -> trio.SocketStream | None:
        """Connect to the first address that takes it; the next one starts when the one before failed or hesitates.

        Source: RFC 8305, section 5 (without its sorting).
        """
        winners: list[trio.SocketStream] = []

        async def attempt(address: str, has_failed: trio.Event) -> None:
            stream = await self._connect_to(address, port, domain)
            if stream is None:
                has_failed.set()
                return
            winners.append(stream)
            nursery.cancel_scope.cancel()

        async def start_in_turns() -> None:
            for address in addresses:
                has_failed = trio.Event()
                nursery.start_soon(attempt, address, has_failed)
                with trio.move_on_after(limits.DIAL_STAGGER_SECONDS):
                    await has_failed.wait()

        try:
            with trio.move_on_after(limits.DIAL_SECONDS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(start_in_turns)
        except BaseException:
            for stream in winners:
                stream.socket.close()  # the caller was cancelled in the moment of success
            raise
        for loser in winners[1:]:
            loser.socket.close()
        return winners[0] if winners else None

    async def _connect_to(self, address: str, port: int, domain: str) -> trio.SocketStream | None:
        """Connect to one judged address; the peer's address is compared once more on the open connection."""
        subject = f"TCP {_bracketed(address)}:{port}"
        with self.log.attempt(domain, DiscoveryStep.CONNECT, subject) as attempt:
            is_v6 = ipaddress.ip_address(address).version == 6
            connection = trio.socket.socket(trio.socket.AF_INET6 if is_v6 else trio.socket.AF_INET)
            try:
                await connection.connect((address, port))
                peer = str(connection.getpeername()[0])
            except OSError as exc:
                connection.close()
                attempt.outcome, attempt.detail = Code.CONNECT_FAILED.word, exc.strerror or str(exc)
                return None
            except BaseException:
                connection.close()
                raise
            if not same_address(peer, address):
                connection.close()
                attempt.outcome, attempt.detail = Code.ADDRESS_REFUSED.word, f"arrived at {peer}"
                return None
            attempt.outcome = "ok"
            return trio.SocketStream(connection)


def _without_address(host: str, domain: str, answers: Sequence[Answer]) -> Failure:
    failed = [answer.detail for answer in answers if answer.status is AnswerStatus.FAILED]
    if failed:
        return Failure(domain, DiscoveryStep.ADDRESS, Code.DNS_FAILED, f"{host}: {failed[0]}")
    ttls = [answer.ttl_seconds for answer in answers if answer.ttl_seconds is not None]
    detail = f"{host} has no address"
    return Failure(domain, DiscoveryStep.ADDRESS, Code.NO_SUCH_DOMAIN, detail, life_seconds=min(ttls, default=None))


def _interleaved(addresses: Sequence[str]) -> list[str]:
    """Both families in turn, IPv6 first: a family that does not work here costs one pause, not one per address."""
    sixes = [address for address in addresses if ":" in address]
    fours = [address for address in addresses if ":" not in address]
    paired = [address for pair in zip(sixes, fours, strict=False) for address in pair]
    rest = sixes[len(fours) :] or fours[len(sixes) :]
    return paired + rest


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
