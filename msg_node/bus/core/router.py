"""The routing decision about one message. Pure look-ups, a handful of dictionary hits each.

Order: services, owner and listeners, the session above, learned addresses, another domain, refusal. Source: message
    specification, section 20.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from enum import Enum
from typing import NamedTuple, Protocol

from msg_node.addresses.core.allocation import is_below_any
from msg_node.addresses.core.objects import NOBODY, OBSERVERS, ObjectRights, Part, part_of
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.links import is_node
from msg_node.kernel.registrations import Index, user_named
from msg_node.kernel.runtime_address import agent_of
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.limits import LEARNED_ADDRESSES, LEARNED_PER_SESSION, LEARNED_SECONDS
from protofly.message import Message

_OWNER_SUFFIXES = ("/subscription", "/status", "/inbox")
_EVENT_TYPES = frozenset({"update", "event", "response"})
_EVENT_FORMS = frozenset({"update", "create", "event"})
_REGISTRATION = "/registration"
_THINGS = "thing://"


SOMEWHERE = "?"
"""Stands for the domain of a user who has to be found first: no domain is called so."""


class Deliver(NamedTuple):
    """Queue for sessions (positive numbers) and links (negative numbers): at least one, each once."""

    numbers: tuple[int, ...]


class ToDomain(NamedTuple):
    """Send to another domain, and queue for those of ours who subscribed to the same address."""

    domain: str
    numbers: tuple[int, ...] = ()


class Park(NamedTuple):
    """Keep an action until its recipient has done it. `domain` is the recipient's, "" for one of ours."""

    domain: str


PARK_HERE = Park("")


class Refuse(NamedTuple):
    """Answer with an error; `value` is what its sender may know besides."""

    code: Code
    value: dict[str, object] | None = None


class Fixed(Enum):
    """Decisions without details."""

    SERVE = "serve"
    """Ask the service of this node that has the address."""
    SERVE_SESSION = "serve-session"
    """Ask the service of `mn:/session`."""
    FIND_USER = "find-user"
    """Ask the global registry where the user is."""
    FIND_NODE = "find-node"
    """Ask the directory which node of our domain has the address."""
    DROP = "drop"
    """Do nothing: an event without listeners."""


Decision = Deliver | ToDomain | Park | Refuse | Fixed

SERVE, SERVE_SESSION, DROP = Fixed.SERVE, Fixed.SERVE_SESSION, Fixed.DROP
FIND_USER, FIND_NODE = Fixed.FIND_USER, Fixed.FIND_NODE
"""Before Python 3.12 a member costs ten times as much by way of its enumeration."""
_NOT_REPORTER = Refuse(Code.NOT_OWNER)
_NO_ROUTE = Refuse(Code.NO_ROUTE)


def parked(message: Message, decision: Decision) -> Decision:
    """The decision about an action of a session: it is parked, unless it is for a service or a user to be found."""
    if decision is SERVE or decision is FIND_USER or not message.is_action:
        return decision
    return Park(decision.domain) if type(decision) is ToDomain else PARK_HERE


def here_only(decision: Decision) -> Decision:
    """A decision without its part abroad, for what a guest sends.

    Raises:
        PeerError: TRANSIT when there is no other part.
    """
    if type(decision) is ToDomain and not decision.numbers:
        raise PeerError(Code.TRANSIT, "messages of other domains are not carried on")
    if isinstance(decision, Deliver | ToDomain):
        numbers = tuple([number for number in decision.numbers if number > 0 or is_node(number)])
        return Deliver(numbers) if numbers else DROP
    return decision


class Learned:
    """Addresses that nobody owns, by the session that last used them as sender. Never overrides an owner."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._of: dict[int, OrderedDict[str, None]] = {}

    def learn(self, key: str, sid: int, now: float) -> None:
        """A session spoke as `key`; `now` is seconds since the Unix epoch. It makes room among its own names first."""
        known = self._known.get(key)
        if known is not None and known[0] != sid:
            self._unlearn(key, known[0])
        names = self._of.setdefault(sid, OrderedDict())
        names[key] = None
        names.move_to_end(key)
        self._known[key] = (sid, now + LEARNED_SECONDS)
        self._known.move_to_end(key)
        if len(names) > LEARNED_PER_SESSION:
            oldest, _ = names.popitem(last=False)
            del self._known[oldest]
        elif len(self._known) > LEARNED_ADDRESSES:
            oldest, (learner, _) = self._known.popitem(last=False)
            self._unlearn(oldest, learner)

    def find(self, key: str, now: float) -> int | None:
        """The session that spoke as `key` within the last hour."""
        found = self._known.get(key)
        return found[0] if found is not None and found[1] > now else None

    def forget(self, sid: int) -> None:
        """A session has ended."""
        for key in self._of.pop(sid, ()):
            del self._known[key]

    def _unlearn(self, key: str, sid: int) -> None:
        names = self._of[sid]
        del names[key]
        if not names:
            del self._of[sid]


class Decisions(Protocol):
    """Decides what becomes of messages."""

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        """See `Router.decide`."""


class Router:
    """Decides what becomes of a message. It changes nothing: who reads the same tables twice gets the same decision.

    Args:
        serves: Whether a canonical key is one of the node's own services.
        services: Keys of those that have one: they are known at a glance.
    """

    def __init__(
        self, state: BusTables, *, serves: Callable[[str], bool], services: Container[str] = frozenset()
    ) -> None:
        self._state = state
        self._owner = state.owners.owner
        self._targets = state.listeners.targets
        self._serves = serves
        self._services = services
        self._destination_of = state.interworking.destination_of
        self._rights = ObjectRights(state)
        self._users = state.users
        self.learned = Learned()

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        """Decide what becomes of a message whose sender has been checked.

        Args:
            message: It may come from anywhere.
            origin: Number of the session or link that it came from, which gets no copy; 0 is the node itself.
            now: Seconds since the Unix epoch.
            may_park: Actions of sessions are parked, wherever their recipient is.

        Raises:
            PeerError: BAD_HEADER when `to` is no address.

        Source: message specification, section 20.2.
        """
        if may_park and message.peek.message_class and origin > 0:
            return parked(message, self.decide(message, origin, now, may_park=False))
        key = message.to_key
        if key in self._services:
            return SERVE
        owner = self._owner(key)
        listeners = self._targets(key)
        if listeners:
            return self._route_listed(message, key, origin, owner, listeners)
        if owner is not None:
            return Deliver((owner,)) if owner != origin else _nowhere(message)
        return self._route_unlisted(message, key, origin, now)

    def _route_listed(
        self, message: Message, key: str, origin: int, owner: int | None, listeners: tuple[int, ...]
    ) -> Decision:
        """To its listeners here; what one of us sends to an object of another domain goes to that domain as well."""
        part = part_of(key)
        if part is not None and not (part.is_by_form and self._has_own_rules(key, owner)):
            audience = self._rights.audience(message, part, origin, listeners)
            if audience is not OBSERVERS:
                return _NOT_REPORTER if audience is NOBODY else self._route_to_reporter(message, key, part, origin)
        if owner is None and key.startswith(_THINGS) and domain_of(key) in self._state.domains:
            return self._route_thing(message, key, origin, listeners)
        if owner is not None and message.id is not None and message.type not in _EVENT_TYPES:
            if owner == origin:
                return _nowhere(message)
            listeners = (owner,)
        elif owner is not None and owner not in listeners:
            listeners = (owner, *listeners)
        if origin in listeners and not self._hears_itself(origin):
            listeners = tuple([number for number in listeners if number != origin])
        is_news_of_our_registry = origin == 0 and key.endswith(_REGISTRATION)  # of any owner
        if origin >= 0 and not is_news_of_our_registry:
            domain = self._destination_of(key)
            if domain and domain not in self._state.domains:
                return ToDomain(domain, listeners)
        return Deliver(listeners) if listeners else DROP

    def _has_own_rules(self, key: str, owner: int | None) -> bool:
        """True if an address that looks like a child is an entity of its own, or belongs to a thing of ours."""
        return owner is not None or (key.startswith(_THINGS) and domain_of(key) in self._state.domains)

    def _route_to_reporter(self, message: Message, key: str, part: Part, origin: int) -> Decision:
        """Route what observers must not get to the reporter of the object: a session of ours, or its domain."""
        domain = self._destination_of(key)
        if domain and domain not in self._state.domains:
            return ToDomain(domain) if origin > 0 else _nowhere(message)
        reporter = self._state.holders.reporter_of(part.object_key)
        if reporter is None or reporter < 0 or reporter == origin:
            return _nowhere(message)
        return Deliver((reporter,))

    def _route_unlisted(self, message: Message, key: str, origin: int, now: float) -> Decision:
        domain = self._destination_of(key)
        if domain and domain not in self._state.domains:
            guest = self.learned.find(key, now)
            return ToDomain(domain) if guest is None else Deliver((guest,))
        if key == "mn:/session":
            return SERVE_SESSION
        if self._serves(key):
            return SERVE
        found = self._session_for(message, key, now)
        if found is not None and found != origin:
            return Deliver((found,))
        user = user_named(key) if self._state.rules.resolves_users else None
        return _nowhere(message) if user is None else self._route_user(message, user, origin)

    def _route_user(self, message: Message, user: tuple[Index, str], origin: int) -> Decision:
        """To the live hyperties of a user, where the registry has some. Source: message specification, section 20.4."""
        index, key = user
        domain = domain_of(key)
        if domain and domain not in self._state.domains:
            return ToDomain(domain)
        numbers = self._users.live_numbers(self._users.hyperties_of([user]), origin)
        if numbers:
            return Deliver(numbers)
        return FIND_USER if index is Index.GUID and origin else _nowhere(message)

    def _hears_itself(self, origin: int) -> bool:
        """True if a session gets copies of its own messages. Source: message specification, section 20.5."""
        if not self._state.rules.echoes:
            return False
        session = self._state.sessions.get(origin)
        return session is not None and session.dialect.reads_desc

    def _route_thing(self, message: Message, key: str, origin: int, listeners: tuple[int, ...]) -> Decision:
        """Route messages of an agent about its things to all listeners, and those of others to the agent alone.

        Source: message specification, section 19.1.
        """
        agent = self._agent(key)
        is_of_agent = agent == origin or (is_node(origin) and _is_of_agent(message, key))
        if origin == 0 or (is_of_agent and message.type in _EVENT_FORMS):
            heard = tuple([number for number in listeners if number != origin])
            return Deliver(heard) if heard else DROP
        if message.is_class_event:
            return _NOT_REPORTER
        return _nowhere(message) if agent in (None, origin) else Deliver((agent,))

    def _agent(self, key: str) -> int | None:
        """Return the agent of a thing. Source: message specification, section 19."""
        return self._state.owners.owner(agent_of(key))

    def _session_for(self, message: Message, key: str, now: float) -> int | None:
        below = self._state.sessions.below(key)
        if below is not None:
            return below
        if key.endswith(_OWNER_SUFFIXES):
            owner = self._state.owners.owner(key.rpartition("/")[0])
            if owner is not None:
                return owner
        if key.startswith(_THINGS) and not message.is_class_event:
            return self._agent(key)
        return self.learned.find(key, now)


def _is_of_agent(message: Message, key: str) -> bool:
    """True for what the agent of a thing sends from another node of ours, which has judged who it is."""
    return message.is_class_event or is_below_any(message.from_key, {agent_of(key)})


def _nowhere(message: Message) -> Decision:
    """Nobody is there, or only who asks: a request is answered, all else is dropped.

    An event that nobody hears is no failure, and a sender that wants a receipt for it gets one. Source: message
    specification, section 19.1.
    """
    is_refused = message.expects_reply and not message.is_class_event
    return _NO_ROUTE if is_refused else DROP
