"""`domain://msg-node.<d>/twin`: the directory of things and their latest values.

`create` and `update` take the description of the thing `resource` as `value`, and how requests wait for its agent as
`queue`; `read` gives a thing, an object, one event or property, or a page of the things of an agent or of all;
`delete` takes a thing, or an agent with all of its things.

The describer of a thing owns its agent, or claims it by that. The twin is for runtimes of this domain; what else they
may see and do is for policies to say. Source: message specification, sections 19.1 and 19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Raw

from msg_node.kernel.resources import Members, check_texts, is_claimable, key_or_refuse, text_of
from msg_node.kernel.runtime_address import agent_of
from msg_node.kernel.service import Answer, Caller, ServiceRequest
from msg_node.registries.core.tables import RegistryTables
from msg_node.registries.core.twin import Slot, ThingRow, ValueRow, is_thing, slot_of
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.limits import PAGE_ENTRIES, TWIN_PAGE_BYTES
from protofly.message import Message

_ABSENT = Raw()
_NAME_CHARS = 256
_TIMESTAMP_CHARS = 64
_EVENT_TYPES = frozenset({"update", "event", "create"})


class _Written(msgspec.Struct):
    """The members of a body that are kept as the bytes that came."""

    value: Raw = _ABSENT
    attribute: object = ""
    timestamp: object = ""


_decode_written = msgspec.json.Decoder(_Written).decode


def keep_value(state: RegistryTables, message: Message, sid: int, now: float) -> None:
    """Keep the value in a message that a session sent, and that its source check and the policies let pass.

    Only what comes from the agent of the thing, or the owner of the object, counts.
    """
    if message.type not in _EVENT_TYPES:
        return
    key = message.to_key
    slot = slot_of(key)
    if slot is None and not key.endswith("/changes"):
        return
    watched = slot.key if slot is not None else key.removesuffix("/changes")
    if not state.twin.keeps(watched) or state.owners.owner(agent_of(watched)) != sid:
        return
    try:
        written = _decode_written(message.body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if slot is None:
        slot = _attribute_slot(watched, written.attribute)
    if slot is not None and written.value:
        timestamp = written.timestamp[:_TIMESTAMP_CHARS] if isinstance(written.timestamp, str) else ""
        state.twin.keep(slot, bytes(written.value), message.from_, now=now, timestamp=timestamp)


def _attribute_slot(key: str, attribute: object) -> Slot | None:
    """Return the place of an attribute of an object, or of a property of a thing that is changed like one."""
    if not isinstance(attribute, str) or not 0 < len(attribute) <= _NAME_CHARS or " " in attribute:
        return None
    return slot_of(f"{key}/properties/{attribute}") if is_thing(key) else Slot(key, attribute)


class AgentQueueRules(Protocol):
    """Rules for the queue of one agent."""

    @property
    def expires_seconds(self) -> float:
        """Seconds that a request waits at most."""

    @property
    def unanswered(self) -> int:
        """The number of requests that the agent works on at a time."""


class AgentQueueDirectory(Protocol):
    """Announcements of agents about their queues."""

    def announce(self, agent: str, queue: object, /) -> None:
        """Keep an announcement. Raises PeerError BAD_BODY or QUOTA."""

    def rules(self, agent: str, /) -> AgentQueueRules:
        """Return the rules for the queue of an agent."""

    def forget(self, agent: str, /) -> None:
        """Take an announcement back."""


class TwinService:
    """Serves the twin."""

    def __init__(self, state: RegistryTables, queues: AgentQueueDirectory) -> None:
        self._state = state
        self._queues = queues
        self._twin = state.twin

    # Requests.

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `create`, `update`, `read` and `delete`.

        Raises:
            PeerError: BAD_TYPE, BAD_BODY, TOO_LARGE, QUOTA, NOT_OWNER, NOT_REGISTERED; POLICY for other domains.
        """
        if request.caller.is_link or request.caller.is_guest:
            raise PeerError(Code.POLICY, "the twin is for runtimes of this domain")
        match request.message.type:
            case "create" | "update":
                return self._describe(request)
            case "read":
                return self._read(request.members, request.caller)
            case "delete":
                return self._delete(request)
            case _:
                raise PeerError(Code.BAD_TYPE, "the twin knows create, read, update and delete")

    def _describe(self, request: ServiceRequest) -> Answer:
        members = request.members
        url = text_of(members, "resource") or request.message.from_
        key = key_or_refuse(url)
        agent = agent_of(key)
        description = _description_in(request.message)
        if not description and "queue" not in members:
            raise PeerError(Code.BAD_BODY, "value is to be the description of the thing, or queue that of its agent's")
        if description and not is_thing(key):
            raise PeerError(Code.BAD_BODY, "a thing is thing://<domain>/<agent>/<thing>")
        self._check_agent(request.caller, agent)
        queues = self._queues
        answer: dict[str, object] = {"resource": url}
        if description:
            session = self._state.sessions.get(request.caller.number)
            runtime = "" if session is None else session.runtime_key
            row = self._twin.describe(url, key, description, now=request.now, runtime=runtime)
            answer["version"] = row.version
        if "queue" in members:
            queues.announce(agent, members["queue"])
            rules = queues.rules(agent)
            answer["queue"] = {"expires": int(rules.expires_seconds), "max": rules.unanswered}
        if self._state.owners.claimant(agent) is None:
            self._state.owners.claim(request.caller.number, agent)
        return Answer(value=answer)

    def _check_agent(self, caller: Caller, agent: str) -> None:
        """True if the caller speaks for an agent, or may claim it.

        Raises:
            PeerError: NOT_OWNER, QUOTA.
        """
        owners = self._state.owners
        owner = owners.claimant(agent)
        if owner == caller.number:
            return
        is_free = owner is None and owners.owner_above(agent) is None and agent not in owners.pools.keys
        is_ours = agent.startswith("thing://") and domain_of(agent) in self._state.domains
        if not (is_free and is_ours and is_claimable(agent)):
            raise PeerError(Code.NOT_OWNER, "this agent belongs to somebody else")
        owners.check_quota(caller.number, 1)

    def _delete(self, request: ServiceRequest) -> Answer:
        url = text_of(request.members, "resource")
        key = key_or_refuse(url)
        agent = agent_of(key)
        if not request.caller.is_operator and self._state.owners.owner(agent) != request.caller.number:
            raise PeerError(Code.NOT_OWNER, "this agent belongs to somebody else")
        if key == agent:
            removed = [self._twin.remove(thing) for thing, _ in self._twin.things(agent)]
            self._queues.forget(agent)
            return Answer(value={"removed": len(removed)})
        if not self._twin.remove(key):
            raise PeerError(Code.NOT_REGISTERED, "there is no such thing")
        return Answer(value={"removed": 1})

    # Reading.

    def _read(self, members: Members, caller: Caller) -> Answer:
        url = text_of(members, "resource")
        key = key_or_refuse(url) if url else ""
        if self._state.observer_rights.is_expelled(caller.number, key):
            raise PeerError(Code.POLICY, "the reporter has taken you off this object")
        slot = slot_of(key)
        if slot is not None:
            return Answer(value=self._one_value(slot.key, slot.name))
        row = self._twin.find(key)
        if row is not None:
            return Answer(value=self._shown(key, row, has_values=True))
        if key and not self._is_agent(key):
            values = self._twin.values(key)
            if not values:
                raise PeerError(Code.NOT_REGISTERED, "there is no such thing")
            return Answer(value={"resource": url, "values": _shown_values(values)})
        return Answer(value=self._page(key, members))

    def _is_agent(self, key: str) -> bool:
        return key.startswith("thing://") and agent_of(key) == key

    def _one_value(self, key: str, name: str) -> object:
        row = self._twin.values(key).get(name)
        if row is None:
            raise PeerError(Code.NOT_REGISTERED, "there is no such value")
        return _shown_value(row)

    def _page(self, agent: str, members: Members) -> dict[str, object]:
        criteria = members.get("criteria", {})
        if not isinstance(criteria, Mapping):
            raise PeerError(Code.BAD_BODY, "criteria must be an object")
        check_texts(dict(criteria), "type")
        since = criteria.get("since", 0)
        if isinstance(since, bool) or not isinstance(since, int | float):
            raise PeerError(Code.BAD_BODY, "criteria.since is seconds since 1970")
        type_, has_values = criteria.get("type"), criteria.get("values") is True
        found = [
            (key, row)
            for key, row in self._twin.things(agent)
            if row.modified_at >= since and (type_ is None or type_ in self._twin.types_of(key))
        ]
        page = members.get("page", 1)
        if isinstance(page, bool) or not isinstance(page, int) or page < 1:
            raise PeerError(Code.BAD_BODY, "page is to be a number, from 1")
        first = (page - 1) * PAGE_ENTRIES
        shown, room = [], TWIN_PAGE_BYTES
        for key, row in found[first : first + PAGE_ENTRIES]:
            room -= self._twin.size_of(key, has_values=has_values)
            shown.append(self._shown(key, row, has_values=has_values) if room > 0 else {"resource": row.url})
        return {"things": shown, "page": page, "pages": max(-(-len(found) // PAGE_ENTRIES), 1), "total": len(found)}

    def _shown(self, key: str, row: ThingRow, *, has_values: bool) -> dict[str, object]:
        owner = self._state.owners.owner(agent_of(key))
        session = None if owner is None else self._state.sessions.get(owner)
        shown: dict[str, object] = {
            "resource": row.url,
            "status": "live" if session is not None and session.is_live else "disconnected",
            "version": row.version,
            "modified": int(row.modified_at),
            "description": row.description,
        }
        if has_values:
            shown["values"] = _shown_values(self._twin.values(key))
        return shown


def _description_in(message: Message) -> bytes:
    """The description as the bytes that came, b"" without one; the members of the body have been read."""
    raw = bytes(_decode_written(message.body or b"{}").value)
    if raw and not raw.startswith(b"{"):
        raise PeerError(Code.BAD_BODY, "a description is an object")
    return raw


def _shown_values(values: Mapping[str, ValueRow]) -> dict[str, object]:
    return {name: _shown_value(row) for name, row in values.items()}


def _shown_value(row: ValueRow) -> dict[str, object]:
    shown: dict[str, object] = {"value": row.value, "source": row.source, "received": int(row.received_at)}
    return {**shown, "timestamp": row.timestamp} if row.timestamp else shown
