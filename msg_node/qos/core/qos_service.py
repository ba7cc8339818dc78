"""`domain://qos.<d>`: enquiry, reservation and quotas of a QoS broker, for runtimes of this domain.

    read   /turn, /credentials, /usage, /providers           ─▶ one call each
    create /reservations ─▶ quota left? ─▶ TURN server ─▶ password ─▶ lease of this node
    delete /reservations/<name>                              ─▶ lease ended, no call
    create, delete /providers, update /quotas (operators)    ─▶ one call each

What is used of a quota is what the broker has counted or what we have reserved, whichever is more: a client that uses
what it has reserved appears in both. One of several nodes asks the one that grants before it makes a lease
(`msg_node.qos.core.domain_quotas`); only that one notifies listeners of quotas.

Source: message specification, section 14.
"""

from __future__ import annotations

from base64 import b32encode
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from msg_node.kernel.directories import ListenerDirectory, OwnerDirectory, SessionDirectory
from msg_node.kernel.resources import Members, key_or_refuse, object_of, text_of
from msg_node.kernel.rest_calls import Answers, Call, Calls
from msg_node.kernel.service import NO_LANE, Answer, ConnectorName, Event, Inquiry, Lane, ServiceRequest, inquire
from msg_node.qos.core.domain_quotas import QUOTAS, RELEASES, DomainView, Grant, Granted, Release, Released
from msg_node.qos.core.leases import Amounts, Lease, Leases, QosKind
from msg_node.qos.core.qos_rest import (
    PROVIDERS,
    check_done,
    credentials_call,
    new_provider_call,
    quotas_call,
    read_credentials,
    read_providers,
    read_turn,
    read_usage,
    remove_provider_call,
    turn_call,
    usage_call,
)
from protofly.errors import Code, HostError, PeerError
from protofly.limits import QOS_CALL_SECONDS, QOS_LEASE_MAX_SECONDS, QOS_LEASE_SECONDS

BROKER: ConnectorName[Calls, Answers] = ConnectorName("qos")
"""The connector that makes the calls."""

_CLIENTS_REMEMBERED = 10_000
_TEXT_CHARS = 256
_AMOUNT_MAX = 10**12
_NO_CONTACT = frozenset({Code.CONNECT_FAILED, Code.FETCH_TIMEOUT, Code.GATEWAY_TIMEOUT, Code.DNS_FAILED})
_NO_OBJECT = "value.object is no object of this domain that somebody has"
_Conclude = Callable[[Answers, float], Answer | Inquiry]


class QosTables(Protocol):
    """The tables of a node that the service of the QoS broker uses, as a protocol."""

    @property
    def domains(self) -> frozenset[str]:
        """Our domain and its aliases."""

    @property
    def leases(self) -> Leases:
        """Reservations of clients."""

    @property
    def owners(self) -> OwnerDirectory:
        """Owners of addresses."""

    @property
    def listeners(self) -> ListenerDirectory:
        """Subscribers of addresses."""

    @property
    def sessions(self) -> SessionDirectory:
        """Live and parked sessions."""


class QosService:
    """The QoS broker as a message service.

    Attributes:
        max_lease_seconds: No lease made from now on is longer.
        others: What the other nodes of the domain have reserved; None for a node alone. Set once, before anything runs.
    """

    def __init__(self, state: QosTables, *, max_lease_seconds: int = QOS_LEASE_MAX_SECONDS) -> None:
        self._state = state
        self.max_lease_seconds = max_lease_seconds
        self._clients: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._limits: dict[str, Amounts] = {}
        self._usages: dict[str, Amounts] = {}
        self._used_up: set[tuple[str, QosKind]] = set()
        self.others: DomainView | None = None

    def __call__(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve the table of section 14.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, POLICY, NOT_OWNER, NOT_REGISTERED, NO_SUCH_SERVICE, QUOTA, OVERLOAD.
        """
        if request.caller.is_abroad:
            raise PeerError(Code.POLICY, "this broker serves runtimes of its own domain")
        resource = "/" + text_of(request.members, "resource").strip("/")
        match request.message.type, resource.split("/")[1:]:
            case "read", ["turn"]:
                return self._read_turn(request)
            case "read", ["credentials"]:
                return self._read_credentials(request)
            case "read", ["usage"]:
                return self._read_usage(request)
            case "read", ["providers"]:
                return _ask((PROVIDERS,), lambda answers, _: self._providers(answers))
            case "create", ["reservations"]:
                return self._reserve(request)
            case "delete", ["reservations", name]:
                return self._release(request, name)
            case verb:
                return self._operate(request, *verb)

    # Enquiry.

    def _read_turn(self, request: ServiceRequest) -> Inquiry:
        criteria = object_of(request.members, "criteria")
        provider, client = _given(criteria, "cspId"), _given(criteria, "clientName")

        def conclude(answers: Answers, _: float) -> Answer:
            server, client_id = read_turn(answers[0])
            self._clients[request.caller.number, client_id] = None
            if len(self._clients) > _CLIENTS_REMEMBERED:
                self._clients.popitem(last=False)
            return Answer(value={"server": server, "clientId": client_id})

        return _ask((turn_call(provider, client),), conclude)

    def _read_credentials(self, request: ServiceRequest) -> Inquiry:
        """Passwords are for those whom the broker named the client to, and for operators."""
        client_id, caller = _given(object_of(request.members, "criteria"), "clientId"), request.caller
        is_known = (caller.number, client_id) in self._clients
        if not (caller.is_operator or is_known or self._state.leases.knows_client(caller.number, client_id)):
            raise PeerError(Code.NOT_OWNER, "this client was not named to you")

        def conclude(answers: Answers, _: float) -> Answer:
            named, password = read_credentials(answers[0])
            return Answer(value={"clientId": named, "password": password})

        return _ask((credentials_call(client_id),), conclude)

    def _read_usage(self, request: ServiceRequest) -> Inquiry:
        key = _given(object_of(request.members, "criteria"), "cspkey")

        def conclude(answers: Answers, _: float) -> Answer:
            usage = self._usages[key] = read_usage(answers[0])
            return Answer(value=usage._asdict(), events=self._quota_events(request.domain, key))

        return _ask((usage_call(key),), conclude)

    def _providers(self, answers: Answers) -> Answer:
        self._limits = read_providers(answers[0])
        listed = [
            {"csp": key, **{f"{kind.value}Quota": quotas.of(kind) for kind in QosKind}}
            for key, quotas in self._limits.items()
        ]
        return Answer(value=listed)

    # Reservations.

    def _reserve(self, request: ServiceRequest) -> Inquiry:
        value = object_of(request.members, "value")
        provider, client = _given(value, "cspId"), _given(value, "clientName")
        wanted = _amounts_in(value)
        object_text = text_of(value, "object")
        object_key = key_or_refuse(object_text) if object_text else ""
        if object_key and self.others is None and self._state.owners.owner(object_key) is None:
            raise PeerError(Code.BAD_BODY, _NO_OBJECT)
        seconds = _seconds(value.get("ttl", QOS_LEASE_SECONDS), self.max_lease_seconds)
        sid = request.caller.number
        self._state.leases.check_room(sid)

        def chosen(answers: Answers, _: float) -> Answer | Inquiry:
            self._limits, self._usages[provider] = read_providers(answers[0]), read_usage(answers[1])
            refusal = self._quota_refusal(request.domain, provider, wanted)
            if refusal is not None:
                return refusal
            return _ask((turn_call(provider, client),), named, lane=provider)

        def named(answers: Answers, _: float) -> Inquiry:
            server, client_id = read_turn(answers[0])

            def reserved(answers: Answers, now: float) -> Answer | Inquiry:
                _, password = read_credentials(answers[0])
                name = "r-" + b32encode(request.seed[:15]).decode("ascii").lower()
                lease = Lease(name, sid, provider, wanted, server, client_id, object_key, now + seconds)
                if self.others is None:
                    return self._lend(request.domain, lease, password)
                return self._ask_others(request.domain, lease, password)

            return _ask((credentials_call(client_id),), reserved, lane=provider)

        return _ask((PROVIDERS, usage_call(provider)), chosen, lane=provider)

    def _ask_others(self, domain: str, lease: Lease, password: str) -> Inquiry:
        """Make a lease that the granting node of the domain permits."""
        provider, amounts = lease.provider, lease.amounts
        usage, limits = self._usages.get(provider, Amounts()), self._limits.get(provider, Amounts())
        question = Grant(lease.name, provider, amounts, usage, limits, lease.object_key)

        def granted(answer: Granted, _: float) -> Answer:
            if not answer.has_object:
                raise PeerError(Code.BAD_BODY, _NO_OBJECT)
            if answer.is_granted:
                return self._lend(domain, lease, password)
            refusal = self._quota_refusal(domain, provider, amounts, answer.reserved)
            return refusal or Answer(Code.QUOTA.status, reason=Code.QUOTA.word)

        return inquire(QUOTAS, question, granted, seconds=QOS_CALL_SECONDS, lane=Lane(f"qos {provider}"))

    def _lend(self, domain: str, lease: Lease, password: str) -> Answer:
        if self._state.sessions.get(lease.sid) is None:
            raise PeerError(Code.NOT_CONNECTED, "the session is over")
        self._state.leases.check_room(lease.sid)
        self._state.leases.add(lease)
        lent = {
            "reservation": lease.name,
            "expires": int(lease.expires_at),
            "server": lease.server,
            "clientId": lease.client_id,
            "password": password,
        }
        return Answer(value=lent, events=self._quota_events(domain, lease.provider))

    def _quota_refusal(
        self, domain: str, provider: str, wanted: Amounts, reserved: Amounts | None = None
    ) -> Answer | None:
        limits = self._limits.get(provider)
        if limits is None:
            raise PeerError(Code.NOT_REGISTERED, "no such provider")
        for kind in QosKind:
            used, limit = self._used(provider, kind, reserved), limits.of(kind)
            if wanted.of(kind) and used + wanted.of(kind) > limit:
                value = {"kind": kind.value, "used": used, "limit": limit}
                code = Code.QUOTA
                return Answer(code.status, value, code.word, events=self._quota_events(domain, provider))
        return None

    def _used(self, provider: str, kind: QosKind, reserved: Amounts | None = None) -> int:
        usage = self._usages.get(provider, Amounts())
        known = (self.others or self._state.leases).reserved(provider) if reserved is None else reserved
        return max(usage.of(kind), known.of(kind))

    def _release(self, request: ServiceRequest, name: str) -> Answer | Inquiry:
        lease = self._state.leases.get(name)
        if lease is None and self.others is not None and request.caller.is_operator:
            return inquire(RELEASES, Release(name), _released, seconds=QOS_CALL_SECONDS)
        if lease is None:
            raise PeerError(Code.NOT_REGISTERED, "no such reservation")
        if lease.sid != request.caller.number and not request.caller.is_operator:
            raise PeerError(Code.NOT_OWNER, "this reservation belongs to somebody else")
        self._state.leases.end(name)
        return Answer(events=self._quota_events(request.domain, lease.provider))

    # Operators.

    def _operate(self, request: ServiceRequest, verb: str, parts: list[str]) -> Inquiry:
        value = object_of(request.members, "value")
        match verb, parts:
            case "create", ["providers"]:
                name = _given(value, "servicename")
                return self._change(request, new_provider_call(name, _amounts_in(value)), "no such provider")
            case "delete", ["providers", key]:
                return self._change(request, remove_provider_call(key), "no such provider")
            case "update", ["quotas"]:
                return self._change_quotas(request, _given(value, "cspkey"), _amounts_in(value))
            case _, ["turn" | "credentials" | "usage" | "providers" | "reservations" | "quotas", *_]:
                raise PeerError(Code.BAD_TYPE, "this resource knows no such request")
        raise PeerError(Code.NO_SUCH_SERVICE, "the broker has /turn, /credentials, /usage, /providers, /reservations")

    def _change(self, request: ServiceRequest, call: Call, missing: str) -> Inquiry:
        _check_operator(request)

        def conclude(answers: Answers, _: float) -> Answer:
            check_done(answers[0], what=missing)
            return Answer()

        return _ask((call,), conclude)

    def _change_quotas(self, request: ServiceRequest, key: str, quotas: Amounts) -> Inquiry:
        """PUT as the broker's manual says; GET where the broker knows no PUT."""
        _check_operator(request)

        def documented(answers: Answers, now: float) -> Answer | Inquiry:
            if answers[0].status in (404, 405, 501):
                return _ask((quotas_call(key, quotas, method="GET"),), implemented)
            return implemented(answers, now)

        def implemented(answers: Answers, _: float) -> Answer:
            check_done(answers[0], what="no such provider")
            self._limits[key] = quotas
            return Answer(events=self._quota_events(request.domain, key))

        return _ask((quotas_call(key, quotas, method="PUT"),), documented)

    # What happens without a request.

    def sweep(self, domain: str, now: float) -> list[Event]:
        """End expired leases: by time and by their object. `domain` is the one that events come from."""
        leases = self._state.leases
        leases.sweep(now=now)
        for lease in leases.objects_to_look_after() if self.others is None else ():
            if self._state.owners.owner(lease.object_key) is None:
                leases.end(lease.name)
        ended = leases.take_ended()
        if self.others is not None:  # any node may have made or ended one
            ended = list(self._limits) if self.others.is_granting else []
        return [event for provider in ended for event in self._quota_events(domain, provider)]

    def read(self, provider: str, limits: Amounts, usage: Amounts) -> None:
        """Another node has read the quotas of a provider, and what it has counted."""
        self._limits[provider], self._usages[provider] = limits, usage

    def providers_seen(self, answers: Answers) -> list[str]:
        """Take the providers as they are now; return those whose quotas somebody listens to whom we notify.

        Raises:
            PeerError: See `read_providers`.
        """
        self._limits = read_providers(answers[0])
        if self.others is not None and not self.others.is_granting:
            return []
        targets = self._state.listeners.targets
        domains = sorted(self._state.domains)
        return [key for key in self._limits if any(targets(_quota_key(domain, key)) for domain in domains)]

    def usage_seen(self, domain: str, provider: str, answers: Answers) -> list[Event]:
        """Take the usage of a provider as it is now.

        Raises:
            PeerError: See `read_usage`.
        """
        self._usages[provider] = read_usage(answers[0])
        return self._quota_events(domain, provider)

    def _quota_events(self, domain: str, provider: str) -> list[Event]:
        """Say which quotas are used up now, and which no longer are."""
        limits = self._limits.get(provider)
        if limits is None or (self.others is not None and not self.others.is_granting):
            return []
        events: list[Event] = []
        for kind in QosKind:
            used, limit = self._used(provider, kind), limits.of(kind)
            is_used_up, was_used_up = 0 < limit <= used, (provider, kind) in self._used_up
            if is_used_up == was_used_up:
                continue
            (self._used_up.add if is_used_up else self._used_up.discard)((provider, kind))
            value = {"kind": kind.value, "used": used, "limit": limit}
            events.append(Event(f"domain://qos.{domain}", _quota_key(domain, provider), {"value": value}))
        return events


def _ask(calls: tuple[Call, ...], conclude: _Conclude, *, lane: str = "") -> Inquiry:
    """Reservations at one provider go one after the other, so that two do not take the same rest."""
    return inquire(
        BROKER,
        Calls(calls),
        conclude,
        failed=_failed,
        seconds=QOS_CALL_SECONDS,
        lane=Lane(f"qos {lane}") if lane else NO_LANE,
    )


def _released(answer: Released, _: float) -> Answer:
    if answer.is_found:
        return Answer()
    if not answer.is_whole:
        raise PeerError(Code.NOT_CONNECTED, "a node that may have the reservation cannot be asked; try again")
    raise PeerError(Code.NOT_REGISTERED, "no such reservation")


def _quota_key(domain: str, provider: str) -> str:
    return f"domain://qos.{domain}/quotas/{provider}/changes"


def _check_operator(request: ServiceRequest) -> None:
    if not request.caller.is_operator:
        raise PeerError(Code.POLICY, "this is for operators")


def _given(members: Members, name: str) -> str:
    text = text_of(members, name)
    if not 0 < len(text) <= _TEXT_CHARS or not text.isprintable():
        raise PeerError(Code.BAD_BODY, f"{name} is missing, or no text of at most {_TEXT_CHARS} characters")
    return text


def _amounts_in(value: Members) -> Amounts:
    return Amounts(*(_amount(value.get(kind.value, 0)) for kind in QosKind))


def _amount(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _AMOUNT_MAX:
        raise PeerError(Code.BAD_BODY, "audio, video and data are whole numbers")
    return value


def _seconds(ttl: object, most: float) -> float:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl >= 1:
        raise PeerError(Code.BAD_BODY, "ttl is a number of seconds, at least 1")
    return float(min(ttl, most))


def _failed(error: HostError, _: float) -> Answer:
    if error.code in _NO_CONTACT:
        code = Code.GATEWAY_TIMEOUT
        return Answer(code.status, reason=code.word, description="The QoS broker does not answer.")
    raise PeerError(error.code, error.detail)
