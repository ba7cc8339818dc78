"""The step `schema`: what a reporter writes is held against the schema that it has named itself.

A reporter names the schema of an object when it subscribes to it at `/sm`, and when it invites somebody to it. The
schema is then read from its catalogue, beside the traffic; changes are checked from the moment on at which it is here.
Children and the changes of other domains' objects are not checked: their reporters have other nodes.
Source: feature row DS-21; message specification, sections 8.1, 9.2 and 9.4.
"""

from __future__ import annotations

from collections import OrderedDict

from federation.links.link_context import Refusal
from msg_node.kernel.catalogue_questions import schema_question
from msg_node.kernel.counts import SchemaCount
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.resources import key_or_refuse, text_of
from msg_node.registries.background_reading import BackgroundReading, ReadingCounts
from msg_node.registries.core.tables import RegistryTables
from protofly import codec
from protofly.counters import Counters
from protofly.errors import PeerError
from protofly.limits import SCHEMA_OBJECTS
from protofly.message import Message

_CHANGES = "/changes"
_SUBSCRIPTION = "/subscription"
_NAMES_SCHEMA = b'"schema"'


class Validation:
    """Remembers which object has which schema, and judges changes.

    Attributes:
        counters: Schemas read, and why others were not.
        run: Reads schemas until cancelled.
    """

    def __init__(self, state: RegistryTables) -> None:
        self._state = state
        self._services = frozenset(f"domain://msg-node.{domain}/sm" for domain in state.domains)
        self._named: OrderedDict[tuple[int, str], str] = OrderedDict()  # session, object key -> schema address
        self.counters = Counters(SchemaCount)
        counts = ReadingCounts(SchemaCount.READ, SchemaCount.NOT_READ, SchemaCount.NOT_ASKED)
        self._schemas = BackgroundReading[DataSchema]("schema", schema_question, counts, self.counters)
        self.run = self._schemas.run

    def step(self, message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        """See `middleware.MessageStep`."""
        type_ = message.type
        if type_ == "update":
            return self._judge(message, sid) if message.to.endswith(_CHANGES) else None
        if type_ in ("subscribe", "create") and _NAMES_SCHEMA in message.body:
            self._learn(message, sid)
        return None

    def _learn(self, message: Message, sid: int) -> None:
        """A reporter names the schema of an object of its own."""
        try:
            members = codec.body_members(message.body)
            address = text_of(members, "schema")
            if message.type == "subscribe":
                resource = text_of(members, "resource")
                key = key_or_refuse(resource) if resource and message.to_key in self._services else ""
            else:
                key = message.from_key.removesuffix(_SUBSCRIPTION) if message.from_key.endswith(_SUBSCRIPTION) else ""
            if not key or not address or self._state.owners.owner(key) not in (None, sid):
                return
            schema_question(address, message.from_)
        except PeerError:
            return  # the recipient of the message says what is wrong with it
        self._named[sid, key] = address
        self._named.move_to_end((sid, key))
        if len(self._named) > SCHEMA_OBJECTS:
            self._named.popitem(last=False)
        self._schemas.find(address, message.from_)

    def _judge(self, message: Message, sid: int) -> Refusal | None:
        address = self._named.get((sid, message.to_key.removesuffix(_CHANGES)))
        if address is None:
            return None
        schema = self._schemas.find(address, message.from_)
        if schema is None:
            return None
        try:
            schema.check_change(codec.body_members(message.body), len(message.body))
        except PeerError as exc:
            return Refusal(exc.code, {"schema": address, "detail": exc.detail})
        return None
