"""`domain://msg-node.<d>/sm`: subscribe, unsubscribe and read. Source: message specification, section 8."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from msg_node.addresses.core.observers import Observers
from msg_node.addresses.core.subscription_rights import Right, SubscriptionRights
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.catalogue_questions import SCHEMA, schema_question
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.directories import Source
from msg_node.kernel.resources import (
    Members,
    children_base,
    expand,
    is_child_form,
    is_p2p_stub,
    key_or_refuse,
    text_of,
    texts_of,
)
from msg_node.kernel.results import answer_each
from msg_node.kernel.service import Answer, Caller, Event, Inquiry, ServiceRequest, inquire
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError


class NothingNamedError(PeerError):
    """A request that is about no resource."""

    def __init__(self) -> None:
        super().__init__(Code.BAD_BODY, "no resource is named")


class SubscriptionService:
    """Adds and removes listeners; it never touches data."""

    def __init__(self, state: AddressTables, observers: Observers) -> None:
        self._state = state
        self._observers = observers
        self._rights = SubscriptionRights(state)

    def __call__(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve `subscribe`, `unsubscribe` and `read`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, TOO_LARGE, NOT_OWNER, SPOOFED_SOURCE, QUOTA.
        """
        try:
            return self._serve(request)
        except NothingNamedError as exc:
            if not request.caller.reads_desc:
                raise
            return Answer(self._state.rules.sm_error, reason=exc.code.word, description=exc.detail)

    def _serve(self, request: ServiceRequest) -> Answer | Inquiry:
        match request.message.type:
            case "subscribe":
                return self._by_schema(request) if self._state.rules.expands_schema else self._subscribe(request)
            case "unsubscribe":
                return self._unsubscribe(request)
            case "read":
                return self._read(request)
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows subscribe, unsubscribe and read")

    def _by_schema(self, request: ServiceRequest) -> Answer | Inquiry:
        """Read which children an object has, when a runtime names its schema and no children; else subscribe at once.

        A schema that is not to be had is said in the answer, and only the object itself is subscribed.
        """
        members = request.members
        address, resource = text_of(members, "schema"), text_of(members, "resource")
        is_asked = address and resource and not texts_of(members, "childrenResources", "children")
        if not is_asked or request.caller.is_abroad:
            return self._subscribe(request)

        def conclude(schema: DataSchema, _: float) -> Answer:
            self._check_there(request.caller)
            return self._subscribe(request, schema.children)

        def failed(error: HostError, _: float) -> Answer:
            self._check_there(request.caller)
            return msgspec.structs.replace(self._subscribe(request), members={"schema": error.code.word})

        try:
            question = schema_question(address, request.message.from_)
        except PeerError as exc:
            return failed(exc, request.now)
        return inquire(SCHEMA, question, conclude, failed=failed)

    def _check_there(self, caller: Caller) -> None:
        """A session may have ended while a catalogue was asked."""
        if self._state.sessions.get(caller.number) is None:
            raise PeerError(Code.NOT_CONNECTED, "the session has ended")

    def _subscribe(self, request: ServiceRequest, children: Sequence[str] = ()) -> Answer:
        members = {**request.members, "childrenResources": list(children)} if children else request.members
        texts = self._named(members, request.caller, "resources", "subscribe")
        written = frozenset(texts_of(request.members, "resources", "subscribe"))
        claims: dict[str, str] = {}  # by key
        heard: dict[str, str] = {}
        results: dict[str, Code | None] = dict.fromkeys(texts)
        for text in sorted(texts, key=len):  # an object before what is below it
            key = key_or_refuse(text)
            right = self._rights.right(request.caller, key, claims)
            if right is Right.CLAIM and text not in written and is_child_form(key):
                right = Right.LISTEN  # a child that was named beside its object is for every observer
            results[text] = right.code
            if right is Right.CLAIM:
                claims[key] = text
            if results[text] is None:
                heard[key] = text
        if len(texts) == 1 and (code := results[texts[0]]) is not None:
            raise PeerError(code, "this address belongs to somebody else" if code is Code.NOT_OWNER else "no consent")
        source = self._source(request, claims)
        self._apply(request.caller, claims, [Subscription(text, key, source) for key, text in heard.items()])
        return answer_each(request.members, results)

    def _apply(self, caller: Caller, claims: dict[str, str], wanted: list[Subscription]) -> None:
        """All or nothing: both quotas are asked before anything changes."""
        if claims:
            self._state.owners.check_quota(caller.number, len(claims), chars=sum(map(len, claims.values())))
            self._state.guests.check_quota(caller.number, len(claims))
        self._state.listeners.add(caller.number, wanted)
        for text in claims.values():
            self._state.owners.claim(caller.number, text, is_guest=caller.is_guest)

    def _unsubscribe(self, request: ServiceRequest) -> Answer:
        caller, listeners = request.caller, self._state.listeners
        texts = self._named(request.members, caller, "resources", "unsubscribe", "subscribe", is_owner=True)
        source = text_of(request.members, "source")
        if source and not caller.is_link and self._is_of_another(caller.number, key_or_refuse(source)):
            return self._take_off(caller, [key_or_refuse(text) for text in texts], source)
        sources = {key_or_refuse(source), *self._stand_ins(request, source)} if source else None
        keys = [key_or_refuse(text) for text in texts]
        base = children_base(text_of(request.members, "resource"))
        for key in keys:
            if key != base:
                listeners.remove(caller.number, key, sources)
        if base in keys and not listeners.listens_below(caller.number, base):
            listeners.remove(caller.number, base, sources)  # it stays while another child of the object is heard
        self._release_p2p(caller, [*keys, *(sources or ())])
        return Answer()

    def _is_of_another(self, number: int, key: str) -> bool:
        """True if an address is somebody else's: a session's of ours, or of another domain."""
        domain = domain_of(key)
        is_abroad = bool(domain) and domain not in self._state.domains and domain != self._state.guests.domain(number)
        return is_abroad or self._state.senders.source_of(number, key).code is not None

    def _take_off(self, caller: Caller, keys: list[str], observer: str) -> Answer:
        """The reporter of objects removes an observer, which is notified; nobody else does.

        Raises:
            PeerError: SPOOFED_SOURCE from anybody else; QUOTA, OVERLOAD.

        Source: message specification, section 9.1; feature row DS-13.
        """
        objects = list(dict.fromkeys(map(self._state.observer_rights.object_at, keys)))
        if any(self._state.holders.reporter_of(one) != caller.number for one in objects):
            raise PeerError(Code.SPOOFED_SOURCE, "the source belongs to somebody else")
        session = self._state.sessions.get(caller.number)
        for one in objects:
            self._observers.take_off(one, key_or_refuse(observer), by="" if session is None else session.runtime_key)
        return Answer(
            events=[
                Event(f"{one}/subscription", observer, {"resource": one}, has_id=False, type="unsubscribe")
                for one in objects
            ]
        )

    def _stand_ins(self, request: ServiceRequest, source: str) -> list[str]:
        """Under whom else subscriptions of a source may be stored: a source that is nobody's gave way to `from`."""
        if request.caller.is_link:
            return []
        is_ours = self._state.senders.source_of(request.caller.number, key_or_refuse(source)) is Source.OWN
        return [] if is_ours else [request.message.from_key]

    def _release_p2p(self, caller: Caller, keys: list[str]) -> None:
        """A P2P stub that nothing is heard for any more gives its address back."""
        stubs = {key for key in keys if is_p2p_stub(key)}
        for key in stubs - self._state.listeners.sources(caller.number) if stubs else ():
            self._state.owners.release({caller.number}, key)

    def _read(self, request: ServiceRequest) -> Answer:
        resource = text_of(request.members, "resource")
        numbers: tuple[int, ...] = (request.caller.number,)
        key = key_or_refuse(resource) if resource else ""
        if resource and request.caller.is_operator:
            sid = self._state.sessions.by_runtime(key)
            numbers = self._state.listeners.targets(key) if sid is None else (sid,)
            key = key if sid is None else ""
        found = [
            {"url": one.url, "source": one.source}
            for number in numbers
            for one in self._state.listeners.subscriptions(number)
            if key in ("", one.key)
        ]
        return Answer(value={"resources": found})

    def _named(self, members: Members, caller: Caller, *names: str, is_owner: bool = False) -> list[str]:
        """Addresses that a request is about, in all accepted forms together.

        Source: message specification, section 8.1.
        """
        texts = dict.fromkeys(texts_of(members, *names))
        resource = text_of(members, "resource")
        if resource:
            is_mine = is_owner or self._state.owners.owner(key_or_refuse(resource)) == caller.number
            children = texts_of(members, "childrenResources", "children")
            texts.update(dict.fromkeys(expand(resource, children, is_owner=is_mine)))
        if not texts:
            raise NothingNamedError
        return list(texts)

    def _source(self, request: ServiceRequest, claims: dict[str, str]) -> str:
        """Return the runtime that becomes subscriber. Source: message specification, sections 8.2 and 17.

        The address of a P2P stub that names no runtime joins `claims`.
        """
        source = text_of(request.members, "source") or request.message.from_
        key = key_or_refuse(source)
        if request.caller.is_link:
            if self._state.interworking.home_of(key) != request.caller.domain:
                raise PeerError(Code.SPOOFED_SOURCE, "the source is of another domain")
            return source
        if key in claims:
            return source
        if is_p2p_stub(key) and self._rights.right_to_p2p(request.caller, key) is Right.CLAIM:
            claims[key] = source
            return source
        match self._state.senders.source_of(request.caller.number, key):
            case Source.OWN:
                return source
            case Source.NOT_OWNER | Source.SPOOFED:
                raise PeerError(Code.SPOOFED_SOURCE, "the source belongs to somebody else")
            case _:
                return request.message.from_
