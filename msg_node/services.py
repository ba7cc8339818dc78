"""Messages to the node itself: which service an address is, and what comes of a request to it.

The bus asks `serves(key)` for every recipient (a dictionary hit), then `handle`, or for `mn:/session`
`handle_session`. Answers and changes come back together, so that nothing is acknowledged before it is durable.
Source: message specification, sections 2.4, 3 and 4.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from msg_node.addresses.core.allocation_service import AllocationService
from msg_node.addresses.core.observers import Observers
from msg_node.addresses.core.subscription_service import SubscriptionService
from msg_node.kernel.credentials import OPERATOR
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import SESSION_KEY, check_criteria
from msg_node.kernel.service import (
    Answer,
    Asked,
    Caller,
    Event,
    Inquiry,
    Notice,
    Service,
    ServiceRequest,
    ServiceResult,
    SessionNews,
)
from msg_node.kernel.session import Dialect, Line
from msg_node.node_state import NodeState
from msg_node.registries.core.registry_entry import IncompleteError
from msg_node.registries.core.registry_service import RegistryService
from msg_node.registries.core.twin_service import TwinService
from msg_node.requests.core.delivery_service import DeliveryService, InboxService
from msg_node.sessions.core.session_service import OpenRefusedError, ReconnectionError, SessionService, SessionStep
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.limits import INQUIRY_STEPS
from protofly.message import Message

_REOPEN_TYPES = frozenset({"re-open", "reopen", "re_open"})
_SWITCHED_OFF = (
    "msg-node.{}/pep",
    "msg-node.{}/peers",
)
_ELSEWHERE = ("idm.{}", "qos.{}", "qos-broker.{}")


def connector_off(_: ServiceRequest) -> Answer:
    """A service of the address plan that this node does not run.

    Raises:
        PeerError: CONNECTOR_OFF, always.
    """
    raise PeerError(Code.CONNECTOR_OFF, "this service is switched off")


def no_such_service(_: ServiceRequest) -> Answer:
    """A path below `msg-node` that is none of ours.

    Raises:
        PeerError: NO_SUCH_SERVICE, always.
    """
    raise PeerError(Code.NO_SUCH_SERVICE, "there is no such service")


class Services:
    """The services of a node, by address."""

    def __init__(
        self,
        state: NodeState,
        *,
        session_service: SessionService,
        node_url: str,
        version: str,
        first_id: int,
        tells_presence: bool = False,
        guest_stubs: bool = True,
        more: Mapping[str, Service] | None = None,
        at: Mapping[str, Service] | None = None,
    ) -> None:
        """Make the table of services.

        Args:
            state: The durable state.
            session_service: Serves `mn:/session`.
            node_url: Our runtime address: named as `body.source` of what we answer in place of others.
            version: Told to those who read `domain://msg-node.<d>`.
            first_id: Random start of the ids of our own messages, below 2^31. Source: message specification, section
                3, rule 7.
            tells_presence: Those who listen to `<runtime>/status` are told when a runtime comes and goes.
            guest_stubs: Told to those who read it: runtimes may run stubs of other domains themselves.
            more: Further services by path below `msg-node`, such as `stubs`.
            at: Services by canonical key, such as `global://registry`: in place of what is there without them. A key
                that ends in `*` stands for all that begin with what is before it.
        """
        self._state = state
        self._session_service = session_service
        self._node_url = node_url
        self._version = version
        self._next_id = first_id
        self._tells_presence = tells_presence
        self._guest_stubs = guest_stubs
        self._services: dict[str, Service] = {"global://registry": connector_off}
        self.observers = Observers(state)
        self._below = tuple(f"domain://msg-node.{domain}/" for domain in sorted(state.domains))
        for domain in state.domains:
            self._add_domain(domain, more or {})
        self._services.update({key: service for key, service in (at or {}).items() if not key.endswith("*")})
        self._beginnings = {key[:-1]: service for key, service in (at or {}).items() if key.endswith("*")}
        self._below += tuple(self._beginnings)

    def _add_domain(self, domain: str, more: Mapping[str, Service]) -> None:
        node = f"domain://msg-node.{domain}"
        for pattern in (*_SWITCHED_OFF, *_ELSEWHERE):
            self._services["domain://" + pattern.format(domain)] = connector_off
        self._services[node] = self._information
        self._services[f"{node}/address-allocation"] = AllocationService(self._state)
        self._services[f"{node}/hyperty-address-allocation"] = AllocationService(self._state, fixed_scheme="hyperty")
        self._services[f"{node}/object-address-allocation"] = AllocationService(self._state, default_scheme="comm")
        self._services[f"{node}/sm"] = SubscriptionService(self._state, self.observers)
        self._services[f"{node}/delivery"] = DeliveryService(self._state)
        self._services[f"{node}/inbox"] = InboxService(self._state)
        self._services[f"{node}/twin"] = TwinService(self._state, self._state.delivery.queues)
        self._services[f"domain://registry.{domain}"] = RegistryService(self._state)
        for path, service in more.items():
            self._services[f"{node}/{path}"] = service

    # Look-ups.

    def serves(self, key: str) -> bool:
        """Whether a canonical key is a service of this node (`mn:/session` is asked for by itself)."""
        return key in self._services or key.startswith(self._below)

    @property
    def keys(self) -> Container[str]:
        """Canonical keys of the services that have one; further ones are known by how they begin (`serves`)."""
        return self._services.keys()

    def addresses(self) -> list[str]:
        """All service addresses, for people."""
        return sorted(self._services)

    # Requests.

    def handle(self, message: Message, caller: int, *, now: float, seed: bytes) -> ServiceResult:
        """Serve one message to a service.

        Args:
            message: The request; its source has been checked.
            caller: A session, or the listener number of a link (`LinkNumbers.number`).
            now: Seconds since the Unix epoch.
            seed: At least 32 fresh random bytes.
        """
        if message.type == "response":
            return ServiceResult()
        key = message.to_key
        service = self._services.get(key) or self._service_below(key)
        who = self._caller(caller)
        answer: Answer | Inquiry
        try:
            request = ServiceRequest(message, who, domain_of(message.to), now, seed)
            if message.type == "read":
                check_criteria(request.members)
            answer = service(request)
        except PeerError as exc:
            answer = _refusal(exc)
        if isinstance(answer, Inquiry):
            return ServiceResult(inquiries=[Asked(message, who, answer)], changes=self._state.take_changes())
        return self._answered(message, who, answer)

    def _service_below(self, key: str) -> Service:
        found = (service for beginning, service in self._beginnings.items() if key.startswith(beginning))
        return next(found, no_such_service)

    def concluded(self, asked: Asked, outcome: object, *, now: float) -> ServiceResult:
        """Go on with a request whose inquiry has come to its end.

        Args:
            asked: The inquiry.
            outcome: What the connector replied, or the HostError that is in place of a reply.
            now: Seconds since the Unix epoch.
        """
        inquiry = asked.inquiry
        answer: Answer | Inquiry
        try:
            if not isinstance(outcome, HostError):
                answer = inquiry.conclude(outcome, now)
            elif inquiry.failed is not None:
                answer = inquiry.failed(outcome, now)
            else:
                answer = _refusal(outcome)
        except PeerError as exc:
            answer = _refusal(exc)
        if not isinstance(answer, Inquiry):
            return self._answered(asked.message, asked.caller, answer)
        if asked.step + 1 >= INQUIRY_STEPS:
            return self._answered(asked.message, asked.caller, _refusal(PeerError(Code.INTERNAL, "too many inquiries")))
        next_one = Asked(asked.message, asked.caller, answer, asked.step + 1)
        return ServiceResult(inquiries=[next_one], changes=self._state.take_changes())

    def refused(self, asked: Asked, error: HostError) -> Sequence[Message]:
        """The replies to a request whose inquiry cannot be asked."""
        return self._answered(asked.message, asked.caller, _refusal(error)).replies

    def status_told(self, changes: Iterable[StatusChange]) -> ServiceResult:
        """Tell the subscribers of registry entries what became of them, and keep it."""
        return ServiceResult(notifications=self._notifications(changes), changes=self._state.take_changes())

    def events_told(self, events: Iterable[Event]) -> ServiceResult:
        """Tell events that no request has caused, and keep what they say."""
        return ServiceResult(notifications=[self._event(event) for event in events], changes=self._state.take_changes())

    def _event(self, event: Event) -> Message:
        id_ = self._fresh_id() if event.has_id else None
        return codec.build(id=id_, type=event.type, from_=event.from_, to=event.to, body=event.body)

    def _answered(self, message: Message, who: Caller, answer: Answer) -> ServiceResult:
        replies = [_reply(message, answer, has_desc=who.reads_desc)] if message.expects_reply else []
        told: Sequence[Message] = ()
        if answer.status_changes or answer.events:
            told = self._notifications(answer.status_changes) + [self._event(event) for event in answer.events]
        return ServiceResult(replies, told, changes=self._state.take_changes())

    def handle_session(self, message: Message, line: Line, *, now: float, seed: bytes) -> ServiceResult:
        """Serve one message to `mn:/session`; the replies are for the connection it came from.

        Args:
            message: The request.
            line: Its connection.
            now: Seconds since the Unix epoch.
            seed: At least 32 fresh random bytes.
        """
        try:
            return self._session_verb(message, line, now=now, seed=seed)
        except PeerError as exc:
            refusal = _reply(message, _refusal(exc), has_desc=line.dialect.reads_desc)
            step = self._session_service.refused(message, line.connection, exc)
            return self._result([] if message.is_response else [refusal], step)

    def _session_verb(self, message: Message, line: Line, *, now: float, seed: bytes) -> ServiceResult:
        service = self._session_service
        if message.type == "open" or (message.type in _REOPEN_TYPES and not line.dialect.has_token):
            members = codec.request_members(message.body)
            step = service.open(message, members, line, now=now, seed=seed)
        elif message.type in _REOPEN_TYPES:
            members = codec.request_members(message.body)
            step = service.re_open(message, members, line, now=now)
        elif message.type == "close":
            step = service.close(line.connection, now=now)
        elif message.type == "ping":
            pong = codec.build(id=message.id, type="pong", from_=message.to, to=message.from_)
            return ServiceResult(replies=[pong])
        else:
            raise PeerError(Code.BAD_TYPE, "sessions know open, re-open, close and ping")
        replies = [] if step.members is None else [_session_reply(message, step.members, line.dialect)]
        return self._result(replies, step)

    # Events.

    def connection_lost(self, connection: int, *, now: float) -> ServiceResult:
        """A connection ended without `close`: its session is parked."""
        return self._result([], self._session_service.connection_lost(connection, now=now))

    def sweep(self, *, now: float) -> ServiceResult:
        """End some of the sessions that are over; to be called every second or so, until nothing comes of it."""
        self._state.twin.store_values()
        return self._result([], self._session_service.sweep(now=now))

    def sweep_registry(self, *, now: float) -> ServiceResult:
        """The same for entries of the embedded registry that nobody has refreshed."""
        return self.status_told(self._state.registry.sweep(now=now))

    def draining(self, other_node_url: str, sids: Iterable[int]) -> dict[int, Message]:
        """What sessions are told before this node stops, by session. Source: message specification, section 5.4."""
        sessions = [session for sid in sids if (session := self._state.sessions.get(sid)) is not None]
        return {one.sid: self._status(one.runtime, "draining", resource=other_node_url) for one in sessions}

    def notice(self, notice: Notice) -> Message:
        """What a connection is told about its session, as a message to it."""
        return self._status(notice.runtime, notice.value, reason=notice.reason)

    # Inner steps.

    def _caller(self, number: int) -> Caller:
        if number < 0:
            return Caller(number, self._state.links.domain(number))
        session = self._state.sessions.get(number)
        if session is None:
            return Caller(number)
        is_operator = OPERATOR in session.proof.roles and not session.is_guest
        return Caller(number, "", is_operator, session.is_guest, session.dialect.reads_desc)

    def _result(self, replies: list[Message], step: SessionStep) -> ServiceResult:
        registered = self._notifications(step.status_changes)
        return ServiceResult(
            replies=replies,
            notifications=registered + self._presence(step.news),
            changes=self._state.take_changes(),
            effects=step.effects,
            notices=step.notices,
            news=step.news,
        )

    def _presence(self, news: Iterable[SessionNews]) -> list[Message]:
        """Tell those who listen to `<runtime>/status` that a runtime has come or gone."""
        if not self._tells_presence:
            return []
        told = [(one.runtime_key, presence) for one in news if (presence := presence_of(one))]
        return [
            self._status(runtime, presence, source=self._node_url)
            for runtime, presence in told
            if self._state.listeners.targets(f"{runtime}/status")
        ]

    def _status(
        self, runtime: str, value: str, *, reason: str = "", resource: str = "", source: str = SESSION_KEY
    ) -> Message:
        members = {"value": value, "reason": reason, "resource": resource}
        body: dict[str, object] = {name: text for name, text in members.items() if text}
        return codec.build(id=self._fresh_id(), type="update", from_=source, to=f"{runtime}/status", body=body)

    def _notifications(self, changes: Iterable[StatusChange]) -> list[Message]:
        """What those who listen to entries are told; most entries of a sweep have nobody who does."""
        return [self._notification(change) for change in changes if self._has_listener(change)]

    def _has_listener(self, change: StatusChange) -> bool:
        return self._state.listeners.is_heard(f"{change.key}/registration")

    def _notification(self, change: StatusChange) -> Message:
        """Tell the subscribers of an entry. Source: message specification, section 10.3."""
        return codec.build(
            id=self._fresh_id(),
            type="update",
            from_=f"domain://registry.{domain_of(change.url)}",
            to=f"{change.url}/registration",
            body={"value": change.status.value, "attribute": "status"},
        )

    def _fresh_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _information(self, request: ServiceRequest) -> Answer:
        if request.message.type != "read":
            raise PeerError(Code.BAD_TYPE, "this service knows read")
        served = [key for key, service in self._services.items() if service is not connector_off]
        value = {
            "name": self._node_url,
            "version": self._version,
            "domain": request.domain,
            "guestStubs": self._guest_stubs,
            "functions": sorted(key for key in served if domain_of(canonical_key(key)) == request.domain),
        }
        return Answer(value=value)


def _reply(message: Message, answer: Answer, *, has_desc: bool) -> Message:
    """Dialect A reads the description as `desc`. Source: message specification, section 4."""
    extra = {"reason": answer.reason, **(answer.members or {})} if answer.reason else answer.members
    return codec.response(
        message, answer.code, description=answer.description, value=answer.value, extra=extra, has_desc=has_desc
    )


def _refusal(error: HostError) -> Answer:
    value: object = msgspec.UNSET
    if isinstance(error, OpenRefusedError) and error.retry_after_seconds:
        value = {"retryAfter": error.retry_after_seconds}
    elif isinstance(error, IncompleteError):
        value = {"missing": error.missing}
    if isinstance(error, ReconnectionError):
        return Answer(500, value, error.code.word, error.detail)  # what stubs of dialect A know
    description = f"{error.code.description}: {error.detail}" if error.detail else error.code.description
    return Answer(error.code.status, value, error.code.word, description)


def presence_of(news: SessionNews) -> str:
    """What news of a session says about the presence of its runtime: `live`, `disconnected`, or "" for nothing."""
    if news.event == "opened" or (news.event == "re-opened" and news.detail != "renewed"):
        return "live"
    return "disconnected" if news.event in ("lost", "closed") else ""


def _session_reply(message: Message, members: Mapping[str, object], dialect: Dialect) -> Message:
    return codec.response(message, 200, extra=members, has_desc=dialect.reads_desc)
