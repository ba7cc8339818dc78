"""The forms of what nodes of one domain share: rows of the engine, and what they say to each other.

`python -m tests.msg_node.storage.recorded_forms` records them, at each release: nodes of that release run beside nodes
of the next one during a rolling upgrade, and read what these write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from msg_node.addresses.core.allocation import OwnedRow
from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.subscriptions import SubscriptionRow
from msg_node.admin.core.proposals import Proposal
from msg_node.bus.core.moved_session import Asked, GivenSession, MovedSession
from msg_node.bus.delivery_of_nodes import DeliveryAnswer, DeliveryQuestion
from msg_node.bus.link_places import _Given, _Wanted
from msg_node.bus.registry_of_nodes import RegistryAnswer
from msg_node.bus.session_moves import Answered
from msg_node.cluster.core.handshake import VERSION as BUS_VERSION
from msg_node.cluster.core.handshake import Hello
from msg_node.cluster.core.node_contents import Mark
from msg_node.cluster.core.runs import _HeadText
from msg_node.cluster.names import NodeFacts
from msg_node.cluster.shared_trust import SharedState
from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.identity.core.local_clients import LocalClient
from msg_node.identity.user_store import LocalUser
from msg_node.kernel.changes import Table
from msg_node.kernel.links import LinkRow
from msg_node.kernel.list_marks import ListMark
from msg_node.kernel.restrictions import Restriction
from msg_node.kernel.session import SessionRow
from msg_node.qos.core.domain_quotas import Grant, Granted, Release, Released
from msg_node.qos.core.leases import Lease
from msg_node.registries.core.policy_names import PolicyNameRow
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.twin import ThingRow, ValueRow
from msg_node.registries.engine_guids import _Row as GuidRow
from msg_node.requests.core.agent_queues import QueueRow
from msg_node.requests.core.inbox import InboxRow
from msg_node.requests.core.parked import ParkedRow
from msg_node.requests.core.push_targets import PushTarget
from msg_node.storage.engine_schema import CREATE, SCHEMA_VERSION

RECORDED: Final = Path(__file__).with_name("recorded_forms.json")
ROWS: Final[Mapping[Table, type[msgspec.Struct]]] = {
    Table.SESSIONS: SessionRow,
    Table.ADDRESSES: OwnedRow,
    Table.SUBSCRIPTIONS: SubscriptionRow,
    Table.REGISTRY: RegistryEntry,
    Table.LINK_NUMBERS: LinkRow,
    Table.QOS_LEASES: Lease,
    Table.PARKED: ParkedRow,
    Table.INBOX: InboxRow,
    Table.AGENT_QUEUES: QueueRow,
    Table.TWIN_THINGS: ThingRow,
    Table.TWIN_VALUES: ValueRow,
    Table.PUSH_TARGETS: PushTarget,
    Table.EXPULSIONS: ExpulsionRow,
    Table.RESTRICTIONS: Restriction,
    Table.BLOCK_LISTS: ListMark,
    Table.GIVEN_PARKED: ParkedRow,
    Table.GIVEN_INBOX: InboxRow,
    Table.GIVEN_SESSIONS: GivenSession,
    Table.OBJECT_POLICIES: PolicyNameRow,
    Table.PROPOSALS: Proposal,
}
"""The row of each table."""
RECORDS: Final = (LocalUser, LocalClient, TokenMark, GuidRow, SharedState, NodeFacts)
"""Rows of the domain besides."""
CONTENTS: Final = (
    *(Hello, Asked, Answered, MovedSession, RegistryAnswer, DeliveryQuestion, DeliveryAnswer),
    *(_Given, _Wanted, Mark, _HeadText, Grant, Granted, Release, Released),
)
"""What nodes say to each other."""

Form = dict[str, Any]


def forms() -> Form:
    """What this version has, as JSON."""
    types = list(dict.fromkeys([*ROWS.values(), *RECORDS, *CONTENTS]))
    known: dict[str, Form] = {}
    for one in inspect.multi_type_info(types):
        _kind(one, known)
    return {
        "schema_version": SCHEMA_VERSION,
        "bus_version": BUS_VERSION,
        "tables_of_engine": hashlib.sha256("\n".join(CREATE).encode()).hexdigest(),
        "tables": {table.value: _name(type_) for table, type_ in ROWS.items()},
        "forms": known,
    }


def _name(type_: type) -> str:
    return f"{type_.__module__.rpartition('.')[2]}.{type_.__qualname__}"


def _kind(info: inspect.Type, known: dict[str, Form]) -> str:
    """A type in words; the forms of what has members are put into `known`."""
    match info:
        case inspect.StructType():
            return _form(info.cls, info.fields, known)
        case inspect.NamedTupleType() | inspect.DataclassType():
            return _form(info.cls, info.fields, known)
        case inspect.EnumType():
            values = ", ".join(str(one.value) for one in info.cls)
            return f"one of {values}"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return f"array of {_kind(info.item_type, known)}"
        case inspect.TupleType():
            return f"[{', '.join(_kind(one, known) for one in info.item_types)}]"
        case inspect.DictType():
            return f"object of {_kind(info.value_type, known)}"
        case inspect.UnionType():
            return " | ".join(sorted(_kind(one, known) for one in info.types))
        case inspect.Metadata():
            return _kind(info.type, known)
    return type(info).__name__.removesuffix("Type").lower()


def _form(cls: type, fields: Sequence[inspect.Field], known: dict[str, Form]) -> str:
    name = _name(cls)
    if name in known:
        return name
    form: Form = {}
    known[name] = form
    config = getattr(cls, "__struct_config__", None)
    form["members"] = {one.encode_name: _kind(one.type, known) for one in fields}
    form["required"] = sorted(one.encode_name for one in fields if one.required)
    form["is_array"] = config is None or config.array_like
    form["is_closed"] = config is not None and config.forbid_unknown_fields
    form["leaves_out_defaults"] = config is not None and config.omit_defaults
    return name


def breaks(old: Form, new: Form) -> Iterator[str]:
    """What of another version one of the two could not read, in words."""
    if (old["schema_version"], old["tables_of_engine"]) != (new["schema_version"], new["tables_of_engine"]):
        yield "the tables of the engine are others"
    if old["bus_version"] != new["bus_version"]:
        yield "nodes speak another version to each other"
    for table, name in old["tables"].items():
        if new["tables"].get(table) != name:
            yield f"table {table} has other rows"
    for name, form in old["forms"].items():
        yield from _breaks_of(name, form, new)


def _breaks_of(name: str, old: Form, new: Form) -> Iterator[str]:
    form = new["forms"].get(name)
    if form is None:
        yield f"{name} is gone"
        return
    before, after = old["members"], form["members"]
    if form["is_array"] != old["is_array"] or (old["is_array"] and list(before) != list(after)[: len(before)]):
        yield f"{name} has another order"
    for member, kind in before.items():
        if after.get(member) != kind:
            yield f"{name}.{member} is gone, or of another kind: the other version cannot read it"
    required, was_required = set(form["required"]), set(old["required"])
    for member in sorted(required - was_required):
        yield f"{name}.{member} has no default: rows of before have none"
    for member in sorted(was_required - required) if form["leaves_out_defaults"] else ():
        yield f"{name}.{member} may be left out: the version before needs it"
    if old["is_closed"] and after.keys() - before.keys():
        yield f"{name} has more members, which the version before refuses"


def main() -> None:
    """Record the forms of this version."""
    RECORDED.write_text(json.dumps(forms(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
