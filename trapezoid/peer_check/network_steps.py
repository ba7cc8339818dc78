"""The steps of a check from the records of a domain to a line with TLS: each address is tried, not the first alone."""

from __future__ import annotations

import random
import ssl
import time
from dataclasses import dataclass
from typing import Final

import trio

from catalogue_client.core.location import Location
from federation.core.contact_trouble import cleaned
from federation.core.discovery_errors import Failure
from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind
from federation.core.resolution import PeerEntry, Resolution, read_hints
from federation.discovery.dialler import Dialler
from federation.discovery.name_client import NameClient
from protofly.errors import Code, PeerError, TransportError
from protofly.limits import DIAL_ADDRESSES, HANDSHAKE_SECONDS
from trapezoid.peer_check.report import Outcome, Report, StepResult
from wire.core.network import judge_address, parse_address

_DAY_SECONDS: Final = 86_400.0
CERTIFICATE_DAYS: Final = 14
"""A certificate that ends sooner is worth a warning."""
_IGNORED: Final = "record-ignored"
_MEND: Final = "they: mend or remove these records"


@dataclass(frozen=True, slots=True)
class NetworkTools:
    """Name client, dialler and TLS context, set up as the node has them.

    Attributes:
        is_ours: The domain is our own: an address that others refuse is a warning, and is tried all the same.
    """

    names: NameClient
    dialler: Dialler
    tls_context: ssl.SSLContext
    is_ours: bool = False


async def find_location(report: Report, names: NameClient, domain: str, entry: PeerEntry | None) -> Location | None:
    """Ask for the records of a domain; None when they lead nowhere."""
    named = entry.location() if entry else None
    if named is not None:
        report.skip("the [[peer]] entry says where the documents are", "txt", "service")
        return named
    resolution = Resolution(domain, draw=random.random)
    answers: dict[Question, Answer] = {}

    async def ask(question: Question) -> None:
        answers[question] = await names.ask(question)

    began = time.perf_counter()
    while questions := resolution.questions():
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(ask, question)
        for question in questions:
            resolution.receive(question, answers[question])
    milliseconds = (time.perf_counter() - began) * 1000
    for question, answer in sorted(answers.items(), key=lambda one: one[0].kind is not RecordKind.TXT):
        result = StepResult("txt" if question.kind is RecordKind.TXT else "service", str(question))
        result.milliseconds = milliseconds
        _describe(result, answer)
        if question.kind is RecordKind.TXT:
            _warn_of_hints(result, answer)
        report.results.append(result)
    locations: list[Location] = []
    with report.step("service", f"targets of {domain}") as result:
        found = resolution.outcome()
        if isinstance(found, Failure):
            raise found.error()
        locations += found.locations
        result.observed = ", ".join(map(_place, locations))
        texts = tuple(str(question) for question in answers if question.kind is RecordKind.TXT)
        if notes := [note for note in found.notes if not note.startswith(texts)]:
            result.warn(_IGNORED, cleaned("; ".join(notes)), _MEND)
    return locations[0] if locations else None


def _describe(result: StepResult, answer: Answer) -> None:
    """Records that were found, or why there are none: only a name server that fails is worth a warning."""
    if answer.status is AnswerStatus.FAILED:
        result.warn(
            Code.DNS_FAILED.word, cleaned(answer.detail), "are the name servers up, and do they know this type?"
        )
        return
    records = [
        *answer.texts,
        *(f"{one.priority} {one.target or '.'} port {one.port or '-'}" for one in answer.services),
    ]
    validated = ", validated by DNSSEC" if answer.is_validated else ""
    result.observed = cleaned("; ".join(records)) + validated if records else "no such record; that is allowed"


def _warn_of_hints(result: StepResult, answer: Answer) -> None:
    """Warn of texts that give no hints although they should."""
    _, note = read_hints(answer.texts)
    if note:
        result.warn(_IGNORED, cleaned(f"{result.observed}: {note}"), _MEND)


def _place(location: Location) -> str:
    to = location.connect_to
    return location.well_known_url + (f" at {to[0]} port {to[1]}" if to else "")


async def reach(report: Report, tools: NetworkTools, domain: str, host: str, name: str, port: int) -> bool:
    """Connect to each address of a host, and do the TLS handshake with each; True when one of them is good.

    Args:
        report: Gets the steps `addresses`, `tcp` and `tls`.
        tools: As the node uses them.
        domain: Whose address rules count.
        host: Where the line goes: a name or an address.
        name: What the certificate has to be for; "" for a line without TLS.
        port: Where the line goes.
    """
    addresses = await _addresses(report, tools.names, host)
    if not addresses:
        report.skip("there is no address", "tcp", "tls")
        return False
    if tools.is_ours:
        _warn_of_private(report.results[-1], addresses)
    is_good = False
    for address in addresses[:DIAL_ADDRESSES]:
        is_good |= await _try_address(report, tools, domain, address, port, name)
    return is_good


async def _addresses(report: Report, names: NameClient, host: str) -> list[str]:
    if parse_address(host) is not None:
        with report.step("addresses", host) as result:
            result.observed = "given as an address"
        return [host]
    found: list[str] = []
    with report.step("addresses", f"A, AAAA {host}") as result:
        failures = []
        for kind in (RecordKind.A, RecordKind.AAAA):
            answer = await names.ask(Question(host, kind))
            found += answer.addresses
            if answer.status is AnswerStatus.FAILED:
                failures.append(f"{kind.value}: {answer.detail}")
        if not found:
            code = Code.DNS_FAILED if failures else Code.NO_SUCH_DOMAIN
            raise TransportError(code, "; ".join(failures) or f"{host} has no address", phase="resolve")
        result.observed = ", ".join(found)
        if failures:
            result.warn(Code.DNS_FAILED.word, cleaned("; ".join(failures)), "do their name servers answer every type?")
    return found


def _warn_of_private(result: StepResult, addresses: list[str]) -> None:
    try:
        for address in addresses:
            judge_address(address)
    except PeerError as exc:
        hint = "other domains reach this address only if they list its range in `allow_addresses`"
        result.warn(exc.code.word, exc.detail, hint)


async def _try_address(report: Report, tools: NetworkTools, domain: str, address: str, port: int, name: str) -> bool:
    subject = f"{address} port {port}"
    streams: list[trio.SocketStream] = []
    with report.step("tcp", subject) as result:
        streams.append(await tools.dialler.connect(address, port, domain=domain))
        result.observed = "connected"
    if not streams:
        return False
    [stream] = streams
    if not name:
        await trio.aclose_forcefully(stream)
        return True
    line = trio.SSLStream(stream, tools.tls_context, server_hostname=name, https_compatible=True)
    try:
        with report.step("tls", f"{subject}, certificate of {name}") as result:
            await _shake_hands(line, result)
    finally:
        await trio.aclose_forcefully(line)
    return report.results[-1].outcome is not Outcome.FAILED


async def _shake_hands(line: trio.SSLStream[trio.SocketStream], result: StepResult) -> None:
    """Raises PeerError TLS_FAILED, TransportError."""
    try:
        with trio.fail_after(HANDSHAKE_SECONDS):
            await line.do_handshake()
    except trio.TooSlowError as exc:
        raise TransportError(Code.FETCH_TIMEOUT, "the TLS handshake takes too long", phase="connect") from exc
    except (trio.BrokenResourceError, OSError) as exc:
        if isinstance(exc.__cause__, ssl.SSLError):
            raise PeerError(Code.TLS_FAILED, str(exc.__cause__)) from exc
        raise TransportError(Code.CONNECT_FAILED, "closed during the TLS handshake", phase="connect") from exc
    certificate = line.getpeercert() or {}
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / _DAY_SECONDS
    cipher = line.cipher()
    observed = f"{line.version()} {cipher[0] if cipher else ''}, certificate for {days:.0f} more days"
    result.observed = observed
    if days < CERTIFICATE_DAYS:
        result.warn("certificate-expiring", observed, "they: renew the certificate")
