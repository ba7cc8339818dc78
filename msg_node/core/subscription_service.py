"""`domain://msg-node.<d>/sm`: subscribe, unsubscribe, read; who may listen where.

Source: message specification, section 8.

Rights, so that nobody can take the messages of another: `changes`, `status`, `registration` and children are for
every observer; an entity itself, its `subscription` and `inbox`, and everything below it (`/*`) are for its owner. A
base address of our domain that nobody owns yet is claimed by listening to it.
"""

from __future__ import annotations

from enum import Enum

from msg_node.core.node_state import NodeState, Source
from msg_node.core.resources import Members, Shape, expand, is_claimable, key_or_refuse, shape_of, text_of, texts_of
from msg_node.core.runtime_address import runtime_part
from msg_node.core.service import Answer, Caller, ServiceRequest
from msg_node.core.subscriptions import Subscription
from protofly.address import domain_of, parse, scheme_of
from protofly.errors import Code, PeerError


class Right(Enum):
    """What comes of a wish to listen."""

    LISTEN = "listen"
    CLAIM = "claim"
    REFUSED = "refused"


class SubscriptionService:
    """Adds and removes listeners; it never touches data."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `subscribe`, `unsubscribe` and `read`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, TOO_LARGE, NOT_OWNER, SPOOFED_SOURCE, QUOTA.
        """
        match request.message.type:
            case "subscribe":
                return self._subscribe(request)
            case "unsubscribe":
                return self._unsubscribe(request)
            case "read":
                return self._read(request)
            case _:
                raise PeerError(Code.BAD_TYPE, "this service knows subscribe, unsubscribe and read")

    def _subscribe(self, request: ServiceRequest) -> Answer:
        texts = self._named(request.members, request.caller, "resources", "subscribe")
        source = self._source(request)
        claims: list[str] = []
        wanted: list[Subscription] = []
        refused: list[str] = []
        claimed_keys: set[str] = set()
        for text in sorted(texts, key=len):  # an object before what is below it
            key = key_or_refuse(text)
            match self.right(request.caller, key, claimed_keys):
                case Right.REFUSED:
                    refused.append(text)
                    continue
                case Right.CLAIM:
                    claims.append(text)
                    claimed_keys.add(key)
            wanted.append(Subscription(text, key, source))
        if refused and len(texts) == 1:
            raise PeerError(Code.NOT_OWNER, "this address belongs to somebody else")
        self._apply(request.caller.number, claims, wanted)
        return Answer(value={"refused": refused}) if refused else Answer()

    def _apply(self, number: int, claims: list[str], wanted: list[Subscription]) -> None:
        """All or nothing: both quotas are asked before anything changes."""
        if claims:
            self._state.owners.check_quota(number, len(claims))
        self._state.listeners.add(number, wanted)
        for text in claims:
            self._state.owners.claim(number, text)

    def _unsubscribe(self, request: ServiceRequest) -> Answer:
        texts = self._named(request.members, request.caller, "resources", "unsubscribe", "subscribe", is_owner=True)
        source = text_of(request.members, "source") or None
        for text in texts:
            self._state.listeners.remove(request.caller.number, key_or_refuse(text), source)
        return Answer()

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
            raise PeerError(Code.BAD_BODY, "no resource is named")
        return list(texts)

    def _source(self, request: ServiceRequest) -> str:
        """Who becomes subscriber. Source: message specification, section 8.2."""
        source = text_of(request.members, "source") or request.message.from_
        key = key_or_refuse(source)
        if request.caller.is_link:
            if domain_of(key) != request.caller.domain:
                raise PeerError(Code.SPOOFED_SOURCE, "the source is of another domain")
            return source
        match self._state.source_of(request.caller.number, key):
            case Source.OWN:
                return source
            case Source.NOT_OWNER | Source.SPOOFED:
                raise PeerError(Code.SPOOFED_SOURCE, "the source belongs to somebody else")
            case _:
                return request.message.from_

    def right(self, caller: Caller, key: str, claimed: set[str] | frozenset[str] = frozenset()) -> Right:
        """Judge the wish to listen to a canonical key; `claimed` are keys that the same request claims.

        Source: message specification, sections 7.4 and 8.5.
        """
        shape = shape_of(key)
        if shape is Shape.EVENTS:
            return Right.LISTEN
        if caller.is_link:
            is_theirs = shape is not Shape.BELOW and domain_of(key) == caller.domain
            return Right.LISTEN if is_theirs else Right.REFUSED
        owner = self._holder(key[:-2] if shape is Shape.BELOW else key)
        if owner is not None:
            is_child = shape is Shape.BASE and _is_child_form(key) and self._state.owners.owner(key) is None
            return Right.LISTEN if owner == caller.number or is_child else Right.REFUSED
        if any(key.startswith(base + "/") for base in claimed):
            return Right.LISTEN
        return self._right_to_unowned(caller, key, shape)

    def _holder(self, key: str) -> int | None:
        """The session that owns an address or the nearest one above it; -1 for a runtime that is not connected."""
        owner = self._state.owners.owner(key)
        if owner is not None:
            return owner
        if runtime_part(key):
            holder = self._state.sessions.below(key)
            return -1 if holder is None else holder
        above = self._state.owners.owner_above(key)
        return None if above is None else above[0]

    def _right_to_unowned(self, caller: Caller, key: str, shape: Shape) -> Right:
        scheme, domain = scheme_of(key), domain_of(key)
        if not scheme:
            return Right.LISTEN if shape is Shape.BASE else Right.REFUSED
        if shape is Shape.BELOW:
            return Right.REFUSED
        if domain not in self._state.domains:
            return Right.LISTEN if domain and shape is Shape.BASE and _is_child_form(key) else Right.REFUSED
        if shape is Shape.CONTROL:
            others = set(self._state.listeners.targets(key)) - {caller.number}
            return Right.REFUSED if others else Right.LISTEN
        return Right.CLAIM if is_claimable(key) else Right.REFUSED


def _is_child_form(key: str) -> bool:
    """Whether a base address may be a child in the oldest spelling, `O/n`: an object scheme and two levels or more."""
    return is_claimable(key) and scheme_of(key) != "hyperty" and "/" in parse(key).path[1:]
