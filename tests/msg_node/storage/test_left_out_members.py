"""Rows leave out what is as usual. The usual is part of what is stored: it means the same in every later version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from msg_node.addresses.core.allocation import OwnedRow
from msg_node.identity.core.session_tokens import IssuedToken
from msg_node.kernel.session import SessionRow
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.twin import ValueRow
from msg_node.requests.core.inbox import InboxRow
from msg_node.requests.core.parked import ParkedRow
from tests.msg_node.storage.recorded_forms import ROWS

USUAL: list[tuple[type[msgspec.Struct], dict[str, Any]]] = [
    (OwnedRow, {"allocation_key": "", "is_guest": False}),
    (IssuedToken, {"roles": []}),
    (ValueRow, {"timestamp": ""}),
    (
        RegistryEntry,
        {
            "status": "live",
            "expires_seconds": 3600,
            "resources": [],
            "data_schemes": [],
            **dict.fromkeys(("user", "guid", "descriptor", "name", "schema", "reporter"), ""),
            **dict.fromkeys(("p2p_handler", "p2p_requester"), ""),
            **dict.fromkeys(("started_at", "refreshed_at"), 0.0),
        },
    ),
    (InboxRow, {"credential": "", "is_final": False, "is_told": False}),
    (
        ParkedRow,
        {
            **dict.fromkeys(("credential", "domain", "wire_id", "reason", "description"), ""),
            **dict.fromkeys(("is_acknowledged", "is_cancelling", "is_invitation", "is_given"), False),
            "roles": [],
            "status": "pending",
            "code": 0,
            "value": None,
        },
    ),
    (
        SessionRow,
        {
            **dict.fromkeys(("credential", "login"), ""),
            **dict.fromkeys(("is_guest", "is_displaced", "wants_late"), False),
            "dialect": "a",
            "roles": [],
            "proof_ends": None,
        },
    ),
]
SAMPLES: dict[type, Any] = {int: 1, float: 1.0, str: "x", msgspec.Raw: "x"}


@pytest.mark.parametrize(("row", "usual"), USUAL, ids=[row.__name__ for row, _ in USUAL])
def test_what_a_stored_row_leaves_out_reads_as_the_usual(row: type[msgspec.Struct], usual: dict[str, Any]) -> None:
    fields = msgspec.structs.fields(row)
    needed = {one.encode_name: SAMPLES.get(one.type, "allocated") for one in fields if one.required}
    assert {one.encode_name for one in fields if not one.required} == usual.keys()
    short = msgspec.json.decode(msgspec.json.encode(needed), type=row)
    whole = msgspec.json.decode(msgspec.json.encode(needed | usual), type=row)
    assert msgspec.structs.astuple(short) == msgspec.structs.astuple(whole)
    assert msgspec.json.decode(msgspec.json.encode(short)).keys() == needed.keys()


def test_every_row_that_leaves_out_the_usual_is_here() -> None:
    assert {row for row in ROWS.values() if row.__struct_config__.omit_defaults} <= {row for row, _ in USUAL}
