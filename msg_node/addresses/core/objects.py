"""Who may say what to the observers of a data object, and who is asked in their place.

An object `O` has four kinds of addresses that others than its owner listen to: `O/changes`; its children
`O/children/<name>`, in the oldest spelling `O/<name>`; and `O/status` and `O/registration`, which every entity has.
Silence means no. In this order:

1. The reporter of the object (the node itself; the session that owns `O`, or that takes its subscriptions; the domain
   of a foreign object) says to them what it likes.
2. Questions and answers of anybody else go to the reporter, never to observers.
3. Observers create children, and say application events to them. The creator of a child names itself.
4. A child is changed and deleted by the observer that created it: `body.resource` before `#` is the sender. Who never
   observed has created nothing, whatever it says, and who is an observer no more speaks no more.
5. All else is refused, types that nobody knows included.

The same holds for sessions and for links: the number that a message came from is what is asked about.
Source: message specification, sections 9.4, 9.5 and 9.8.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.directories import Source
from msg_node.kernel.resources import Shape, is_child_form, object_of_events, shape_of
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.errors import PeerError
from protofly.message import Message
from protofly.remembered import remembered

_CHANGES = "/changes"
_STATES = ("/status", "/registration")
_THINGS = "thing://"
_PARTS_REMEMBERED = 16_384
_QUESTIONS = frozenset({"read", "execute", "response"})
_ADDITIONS = frozenset({"create", "event"})
_REWRITES = frozenset({"update", "delete"})


class PartKind(Enum):
    """The part of an object that an address stands for."""

    CHANGES = "changes"
    CHILD = "child"
    STATE = "state"
    THING = "thing"


CHANGES, CHILD, STATE, THING = PartKind.CHANGES, PartKind.CHILD, PartKind.STATE, PartKind.THING
"""Before Python 3.12 a member costs ten times as much by way of its enumeration."""


class Part(NamedTuple):
    """An address that observers listen to: which one, and of which object.

    `is_by_form`: it counts as a child only as long as nobody owns it, since an object may have such an address too.
    """

    kind: PartKind
    object_key: str
    is_by_form: bool = False


class Audience(Enum):
    """The recipients of a message to the address of a part."""

    OBSERVERS = "observers"
    REPORTER = "reporter"
    NOBODY = "nobody"


OBSERVERS, REPORTER, NOBODY = Audience.OBSERVERS, Audience.REPORTER, Audience.NOBODY


@remembered(_PARTS_REMEMBERED)
def part_of(key: str) -> Part | None:
    """Return the part of an object that a canonical key names, None if it names none.

    Events and properties of things of ours have rules of their own (`Router`); these are for those of other domains.
    """
    if key.endswith(_CHANGES):
        return Part(CHANGES, key.removesuffix(_CHANGES))
    base = object_of_events(key)
    if base:
        return Part(CHILD, base)
    if key.endswith(_STATES):
        return Part(STATE, key.rpartition("/")[0])
    if key.startswith(_THINGS):
        return Part(THING, key, is_by_form=True) if shape_of(key) is Shape.BASE else None
    if is_child_form(key):
        return Part(CHILD, key.rpartition("/")[0], is_by_form=True)
    return None


class ObjectRights:
    """Judges messages to the addresses that observers listen to."""

    def __init__(self, tables: AddressTables) -> None:
        self._domains = tables.domains
        self._shares_domain = tables.rules.shares_domain
        self._listeners = tables.listeners
        self._senders = tables.senders
        self._reporter_of = tables.holders.reporter_of
        self._expulsions = tables.observer_rights.expulsions

    def audience(self, message: Message, part: Part, origin: int, listeners: tuple[int, ...]) -> Audience:
        """Decide who gets a message.

        Args:
            message: Its source has been checked.
            part: What its recipient is.
            origin: Number of the session or link that it came from, 0 for the node itself.
            listeners: Who listens to that address.
        """
        kind, object_key, _ = part
        if self._expulsions and self._expulsions.holds(object_key, message.from_key):
            return NOBODY
        if kind is CHILD and message.type == "create" and origin in listeners and _names_sender(message):
            return OBSERVERS  # nearly always
        if self._senders.may_change(origin, object_key, message.from_key):
            return OBSERVERS
        if kind is STATE and self._is_of_nobody(object_key, origin):
            return OBSERVERS
        type_ = message.type
        if type_ in _QUESTIONS or (kind is THING and not message.is_class_event):
            return REPORTER
        if kind is not CHILD:
            return NOBODY
        may = self._names_itself if type_ in _ADDITIONS else self._is_creator if type_ in _REWRITES else None
        if may is None or not self._observes(origin, object_key, listeners):
            return NOBODY
        return OBSERVERS if may(message, origin) else NOBODY

    def _is_of_nobody(self, key: str, origin: int) -> bool:
        """True if nobody speaks for an entity of ours: what one of our sessions says of its state is its own word.

        Never where other nodes serve the domain too: somebody there may speak for it.
        """
        if origin <= 0 or self._shares_domain or self._senders.other_domain_of(origin):
            return False
        return self._reporter_of(key) is None and domain_of(key) in self._domains

    def _observes(self, origin: int, object_key: str, listeners: tuple[int, ...]) -> bool:
        """True if a session or link listens to the object's changes, or to the child that it speaks to."""
        return origin in listeners or self._listeners.listens(origin, object_key + _CHANGES)

    def _names_itself(self, message: Message, origin: int) -> bool:
        """True if a new child names nobody else as its creator. A plain name (`heartbeat`) names nobody."""
        return not message.peek.resource or self._is_creator(message, origin, may_be_plain=True)

    def _is_creator(self, message: Message, origin: int, *, may_be_plain: bool = False) -> bool:
        """True if the resource before `#` is the sender, or an address of the sending session."""
        if _names_sender(message):
            return True
        if _may_repeat(message.body) and codec.repeats_members(message.body):
            return False
        resource = bytes(message.peek.resource)
        if resource == b"null":
            return may_be_plain
        text = codec.body_text(resource)
        creator, _, _ = text.partition("#")
        if ":" not in creator:
            return may_be_plain and bool(text)
        try:
            key = canonical_key(creator)
        except PeerError:
            return False
        return key == message.from_key or (origin > 0 and self._senders.source_of(origin, key) is Source.OWN)


@remembered(_PARTS_REMEMBERED)
def _start_of_names(sender: str) -> bytes:
    """Return the beginning of names of a sender's children in JSON text; no name begins so if the sender has a `#`."""
    return b"#" if "#" in sender else b'"%s#' % sender.encode()


def _names_sender(message: Message) -> bool:
    """True if a body names its sender as the creator, letter for letter and once: others may read the other one."""
    if not bytes(message.peek.resource).startswith(_start_of_names(message.from_)):
        return False
    return not _may_repeat(message.body)


def _may_repeat(body: bytes) -> bool:
    """True if a body could give `resource` more than once: a cheap test that never misses one."""
    return body.count(b'"resource"') > 1 or b"\\u" in body
