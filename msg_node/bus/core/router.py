"""Where one message goes. Pure look-ups, a handful of dictionary hits each.

Order: services, owner and listeners, the session above, learned addresses, another domain, refusal. Source: message
    specification, section 20.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from enum import Enum
from typing import NamedTuple

from msg_node.addresses.core.objects import NOBODY, OBSERVERS, ObjectRights, Part, part_of
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.registrations import Index, user_named
from msg_node.kernel.runtime_address import agent_of
from protofly.address import destination_of, domain_of
from protofly.errors import Code
from protofly.limits import LEARNED_ADDRESSES, LEARNED_PER_SESSION, LEARNED_SECONDS
from protofly.message import Message

_OWNER_SUFFIXES = ("/subscription", "/status", "/inbox")
_EVENT_TYPES = frozenset({"update", "event", "response"})
_EVENT_FORMS = frozenset({"update", "create", "event"})
_REGISTRATION = "/registration"
_THINGS = "thing://"


SOMEWHERE = "?"
"""The domain of a user who has to be found first: none that there is."""


class Place(Enum):
    """Kinds of destinations."""

    SESSION_VERBS = "session-verbs"
    SERVICE = "service"
    USER = "user"
    LISTENERS = "listeners"
    FOREIGN = "foreign"
    BOTH = "both"
    REFUSED = "refused"
    DROPPED = "dropped"


LISTENERS, SERVICE = Place.LISTENERS, Place.SERVICE
"""Where nearly every message goes. Before Python 3.12 a member costs ten times as much by way of its enumeration."""


class Route(NamedTuple):
    """A destination.

    `numbers` are sessions (positive) and links (negative), `domain` is set for FOREIGN and BOTH, and `SOMEWHERE` for
    USER; `code` is set for REFUSED.
    """

    place: Place
    numbers: tuple[int, ...] = ()
    domain: str = ""
    code: Code | None = None


_SESSION_VERBS = Route(Place.SESSION_VERBS)
_SERVICE = Route(SERVICE)
_USER = Route(Place.USER, domain=SOMEWHERE)
_DROPPED = Route(Place.DROPPED)
_NOT_REPORTER = Route(Place.REFUSED, code=Code.NOT_OWNER)


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


class Delivery:
    """Routes by the node's tables.

    Args:
        serves: Whether a canonical key is one of the node's own services.
        services: Keys of those that have one: they are known at a glance.
    """

    def __init__(
        self, state: BusTables, *, serves: Callable[[str], bool], services: Container[str] = frozenset()
    ) -> None:
        self._state = state
        self._serves = serves
        self._services = services
        self._destination_of = state.interworking.destination_of if state.interworking else destination_of
        self._rights = ObjectRights(state)
        self._users = state.users
        self._reporter_only = state.rules.reporter_only
        self.learned = Learned()

    def route(self, message: Message, origin: int, now: float) -> Route:
        """Find where `message` goes.

        `origin` is the number of the session or link that it came from, which gets no copy; 0 is the node itself.

        Raises:
            PeerError: BAD_HEADER when `to` is no address.
        """
        key = message.to_key
        if key in self._services:
            return _SERVICE
        state = self._state
        owner = state.owners.owner(key)
        listeners = state.listeners.targets(key)
        if listeners:
            return self._route_listed(message, key, origin, owner, listeners)
        if owner is not None:
            return Route(LISTENERS, (owner,)) if owner != origin else _nowhere(message)
        return self._route_unlisted(message, key, origin, now)

    def _route_listed(
        self, message: Message, key: str, origin: int, owner: int | None, listeners: tuple[int, ...]
    ) -> Route:
        """To its listeners here; what one of us sends to an object of another domain goes to that domain as well."""
        part = part_of(key)
        if part is not None and self._reporter_only and not (part.is_by_form and self._has_own_rules(key, owner)):
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
        is_news_of_our_registry = origin == 0 and key.endswith(_REGISTRATION)  # whoever the entry's address belongs to
        if origin >= 0 and not is_news_of_our_registry:
            domain = self._destination_of(key)
            if domain and domain not in self._state.domains:
                return Route(Place.BOTH if listeners else Place.FOREIGN, listeners, domain)
        return Route(LISTENERS, listeners) if listeners else _DROPPED

    def _has_own_rules(self, key: str, owner: int | None) -> bool:
        """Whether an address that looks like a child is an entity of its own, or belongs to a thing of ours."""
        return owner is not None or (key.startswith(_THINGS) and domain_of(key) in self._state.domains)

    def _route_to_reporter(self, message: Message, key: str, part: Part, origin: int) -> Route:
        """What observers are not to hear goes to who answers for the object: a session of ours, or its domain."""
        domain = self._destination_of(key)
        if domain and domain not in self._state.domains:
            return Route(Place.FOREIGN, domain=domain) if origin > 0 else _nowhere(message)
        reporter = self._state.holders.reporter_of(part.object_key)
        if reporter is None or reporter < 0 or reporter == origin:
            return _nowhere(message)
        return Route(LISTENERS, (reporter,))

    def _route_unlisted(self, message: Message, key: str, origin: int, now: float) -> Route:
        domain = self._destination_of(key)
        if domain and domain not in self._state.domains:
            guest = self.learned.find(key, now)
            return Route(Place.FOREIGN, domain=domain) if guest is None else Route(LISTENERS, (guest,))
        if key == "mn:/session":
            return _SESSION_VERBS
        if self._serves(key):
            return _SERVICE
        found = self._session_for(message, key, now)
        if found is not None and found != origin:
            return Route(LISTENERS, (found,))
        user = user_named(key) if self._state.rules.resolves_users else None
        return _nowhere(message) if user is None else self._route_user(message, user, origin)

    def _route_user(self, message: Message, user: tuple[Index, str], origin: int) -> Route:
        """To the live hyperties of a user, where the registry has some. Source: message specification, section 20.4."""
        index, key = user
        domain = domain_of(key)
        if domain and domain not in self._state.domains:
            return Route(Place.FOREIGN, domain=domain)
        numbers = self._users.live_numbers(self._users.hyperties_of([user]), origin)
        if numbers:
            return Route(LISTENERS, numbers)
        return _USER if index is Index.GUID and origin else _nowhere(message)

    def _hears_itself(self, origin: int) -> bool:
        """Whether a session gets copies of its own. Source: message specification, section 20.5."""
        if not self._state.rules.echoes:
            return False
        session = self._state.sessions.get(origin)
        return session is not None and session.dialect.reads_desc

    def _route_thing(self, message: Message, key: str, origin: int, listeners: tuple[int, ...]) -> Route:
        """What an agent says about its things goes to all who listen; what others say to them, to the agent alone.

        Source: message specification, section 19.1.
        """
        agent = self._agent(key)
        if origin == 0 or (agent == origin and message.type in _EVENT_FORMS):
            heard = tuple([number for number in listeners if number != origin])
            return Route(LISTENERS, heard) if heard else _DROPPED
        if message.is_class_event:
            return _NOT_REPORTER
        return _nowhere(message) if agent in (None, origin) else Route(LISTENERS, (agent,))

    def _agent(self, key: str) -> int | None:
        """Who answers for a thing. Source: message specification, section 19."""
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


def _nowhere(message: Message) -> Route:
    """Nobody is there, or only who asks: a request is answered, all else is dropped.

    An event that nobody hears is no failure, and whoever wants a receipt for it gets one. Source: message
    specification, section 19.1.
    """
    is_refused = message.expects_reply and not message.is_class_event
    return Route(Place.REFUSED, code=Code.NO_ROUTE) if is_refused else _DROPPED
