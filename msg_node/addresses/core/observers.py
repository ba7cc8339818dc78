"""Who may observe which object: what its reporter has said, as the node has seen it pass.

An observer asks by `subscribe` to `O/subscription`, and the reporter's 2xx reply to that very request is its consent; a
reply to anything else is none. The reporter takes an observer off by `unsubscribe` to the observer, with `O` as
`resource`, or by `unsubscribe` at `/sm` with the observer as `source`. From then on the observer hears nothing of the
object and says nothing to it, and may not listen again before the reporter accepts it anew.

Each node does so for its own runtimes. What crosses a link is that `unsubscribe` itself, and only the domain of an
object says it. Source: message specification, sections 8.5, 9.1 and 9.3; feature row DS-13.
"""

from __future__ import annotations

from collections import OrderedDict

from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.runtime_address import runtime_part
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.answer_codes import code_of
from protofly.errors import Code, PeerError
from protofly.limits import CONSENT_REQUESTS_PER_SENDER, CONSENT_SENDERS
from protofly.message import Message

SUBSCRIPTION = "/subscription"
"""How addresses end at which objects are observed."""
_SUBSCRIPTION_SERVICE = "/sm"
_SEVERAL = ""
_Asked = tuple[str, bytes | None, str]
"""Who asked, with which id, whom; what has no id is never remembered, and so answered by nothing."""


class Observers:
    """Follows what reporters and observers of objects say to each other."""

    def __init__(self, state: AddressTables) -> None:
        self._state = state
        self._asked: dict[_Asked, tuple[int, str]] = {}
        self._asked_by: OrderedDict[int, OrderedDict[_Asked, None]] = OrderedDict()

    def passes(self, message: Message, number: int) -> None:
        """A message passes by which an observer may come or go; its sender has been checked.

        Those are requests of type `unsubscribe`, messages to an address of `SUBSCRIPTION`, and replies from one.

        Raises:
            PeerError: NOT_OWNER when somebody takes an observer off who is not the reporter; QUOTA, OVERLOAD.
        """
        key = message.to_key
        if message.type == "response":
            self._replied(message)
        elif key.endswith(SUBSCRIPTION):
            self._remember(message, number)
        elif message.type == "unsubscribe":
            self._took_off(message, key, number)

    def _remember(self, request: Message, number: int) -> None:
        """Somebody asks a reporter: a reply counts only if nothing but a `subscribe` may be what it answers."""
        if request.id is None:
            return
        key = request.from_key, request.id, request.to_key
        _, before = self._asked.get(key, (number, request.type))
        self._asked[key] = number, request.type if before == request.type else _SEVERAL
        own = self._asked_by.setdefault(number, OrderedDict())
        own[key] = None
        self._asked_by.move_to_end(number)
        if len(own) > CONSENT_REQUESTS_PER_SENDER:
            del self._asked[own.popitem(last=False)[0]]
        if len(self._asked_by) > CONSENT_SENDERS:
            for old in self._asked_by.popitem(last=False)[1]:
                del self._asked[old]

    def _answered(self, key: _Asked) -> str:
        """The type of the request that is answered; "" when that is not known, or may be several."""
        number, type_ = self._asked.pop(key, (0, _SEVERAL))
        own = self._asked_by.get(number)
        if own is not None:
            own.pop(key, None)
            if not own:
                del self._asked_by[number]
        return type_

    def _took_off(self, message: Message, key: str, number: int) -> None:
        if key.endswith(_SUBSCRIPTION_SERVICE) or self._is_own(number, key):
            return
        try:
            resource = canonical_key(codec.body_text(bytes(message.peek.resource)))
        except PeerError:
            return  # the recipient of the message says what is wrong with it
        object_key = self._state.observer_rights.object_at(resource)
        domain = self._state.senders.other_domain_of(number)
        home = self._state.interworking.home_of(object_key)
        if self._is_reporter(number, object_key, domain):
            self.take_off(object_key, key, by=domain or self._runtime_of(number))
        elif (
            self._state.holders.reporter_of(object_key) is not None
            or (home and home not in self._state.domains)
            or domain
        ):
            raise PeerError(Code.NOT_OWNER, "only the reporter of an object takes observers off")

    def _replied(self, reply: Message) -> None:
        """Take a reporter's word about a request to observe."""
        from_key, code = reply.from_key, code_of(reply)
        if code < 200:
            return  # a promise, or nothing that can be read: the answer is still to come
        type_ = self._answered((reply.to_key, reply.id, from_key))
        if type_ != "subscribe" or not self._state.observer_rights.matters:
            return
        if code < 300:
            object_key = from_key.removesuffix(SUBSCRIPTION)
            observer = runtime_part(reply.to_key) or reply.to_key
            self._state.observer_rights.consents.grant(object_key, observer)
            self._state.observer_rights.expulsions.readmit(object_key, observer)
            domain = self._state.interworking.home_of(observer)
            if domain not in self._state.domains:
                self._readmit_of(object_key, domain)

    def take_off(self, object_key: str, observer: str, *, by: str) -> None:
        """End what an observer hears of an object, and keep it off.

        Raises:
            PeerError: QUOTA, OVERLOAD: it hears nothing more, and may subscribe again.
        """
        state = self._state
        sid = state.holders.speaker_of(observer)
        if sid is not None and sid == state.holders.reporter_of(object_key):
            return
        session = None if sid is None else state.sessions.get(sid)
        runtime = runtime_part(observer) if session is None else session.runtime_key
        state.observer_rights.consents.withdraw(object_key, (observer, runtime))
        if sid is not None:
            state.listeners.remove_at(sid, object_key)
        domain = state.interworking.home_of(observer)
        if domain not in state.domains:
            self._take_off_abroad(object_key, domain)
        state.observer_rights.expulsions.expel(ExpulsionRow(object_key, observer, runtime, by))

    def _take_off_abroad(self, object_key: str, domain: str) -> None:
        """Unsubscribe a domain without an accepted observer, where consent is required."""
        state = self._state
        if not state.rules.require_consent:
            return
        number = state.links.known_number(domain)
        home_of = state.interworking.home_of
        if not any(home_of(observer) == domain for observer in state.observer_rights.consents.observers(object_key)):
            state.listeners.remove_at(number, object_key)

    def _readmit_of(self, object_key: str, domain: str) -> None:
        """Which runtime of another domain a hyperty belongs to is known there: here the domain's word counts."""
        for key in list(self._state.observer_rights.expulsions.keys(object_key)):
            if self._state.interworking.home_of(key) == domain:
                self._state.observer_rights.expulsions.readmit(object_key, key)

    def _is_reporter(self, number: int, object_key: str, domain: str) -> bool:
        if number < 0:
            is_theirs = self._state.interworking.home_of(object_key) == domain
            return is_theirs and self._state.owners.owner(object_key) is None
        return self._state.holders.reporter_of(object_key) == number

    def _is_own(self, number: int, key: str) -> bool:
        """True if a session says something to itself, or a link to what is not ours."""
        if number < 0:
            return domain_of(key) not in self._state.domains
        return self._state.holders.speaker_of(key) == number

    def _runtime_of(self, number: int) -> str:
        session = self._state.sessions.get(number)
        return "" if session is None else session.runtime_key
