"""Runtimes of ours that listen to objects of other domains: requests upstream, answers, renewal, the end of listening.

What is decided is in `core/remote_subscriptions`; here it is sent, committed and answered.
Source: message specification, sections 8.6 and 18.4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from msg_node.addresses.core.remote_subscriptions import RemoteSubscriptions, SubscriptionStep, Wish
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.answers import described
from msg_node.kernel.links import HasLinks
from msg_node.kernel.resources import key_or_refuse, object_of_events, text_of
from msg_node.kernel.results import answer_each
from msg_node.kernel.service import Durability, ServiceResult
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

Apply = Callable[[int, ServiceResult], None]
"""Commits what a step changed and lets its replies leave to a session."""


class ForeignObjects:
    """The subscriptions of this node at other domains.

    Args:
        node: Our node's address, named as the source of refusals.
        outbound: Whose links take requests of the node's own.
        apply: Commits and answers.
    """

    def __init__(
        self,
        node: str,
        state: AddressTables,
        remote: RemoteSubscriptions,
        *,
        outbound: HasLinks,
        apply: Apply,
    ) -> None:
        self._node = node
        self._state = state
        self._remote = remote
        self._outbound = outbound
        self._apply = apply

    def request(self, message: Message, domain: str, sid: int) -> None:
        """A session subscribes to objects of `domain`, or unsubscribes.

        Raises:
            PeerError: BAD_BODY, SPOOFED_SOURCE, NOT_OWNER, POLICY.
        """
        members = codec.request_members(message.body)
        if message.type == "subscribe":
            has_consent = partial(self._state.observer_rights.has_consent, sid)
            now = time.monotonic()
            self._settle(self._remote.subscribe(message, members, sid, domain, now, has_consent=has_consent))
            return
        source = text_of(members, "source")
        sources = {key_or_refuse(source)} if source else None
        for url in self._remote.unsubscribe(members, domain):
            self._state.listeners.remove(sid, key_or_refuse(url), sources)
        self._reply(sid, codec.response(message, 200))
        self.forget_unheard()

    def is_answer(self, message: Message) -> bool:
        """True if a message answers a request of ours."""
        return self._remote.is_answer(message)

    def answered(self, message: Message, domain: str) -> None:
        """Another domain (or our own link, with "") answered."""
        self._settle(self._remote.answered(message, domain))

    def expire(self) -> None:
        """Answer whose request got no answer."""
        late = self._remote.expired(time.monotonic())
        if late:
            self._settle(SubscriptionStep(refused=late))

    def forget_unheard(self) -> None:
        """Unsubscribe in other domains from what nobody here listens to any more."""
        unheard = self._state.listeners.take_unheard()
        if unheard:
            self._forget(unheard)

    def heard_elsewhere(self, key: str) -> None:
        """Only other nodes of our domain listen to a key from now on: they see to it, and unsubscribe."""
        self._remote.forget(key)

    def _forget(self, keys: Iterable[str]) -> None:
        targets = self._state.listeners.targets
        unheard = [key for key in keys if self._remote.has_key(key) and not targets(key)]
        for request in self._remote.nobody_listens(unheard, time.monotonic()) if unheard else []:
            self._send_upstream(request)

    def observed_deletion(self, message: Message, observers: tuple[int, ...]) -> None:
        """End the rights of observers of an object of ours after they were notified of its deletion.

        Other domains listen to it no more.

        Source: message specification, section 9.6.
        """
        object_key = object_of_events(message.to_key)
        if message.to_key == f"{object_key}/changes":
            self._state.observer_rights.object_deleted(object_key, observers)
            self._apply(0, ServiceResult(changes=self._state.take_changes()))

    def object_deleted(self, message: Message, domain: str) -> None:
        """`domain` notifies the observers of an object of its own that it was deleted."""
        object_key = object_of_events(message.to_key)
        home_of = self._state.interworking.home_of
        if object_key and message.to_key.endswith("/changes") and home_of(object_key) == domain:
            self._remote.object_deleted(domain, object_key)

    def link_is_live(self, domain: str) -> None:
        """A link is up (again): renew what we listen to there."""
        for request in self._remote.renew(domain, time.monotonic()):
            self._send_upstream(request)

    def is_wanted(self, domain: str) -> bool:
        """True if runtimes here listen to objects of a domain."""
        return self._remote.holds(domain)

    def restore(self) -> None:
        """After a restart: remember which foreign objects our stored sessions listen to."""
        home_of = self._state.interworking.home_of
        foreign = {
            one.url
            for session in self._state.sessions
            for one in self._state.listeners.subscriptions(session.sid)
            if home_of(one.key) and home_of(one.key) not in self._state.domains
        }
        self._remote.restore(sorted(foreign))

    def _settle(self, step: SubscriptionStep) -> None:
        for upstream in step.upstream:
            self._send_upstream(upstream)
        for wish in step.granted:
            self._grant(wish)
        for wish, status, reason in step.refused:
            self._reply(wish.sid, codec.response(wish.request, status, extra={"reason": reason, "source": self._node}))
            self._forget(map(key_or_refuse, (*wish.urls, *wish.refused)))  # kept for it while it was under way

    def _send_upstream(self, request: Message) -> None:
        refusal = self._outbound.links.send(domain_of(request.to), request)
        if refusal is not None:
            self.answered(codec.refusal(request, refusal.code, source=self._node), "")

    def _grant(self, wish: Wish) -> None:
        if self._state.sessions.get(wish.sid) is None:
            self._forget(map(key_or_refuse, wish.urls))
            return
        wanted = [Subscription(url, key_or_refuse(url), wish.source) for url in wish.urls]
        results: dict[str, Code | None] = {**dict.fromkeys(wish.urls), **dict.fromkeys(wish.refused, Code.NOT_OWNER)}
        try:
            self._state.listeners.add(wish.sid, wanted)
            answer = answer_each(codec.body_members(wish.request.body), results)
            reply = codec.response(wish.request, answer.code, value=answer.value)
        except PeerError as exc:
            reply = codec.refusal(wish.request, exc.code, source=self._node, detail=exc.detail)
            self._forget(map(key_or_refuse, wish.urls))
        self._reply(wish.sid, reply)

    def _reply(self, sid: int, reply: Message) -> None:
        session = self._state.sessions.get(sid)
        if session is not None and session.dialect.reads_desc:
            reply = described(reply)
        changes = self._state.take_changes()
        self._apply(sid, ServiceResult(replies=[reply], changes=changes, durability=Durability.REQUIRED))
