"""The step `schema`: what a reporter writes is held against the schema that it has named itself.

A reporter names the schema of an object when it subscribes to it at `/sm`, and when it invites somebody to it. The
schema is then read from its catalogue, beside the traffic; changes are checked from the moment on at which it is here.
Children and the changes of other domains' objects are not checked: their reporters have other nodes.
Source: feature row DS-21; message specification, sections 8.1, 9.2 and 9.4.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from federation.link_context import Refusal
from msg_node.kernel.catalogue_questions import CatalogueQuestion, schema_question
from msg_node.kernel.counts import SchemaCount
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.resources import key_or_refuse, text_of
from msg_node.registries.core.tables import RegistryTables
from protofly import codec
from protofly.counters import Counters
from protofly.errors import HostError, PeerError
from protofly.limits import (
    CATALOGUE_CACHE_SECONDS,
    CATALOGUE_MISSING_SECONDS,
    INQUIRY_SECONDS,
    SCHEMA_OBJECTS,
    SCHEMAS_KEPT,
)
from protofly.message import Message

logger = logging.getLogger("msg_node")

ReadSchema = Callable[[CatalogueQuestion], Awaitable[DataSchema]]
_CHANGES = "/changes"
_SUBSCRIPTION = "/subscription"
_NAMES_SCHEMA = b'"schema"'
_WAITING = 100
_READERS = 4


@dataclass(slots=True)
class _Known:
    """The cached schema of an address, and until when it is used (monotonic, seconds)."""

    until: float
    schema: DataSchema | None = None


class Validation:
    """Remembers which object has which schema, and judges changes.

    Attributes:
        counters: Schemas read, and why others were not.
    """

    def __init__(self, state: RegistryTables) -> None:
        self._state = state
        self._services = frozenset(f"domain://msg-node.{domain}/sm" for domain in state.domains)
        self._named: OrderedDict[tuple[int, str], str] = OrderedDict()  # session, object key -> schema address
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._wanted, self._coming = trio.open_memory_channel[CatalogueQuestion](_WAITING)
        self.counters = Counters(SchemaCount)

    def step(self, message: Message, sid: int, _roles: frozenset[str], _domain: str, _now: float) -> Refusal | None:
        """See `middleware.Step`."""
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
            question = schema_question(address, message.from_)
        except PeerError:
            return  # the recipient of the message says what is wrong with it
        self._named[sid, key] = address
        self._named.move_to_end((sid, key))
        if len(self._named) > SCHEMA_OBJECTS:
            self._named.popitem(last=False)
        self._want(address, question)

    def _want(self, address: str, question: CatalogueQuestion) -> None:
        """Have a schema read, if it is not known, or not known any more."""
        now = time.monotonic()
        known = self._known.get(address)
        if known is not None and now < known.until:
            return
        try:
            self._wanted.send_nowait(question)
        except trio.WouldBlock:
            self.counters[SchemaCount.NOT_ASKED] += 1
            return
        if known is None:
            known = self._known[address] = _Known(0.0)
            if len(self._known) > SCHEMAS_KEPT:
                self._known.popitem(last=False)
        known.until = math.inf  # until there is an answer

    def _judge(self, message: Message, sid: int) -> Refusal | None:
        address = self._named.get((sid, message.to_key.removesuffix(_CHANGES)))
        if address is None:
            return None
        known = self._known.get(address)
        if known is None or time.monotonic() >= known.until:
            self._want(address, schema_question(address, message.from_))
        if known is None or known.schema is None:
            return None
        try:
            known.schema.check_change(codec.body_members(message.body), len(message.body))
        except PeerError as exc:
            return Refusal(exc.code, {"schema": address, "detail": exc.detail})
        return None

    async def run(self, read: ReadSchema, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read schemas until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(_READERS):
                nursery.start_soon(self._run_reader, read)
            task_status.started()

    async def _run_reader(self, read: ReadSchema) -> None:
        async for question in self._coming:
            schema, seconds = None, CATALOGUE_MISSING_SECONDS
            try:
                with trio.fail_after(INQUIRY_SECONDS):
                    schema = await read(question)
                seconds = CATALOGUE_CACHE_SECONDS
                self.counters[SchemaCount.READ] += 1
            except (HostError, trio.TooSlowError) as exc:
                word = exc.code.word if isinstance(exc, HostError) else "timeout"
                self.counters[SchemaCount.NOT_READ.of(word)] += 1
                logger.warning(
                    "no schema from %s: %s", question.entry.domain, exc, extra={"domain": question.entry.domain}
                )
            self._took(question, schema, time.monotonic() + seconds)

    def _took(self, question: CatalogueQuestion, schema: DataSchema | None, until: float) -> None:
        """A schema that was here stays when its catalogue is away for a while."""
        for address, known in self._known.items():
            if known.until == math.inf and schema_question(address, "").entry == question.entry:
                known.until = until
                known.schema = schema or known.schema
