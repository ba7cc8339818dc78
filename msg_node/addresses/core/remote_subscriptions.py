"""Our runtimes' subscriptions to objects of other domains: one upstream subscription per address.

A runtime's request to the subscription manager of domain B is answered by us, after B has agreed. What B then sends for
the address crosses the link once and is fanned out here, however many listen.
Source: message specification, sections 8.6 and 18.4 (aggregate mode).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from msg_node.kernel.resources import (
    Members,
    expand,
    key_or_refuse,
    may_observe_abroad,
    object_of,
    text_of,
    texts_of,
)
from protofly import codec
from protofly.address import domain_of, is_below
from protofly.answer_codes import code_of
from protofly.errors import Code, PeerError
from protofly.limits import FRAME_BYTES, REQUEST_TTL_SECONDS, RESOURCES_ENTRIES, SUBSCRIPTIONS_PER_SESSION
from protofly.message import Message

_FINAL = 200
_ANSWER_SECONDS = REQUEST_TTL_SECONDS + 1
_REQUEST_CHARS = FRAME_BYTES // 8  # a character takes six bytes at most


@dataclass(frozen=True, slots=True)
class Wish:
    """A runtime's request that waits for the other domain's answer; `refused` are addresses that are not to be had."""

    request: Message
    sid: int
    urls: tuple[str, ...]
    source: str
    refused: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of addresses that it names."""
        return len(self.urls) + len(self.refused)


@dataclass(slots=True)
class _Upstream:
    """One request of ours under way: the addresses that it names, and the wish that its answer decides, if any."""

    domain: str
    urls: tuple[str, ...]
    wish: Wish | None
    deadline: float


@dataclass(slots=True)
class SubscriptionStep:
    """The result of a step: messages for the other domain, and wishes that were granted or refused."""

    upstream: list[Message] = field(default_factory=list)
    granted: list[Wish] = field(default_factory=list)
    refused: list[tuple[Wish, int, str]] = field(default_factory=list)


class RemoteSubscriptions:
    """Upstream subscriptions of this node.

    Args:
        node: Our node's address; it is the subscriber that other domains see.
        first_id: Random start of our own request numbers, below 2^31.
        home_of: The domain to which an address belongs.
    """

    def __init__(self, node: str, first_id: int, *, home_of: Callable[[str], str] = domain_of) -> None:
        self._node = node
        self._home_of = home_of
        self._sender = f"{node}/sm"
        self._ids = count(first_id)
        self._held: dict[str, dict[str, str]] = {}  # domain -> key -> url as written
        self._doubtful: set[str] = set()  # keys held, whose renewal the other domain has refused
        self._open: dict[bytes, _Upstream] = {}
        self._asked_by: Counter[int] = Counter()  # addresses under way, by session

    def subscribe(
        self,
        request: Message,
        members: Members,
        sid: int,
        domain: str,
        now: float,
        *,
        has_consent: Callable[[str], bool] = lambda _key: True,
    ) -> SubscriptionStep:
        """A runtime wants to listen to objects of `domain`; `now` is monotonic.

        `has_consent` says whether the reporter has accepted that runtime, by the key of the address.

        Raises:
            PeerError: BAD_BODY, SPOOFED_SOURCE when an address is not of that domain, NOT_OWNER when none of them is
                for observers, POLICY when the reporter has accepted this one for none of them, QUOTA when it asks for
                more at once than it may listen to.
        """
        named = self._named(members, domain, "resources", "subscribe")
        if self._asked_by[sid] + len(named) > SUBSCRIPTIONS_PER_SESSION:
            raise PeerError(Code.QUOTA, "too many subscriptions of this session are under way")
        urls = tuple(url for url in named if may_observe_abroad(key_or_refuse(url)))
        if not urls:
            raise PeerError(Code.NOT_OWNER, "these addresses are not for observers")
        urls = tuple(url for url in urls if has_consent(key_or_refuse(url)))
        if not urls:
            raise PeerError(Code.POLICY, "no consent")
        heard = frozenset(urls)
        refused = tuple(url for url in named if url not in heard)
        wish = Wish(_kept(request, members), sid, urls, text_of(members, "source") or request.from_, refused)
        return self._settle(domain, wish, now + _ANSWER_SECONDS)

    def unsubscribe(self, members: Members, domain: str) -> tuple[str, ...]:
        """Addresses of `domain` that a runtime wants no more.

        Raises:
            PeerError: BAD_BODY, SPOOFED_SOURCE.
        """
        return self._named(members, domain, "resources", "unsubscribe", "subscribe")

    def holds(self, domain: str) -> bool:
        """True if we listen to anything of a domain."""
        return bool(self._held.get(domain))

    def has_key(self, key: str) -> bool:
        """True if we listen to an address upstream."""
        return key in self._held.get(self._home_of(key), ())

    def forget(self, key: str) -> None:
        """Listen to an address no more, without a word to its domain; the next wish for it is asked for anew."""
        self._held.get(self._home_of(key), {}).pop(key, None)
        self._doubtful.discard(key)

    def object_deleted(self, domain: str, object_key: str) -> None:
        """An object of `domain` is no more, and its node has forgotten who listened: so do we."""
        held = self._held.get(domain, {})
        for key in [key for key in held if is_below(key, object_key)]:
            del held[key]
            self._doubtful.discard(key)

    def nobody_listens(self, keys: Iterable[str], now: float) -> list[Message]:
        """The last local listener of these keys is gone: unsubscribe at the other domains.

        What a wish under way names stays: its runtime is about to listen.
        """
        gone: dict[str, list[str]] = {}
        wanted = {key_or_refuse(url) for one in self._open.values() if one.wish for url in one.wish.urls}
        for key in keys:
            if key in wanted:
                continue
            domain = self._home_of(key)
            url = self._held.get(domain, {}).pop(key, None)
            self._doubtful.discard(key)
            if url is not None:
                gone.setdefault(domain, []).append(url)
        return [one for domain, urls in gone.items() for one in self._requests("unsubscribe", domain, urls, now)]

    def renew(self, domain: str, now: float) -> list[Message]:
        """The link to `domain` is up again: its node may have forgotten us."""
        return list(self._requests("subscribe", domain, self._held.get(domain, {}).values(), now))

    def is_answer(self, message: Message) -> bool:
        """True if a message is the reply to a request of ours."""
        return message.is_response and message.id in self._open and message.to == self._sender

    def answered(self, reply: Message, domain: str) -> SubscriptionStep:
        """The other domain replied."""
        assert reply.id is not None
        upstream = self._open.get(reply.id)
        if upstream is None or (domain and upstream.domain != domain):
            return SubscriptionStep()
        code = code_of(reply) or Code.BAD_REPLY.status
        if code < _FINAL:
            return SubscriptionStep()
        self._close(reply.id)
        if upstream.wish is None:
            self._renewed(upstream, frozenset(map(key_or_refuse, upstream.urls)) if code >= 300 else _refused_in(reply))
            return SubscriptionStep()
        wish = upstream.wish
        if code >= 300:
            # Who has no right to the new addresses may hear those that this node has already.
            rest = _without(wish, upstream.urls)
            if Code.POLICY.status != code or not rest.urls:
                return SubscriptionStep(refused=[(wish, code, _reason_of(reply))])
            return self._settle(upstream.domain, rest, upstream.deadline)
        refused = _refused_in(reply)
        held = self._held.setdefault(upstream.domain, {})
        for url in upstream.urls:
            key = key_or_refuse(url)
            if key not in refused:
                held[key] = url
                self._doubtful.discard(key)
        rest = _without(wish, [url for url in upstream.urls if key_or_refuse(url) in refused])
        if not rest.urls:
            return SubscriptionStep(refused=[(rest, Code.NOT_OWNER.status, Code.NOT_OWNER.word)])
        return self._settle(upstream.domain, rest, upstream.deadline)

    def _renewed(self, upstream: _Upstream, refused: Collection[str]) -> None:
        """A renewal was answered. What was refused is renewed at the next chance, and asked for with the next wish."""
        held = self._held.get(upstream.domain, {})
        for key in map(key_or_refuse, upstream.urls):
            if key in held and key in refused:
                self._doubtful.add(key)
            else:
                self._doubtful.discard(key)

    def _settle(self, domain: str, wish: Wish, deadline: float) -> SubscriptionStep:
        """Grant a wish if this node hears all that it names; ask for the rest first.

        The rest may be asked for twice: the object may be deleted while the first answer is on its way.
        """
        held = self._held.get(domain, {})
        new = [url for url in wish.urls if (key := key_or_refuse(url)) not in held or key in self._doubtful]
        if not new:
            return SubscriptionStep(granted=[wish])
        return SubscriptionStep(upstream=[self._request("subscribe", domain, new, wish, deadline)])

    def restore(self, urls: list[str]) -> None:
        """Listeners came back from the store: hold what they listen to; it is renewed when the links are up."""
        for url in urls:
            self._held.setdefault(self._home_of(url), {})[key_or_refuse(url)] = url

    def expired(self, now: float) -> list[tuple[Wish, int, str]]:
        """Wishes whose answer did not come."""
        late = [id_ for id_, upstream in self._open.items() if upstream.deadline <= now]
        wishes = [self._close(id_).wish for id_ in late]
        return [(wish, Code.GATEWAY_TIMEOUT.status, Code.GATEWAY_TIMEOUT.word) for wish in wishes if wish is not None]

    def _requests(self, type_: str, domain: str, urls: Iterable[str], now: float) -> Iterator[Message]:
        """As many requests as it takes: the other node refuses one that names too much."""
        named: list[str] = []
        chars = 0
        for url in urls:
            if named and (len(named) >= RESOURCES_ENTRIES or chars + len(url) > _REQUEST_CHARS):
                yield self._request(type_, domain, named, None, now + _ANSWER_SECONDS)
                named, chars = [], 0
            named.append(url)
            chars += len(url)
        if named:
            yield self._request(type_, domain, named, None, now + _ANSWER_SECONDS)

    def _request(self, type_: str, domain: str, urls: list[str], wish: Wish | None, deadline: float) -> Message:
        message = codec.build(
            id=next(self._ids),
            type=type_,
            from_=self._sender,
            to=f"domain://msg-node.{domain}/sm",
            body={"resources": urls, "source": self._node},
        )
        assert message.id is not None
        self._open[message.id] = _Upstream(domain, tuple(urls), wish, deadline)
        if wish is not None:
            self._asked_by[wish.sid] += wish.size
        return message

    def _close(self, id_: bytes) -> _Upstream:
        """A request is not under way any more."""
        upstream = self._open.pop(id_)
        wish = upstream.wish
        if wish is not None:
            self._asked_by[wish.sid] -= wish.size
            if not self._asked_by[wish.sid]:
                del self._asked_by[wish.sid]
        return upstream

    def _named(self, members: Members, domain: str, *names: str) -> tuple[str, ...]:
        texts = dict.fromkeys(texts_of(members, *names))
        resource = text_of(members, "resource")
        if resource:
            texts.update(
                dict.fromkeys(expand(resource, texts_of(members, "childrenResources", "children"), is_owner=False))
            )
        if not texts:
            raise PeerError(Code.BAD_BODY, "no resource is named")
        if any(self._home_of(text) != domain for text in texts):
            raise PeerError(Code.SPOOFED_SOURCE, "a resource is not of the domain that is asked")
        return tuple(texts)


def _kept(request: Message, members: Members) -> Message:
    """Return a request with only what its answer needs; the rest of its body may be as long as a frame."""
    body = b'{"detail":true}' if members.get("detail") is True else b""
    return Message(request.id, request.type, request.from_, request.to, body, b"")


def _without(wish: Wish, urls: Iterable[str]) -> Wish:
    """A wish without some of its addresses: they are refused."""
    gone = frozenset(urls)
    rest = tuple(url for url in wish.urls if url not in gone)
    return replace(wish, urls=rest, refused=(*wish.refused, *(url for url in wish.urls if url in gone)))


def _refused_in(reply: Message) -> frozenset[str]:
    """Keys of the addresses that the other domain lists as refused."""
    try:
        listed = texts_of(object_of(codec.body_members(reply.body), "value"), "refused")
        return frozenset(key_or_refuse(text) for text in listed)
    except PeerError:
        return frozenset()


def _reason_of(reply: Message) -> str:
    reason = codec.body_members(reply.body).get("reason")
    return reason if isinstance(reason, str) else Code.BAD_REPLY.word
