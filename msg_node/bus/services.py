"""Messages to the node itself: which service an address is, and what comes of a request to it.

The bus asks `serves(key)` for every recipient (a dictionary hit), then `handle`, or for `mn:/session`
`sessions.handle_session`. Answers and changes come back together, so that nothing is acknowledged before it is durable.
Source: message specification, sections 2.4, 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from msg_node.addresses.core.observers import Observers
from msg_node.bus.announcements import Announcements
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.changes import Change
from msg_node.kernel.credentials import OPERATOR, POLICY_MANAGER
from msg_node.kernel.directories import SessionDirectory
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import check_criteria
from msg_node.kernel.service import (
    Answer,
    Asked,
    Caller,
    CloseCode,
    Durability,
    Event,
    Inquiry,
    Service,
    ServiceRequest,
    ServiceResult,
)
from msg_node.kernel.session import Dialect, Line, OpenRefused
from msg_node.registries.core.registry_entry import IncompleteError
from msg_node.sessions.core.session_service import OpenRefusedError, ReconnectionError, SessionService, SessionStep
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.limits import INQUIRY_STEPS
from protofly.message import Message

_REOPEN_TYPES = frozenset({"re-open", "reopen", "re_open"})
OPENS = _REOPEN_TYPES | {"open"}
"""Types of messages to `mn:/session` that want a session."""


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


class SessionRequests:
    """Requests to `mn:/session`, and what else happens to sessions."""

    def __init__(
        self,
        session_service: SessionService,
        sessions: SessionDirectory,
        announcements: Announcements,
        take_changes: Callable[[], list[Change]],
    ) -> None:
        self._session_service = session_service
        self._sessions = sessions
        self._announcements = announcements
        self._take_changes = take_changes
        self._refusal: OpenRefused | None = None
        self._fence: OpenRefused | None = None

    def refuse_opens(self, retry_seconds: float, alternatives: tuple[str, ...] = ()) -> None:
        """The node stops: open no session, and bring none back, from now on; others do at these URLs."""
        self._refusal = OpenRefused(Code.DRAINING, retry_seconds, alternatives=alternatives)

    def fence_opens(self, retry_seconds: float | None) -> None:
        """Another process may take our name: open no session, and bring none back; with None, go on."""
        self._fence = None if retry_seconds is None else OpenRefused(Code.STATE_UNAVAILABLE, retry_seconds)

    @property
    def opens_nothing(self) -> bool:
        """True while each request for a session is refused."""
        return self._refusal is not None or self._fence is not None

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
            return self.refused(message, line, exc)

    def refused(self, message: Message, line: Line, error: PeerError) -> ServiceResult:
        """Refuse a message to `mn:/session`."""
        refusal = _reply(message, _refusal(error), has_desc=line.dialect.reads_desc)
        step = self._session_service.refused(message, line.connection, error)
        return self._result([] if message.is_response else [refusal], step, Durability.NONE)

    def _session_verb(self, message: Message, line: Line, *, now: float, seed: bytes) -> ServiceResult:
        service = self._session_service
        refusal = self._refusal or self._fence
        if refusal is not None and message.type in OPENS:
            raise OpenRefusedError(refusal)
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

    def connection_lost(self, connection: int, *, now: float) -> ServiceResult:
        """A connection ended without `close`: its session is parked."""
        return self._result([], self._session_service.connection_lost(connection, now=now))

    def remove(self, sids: Iterable[int], *, now: float) -> ServiceResult:
        """An operator ends sessions."""
        return self._result([], self._session_service.remove(sids, now=now))

    def move_out(self, sid: int, *, now: float) -> ServiceResult:
        """A session goes on at another node: end it here."""
        return self._result([], self._session_service.remove((sid,), now=now, closing_code=CloseCode.TAKEN_OVER))

    def sweep(self, *, now: float) -> ServiceResult:
        """End some of the sessions that are over; to be called every second or so, until nothing comes of it."""
        return self._result([], self._session_service.sweep(now=now))

    def draining(self, other_node_url: str, sids: Iterable[int]) -> dict[int, Message]:
        """Messages to sessions before this node stops, by session. Source: message specification, section 5.4."""
        sessions = [session for sid in sids if (session := self._sessions.get(sid)) is not None]
        return {
            one.sid: self._announcements.status(one.runtime, "draining", resource=other_node_url) for one in sessions
        }

    def _result(
        self, replies: list[Message], step: SessionStep, durability: Durability = Durability.REQUIRED
    ) -> ServiceResult:
        registered = self._announcements.of_changes(step.status_changes)
        return ServiceResult(
            replies=replies,
            notifications=registered + self._announcements.presence(step.news),
            changes=self._take_changes(),
            effects=step.effects,
            notices=step.notices,
            news=step.news,
            durability=durability,
        )


class Services:
    """The services of a node, by address.

    Args:
        tables: Who calls, and what changed.
        services: By canonical key. A key that ends in `*` stands for all that begin with what is before it; the first
            that fits counts.
        sessions: Serves `mn:/session`.
        announcements: Words what subscribers are notified of.
        observers: Follows who observes which object.
    """

    def __init__(
        self,
        tables: BusTables,
        services: Mapping[str, Service],
        sessions: SessionRequests,
        announcements: Announcements,
        observers: Observers,
    ) -> None:
        self._state = tables
        self._services = {key: service for key, service in services.items() if not key.endswith("*")}
        self._behind = dict(self._services)
        self._guards: dict[str, list[Callable[[Service], Service]]] = {}
        self._beginnings = {key[:-1]: service for key, service in services.items() if key.endswith("*")}
        self._below = tuple(self._beginnings)
        self._announcements = announcements
        self.sessions = sessions
        self.notice = announcements.notice
        self.observers = observers

    def serves(self, key: str) -> bool:
        """True if a canonical key is a service of this node; `mn:/session` is looked up elsewhere."""
        return key in self._services or key.startswith(self._below)

    @property
    def keys(self) -> Container[str]:
        """Canonical keys of the services that have one; further ones are known by how they begin (`serves`)."""
        return self._services.keys()

    def addresses(self) -> list[str]:
        """All service addresses, for operators."""
        return sorted(self._services)

    def guard(self, key: str, over: Callable[[Service], Service]) -> None:
        """Put something before the service of a canonical key, whichever stands there; before anything runs."""
        self._guards.setdefault(key, []).append(over)
        self._services[key] = over(self._services[key])

    def behind(self, key: str) -> Service | None:
        """The service of a canonical key, without what is before it; None if there is none."""
        return self._behind.get(key)

    def replace(self, key: str, service: Service | None) -> None:
        """Have another service at a canonical key from the next message on, behind the same guards; None: none."""
        if service is None:
            self._behind.pop(key, None)
            self._services.pop(key, None)
            return
        self._behind[key] = service
        for over in self._guards.get(key, ()):
            service = over(service)
        self._services[key] = service

    def offered(self) -> list[str]:
        """The keys of the services that are on."""
        return [key for key, service in self._behind.items() if service is not connector_off]

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

    def publish_statuses(self, changes: Iterable[StatusChange]) -> ServiceResult:
        """Notify the subscribers of registry entries of their new statuses, and store these."""
        return ServiceResult(notifications=self._announcements.of_changes(changes), changes=self._state.take_changes())

    def publish_events(self, events: Iterable[Event]) -> ServiceResult:
        """Notify listeners of events that no request has caused, and store what they changed."""
        return ServiceResult(
            notifications=[self._announcements.event(event) for event in events], changes=self._state.take_changes()
        )

    def sweep_registry(self, *, now: float) -> ServiceResult:
        """The same for entries of the embedded registry that nobody has refreshed."""
        return self.publish_statuses(self._state.registry.sweep(now=now))

    def _answered(self, message: Message, who: Caller, answer: Answer) -> ServiceResult:
        replies = [_reply(message, answer, has_desc=who.reads_desc)] if message.expects_reply else []
        notifications: Sequence[Message] = ()
        if answer.status_changes or answer.events:
            notifications = self._announcements.of_changes(answer.status_changes) + [
                self._announcements.event(event) for event in answer.events
            ]
        changes = self._state.take_changes()
        durability = answer.durability if message.type == "read" else Durability.REQUIRED
        return ServiceResult(replies, notifications, changes=changes, durability=durability)

    def _caller(self, number: int) -> Caller:
        if number < 0:
            return Caller(number, self._state.links.domain(number))
        session = self._state.sessions.get(number)
        if session is None:
            return Caller(number)
        roles = frozenset[str]() if session.is_guest else session.proof.roles
        is_operator, is_manager = OPERATOR in roles, POLICY_MANAGER in roles
        return Caller(number, "", is_operator, session.is_guest, session.dialect.reads_desc, is_manager)


def _reply(message: Message, answer: Answer, *, has_desc: bool) -> Message:
    """Dialect A reads the description as `desc`. Source: message specification, section 4."""
    extra = {"reason": answer.reason, **(answer.members or {})} if answer.reason else answer.members
    return codec.response(
        message, answer.code, description=answer.description, value=answer.value, extra=extra, has_desc=has_desc
    )


def _refusal(error: HostError) -> Answer:
    value: object = msgspec.UNSET
    if isinstance(error, OpenRefusedError) and error.retry_after_seconds:
        elsewhere = {"alternatives": error.alternatives} if error.alternatives else {}
        value = {"retryAfter": error.retry_after_seconds} | elsewhere
    elif isinstance(error, IncompleteError):
        value = {"missing": error.missing}
    elif isinstance(error, PeerError) and error.msg_id:
        value = {"msgId": error.msg_id}
    if isinstance(error, ReconnectionError):
        return Answer(500, value, error.code.word, error.detail)  # what stubs of dialect A know
    description = f"{error.code.description}: {error.detail}" if error.detail else error.code.description
    return Answer(error.code.status, value, error.code.word, description)


def _session_reply(message: Message, members: Mapping[str, object], dialect: Dialect) -> Message:
    return codec.response(message, 200, extra=members, has_desc=dialect.reads_desc)
