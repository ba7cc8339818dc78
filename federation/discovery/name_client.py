"""Asks name servers, and turns what they answer into our own values.

The one place that speaks DNS: dnspython's asynchronous resolver on trio, with the name servers that the operator names
or those of the system. `/etc/hosts` and search lists are never used. Exceptions of the library and bytes of strangers
end here: what is not an answer is `AnswerStatus.FAILED` with a detail.

Source: trust and hosts, section 2.6.
"""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.nameserver
import dns.rdata
import dns.rdatatype
import dns.rdtypes.ANY.TXT
import dns.rdtypes.IN.A
import dns.rdtypes.IN.AAAA
import dns.rdtypes.IN.SRV
import dns.rdtypes.svcbbase
import dns.resolver

from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind, ServiceRecord
from protofly import limits
from protofly.errors import SettingsError
from wire.core.network import parse_address

_DNS_PORT: Final = 53
_UNDERSTOOD_PARAMS: Final = frozenset(
    {
        dns.rdtypes.svcbbase.ParamKey.ALPN,
        dns.rdtypes.svcbbase.ParamKey.NO_DEFAULT_ALPN,
        dns.rdtypes.svcbbase.ParamKey.PORT,
    }
)
_LIBRARY_ERRORS: Final = (dns.exception.DNSException, OSError, EOFError, ValueError, RecursionError)


class NameClient(ABC):
    """Answers questions to the domain name system."""

    @abstractmethod
    async def ask(self, question: Question) -> Answer:
        """Ask one question. Never fails: not to get an answer is an answer with status FAILED."""


class DnsClient(NameClient):
    """The real one. `believes_ad`: the AD bit of these name servers counts as DNSSEC validation."""

    def __init__(self, nameservers: Sequence[str] = (), *, believes_ad: bool = False) -> None:
        """Prepare to ask `nameservers` ("address", "address:port", "[v6]:port"); none: those of the system.

        Raises:
            SettingsError: Not an address, none configured in the system, or the AD bit of a server to be believed whose
                answers anybody on the way could forge.
        """
        servers = [parse_nameserver(text) for text in nameservers]
        if believes_ad and not (servers and all(ipaddress.ip_address(address).is_loopback for address, _ in servers)):
            raise SettingsError("trust_ad_bit needs name servers on loopback: on any other way the bit can be forged")
        self._believes_ad = believes_ad
        self._backend = dns.asyncbackend.get_backend("trio")
        self._resolver = _make_resolver(servers)

    def follow(self, other: DnsClient) -> None:
        """Ask the name servers of `other` from the next question on, and believe them as it does."""
        self._believes_ad, self._resolver = other._believes_ad, other._resolver

    async def ask(self, question: Question) -> Answer:
        """Ask one question. Never fails: not to get an answer is an answer with status FAILED."""
        try:
            name = dns.name.from_text(question.name + ".")
        except (dns.exception.DNSException, ValueError) as exc:
            return Answer(AnswerStatus.NO_NAME, detail=f"no name in DNS: {exc}")
        try:
            answer = await self._resolver.resolve(
                name,
                question.kind.value,
                raise_on_no_answer=False,
                search=False,
                lifetime=limits.DNS_QUESTION_SECONDS,
                backend=self._backend,
            )
        except dns.resolver.NXDOMAIN as exc:
            return self._no_name(exc, name)
        except _LIBRARY_ERRORS as exc:
            return Answer(AnswerStatus.FAILED, detail=_short(exc))
        return self._found(question, answer)

    def _no_name(self, exc: dns.resolver.NXDOMAIN, name: dns.name.Name) -> Answer:
        try:
            response: dns.message.QueryMessage = exc.response(name)  # type: ignore[no-untyped-call]
            ttl: float | None = response.resolve_chaining().minimum_ttl
        except (dns.exception.DNSException, KeyError):
            ttl = None
        return Answer(AnswerStatus.NO_NAME, ttl_seconds=ttl, detail="no such name")

    def _found(self, question: Question, answer: dns.resolver.Answer) -> Answer:
        ttl = float(answer.chaining_result.minimum_ttl)
        is_validated = self._believes_ad and bool(answer.response.flags & dns.flags.AD)
        if answer.response.flags & dns.flags.TC:
            return Answer(AnswerStatus.FAILED, detail="cut off, over TCP as well")
        records = list(answer.rrset or ())
        if len(records) > limits.DNS_RECORDS:  # a part of it would be another answer, and not a judged one
            return Answer(AnswerStatus.FAILED, detail=f"{len(records)} records, at most {limits.DNS_RECORDS}")
        if not records:
            return Answer(AnswerStatus.NO_DATA, ttl_seconds=ttl, is_validated=is_validated, detail="no such records")
        try:
            texts, services, addresses = _convert(question.kind, records)
        except _LIBRARY_ERRORS as exc:
            return Answer(AnswerStatus.FAILED, detail=_short(exc))
        return Answer(AnswerStatus.FOUND, texts, services, addresses, ttl, is_validated)


def parse_nameserver(text: str) -> tuple[str, int]:
    """Address and port of a name server setting.

    Raises:
        SettingsError: Neither "address" nor "address:port"; names are not accepted here.
    """
    address, port_text = text, str(_DNS_PORT)
    if text.startswith("["):
        address, bracket, port_part = text[1:].partition("]")
        if not bracket or (port_part and not port_part.startswith(":")):
            raise SettingsError(f"not a name server: {text!r}")
        port_text = port_part[1:] or port_text
    elif text.count(":") == 1:
        address, _, port_text = text.partition(":")
    is_port = port_text.isascii() and port_text.isdigit() and 0 < int(port_text) <= 65_535
    if parse_address(address) is None or not is_port:
        raise SettingsError(f"not a name server: {text!r} (write 192.0.2.53, 192.0.2.53:5300 or [2001:db8::53]:5300)")
    return address, int(port_text)


def _make_resolver(servers: list[tuple[str, int]]) -> dns.asyncresolver.Resolver:
    try:
        resolver = dns.asyncresolver.Resolver(configure=not servers)
    except dns.exception.DNSException as exc:
        raise SettingsError(f"the system names no name servers: set discovery.nameservers ({exc})") from exc
    if servers:
        resolver.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in servers]
    resolver.timeout = limits.DNS_ATTEMPT_SECONDS
    resolver.lifetime = limits.DNS_QUESTION_SECONDS
    resolver.use_edns(0, 0, limits.DNS_PAYLOAD_BYTES)
    resolver.set_flags(dns.flags.RD | dns.flags.AD)  # AD in a query asks for the verdict without the signatures
    return resolver


def _convert(
    kind: RecordKind, records: Sequence[dns.rdata.Rdata]
) -> tuple[tuple[str, ...], tuple[ServiceRecord, ...], tuple[str, ...]]:
    texts: list[str] = []
    services: list[ServiceRecord] = []
    addresses: list[str] = []
    for record in records:
        if isinstance(record, dns.rdtypes.ANY.TXT.TXT):
            texts.append(b"".join(record.strings).decode("latin-1"))  # judged by who reads it
        elif isinstance(record, dns.rdtypes.svcbbase.SVCBBase) and kind is RecordKind.SVCB:
            services.append(_from_svcb(record))
        elif isinstance(record, dns.rdtypes.IN.SRV.SRV):
            services.append(ServiceRecord(record.priority, _plain(record.target), record.port, record.weight))
        elif isinstance(record, dns.rdtypes.IN.A.A | dns.rdtypes.IN.AAAA.AAAA):
            addresses.append(record.address)
    return tuple(texts), tuple(services), tuple(addresses)


def _from_svcb(record: dns.rdtypes.svcbbase.SVCBBase) -> ServiceRecord:
    keys = dns.rdtypes.svcbbase.ParamKey
    port = record.params.get(keys.PORT)
    alpn = record.params.get(keys.ALPN)
    mandatory = record.params.get(keys.MANDATORY)
    protocols = alpn.ids if isinstance(alpn, dns.rdtypes.svcbbase.ALPNParam) else ()
    needed = mandatory.keys if isinstance(mandatory, dns.rdtypes.svcbbase.MandatoryParam) else ()
    return ServiceRecord(
        priority=record.priority,
        target=_plain(record.target),
        port=port.port if isinstance(port, dns.rdtypes.svcbbase.PortParam) else 0,
        protocols=tuple(protocol.decode("latin-1") for protocol in protocols),
        has_unknown_mandatory=not _UNDERSTOOD_PARAMS.issuperset(needed),
    )


def _plain(name: dns.name.Name) -> str:
    """A name in lower case without final dot; the root is ""."""
    return name.to_text(omit_final_dot=True).lower().removesuffix(".")


def _short(exc: BaseException) -> str:
    return (str(exc) or "no answer")[:300]
