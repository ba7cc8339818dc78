"""What other nodes, stubs, files and databases of older versions hold: its members, bounds and defaults, to the letter.

`wire_schemas.json` is the contract as it stands. A change of it is a decision about everybody who has written such data
already: make it by hand, or have the file written anew with `python -m tests.protofly.test_wire_schemas`, and read
the difference.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

FILE: Final = Path(__file__).with_name("wire_schemas.json")
MODULES: Final = (
    "catalogue_client.core.state",
    "federation.core.auth",
    "federation.core.link_frames",
    "msg_node.requests.core.agent_queues",
    "msg_node.addresses.core.allocation",
    "msg_node.requests.core.inbox",
    "msg_node.requests.core.parked",
    "msg_node.requests.core.push_targets",
    "msg_node.registries.core.registry_entry",
    "msg_node.kernel.session",
    "msg_node.identity.core.session_tokens",
    "msg_node.addresses.core.subscriptions",
    "msg_node.registries.core.twin",
    "protofly.documents",
    "protofly.guid_record",
    "protofly.record_blocks",
    "protofly.record_segments",
    "protofly.records",
    "protofly.signatures",
    "sandbox.core.module_check",
    "sandbox.core.open_request",
)


def schemas() -> dict[str, Any]:
    """The schema of every struct that one of the modules defines."""
    found: dict[str, type[msgspec.Struct]] = {}
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == name:
                found[f"{name}.{value.__name__}"] = value
    return {name: _without_texts(_schema(type_)) for name, type_ in sorted(found.items())}


def _schema(type_: type[msgspec.Struct]) -> object:
    try:
        return msgspec.json.schema(type_, schema_hook=lambda _: {})
    except TypeError:  # raw JSON as a default
        return {one.encode_name: [str(one.type), _default_of(one)] for one in msgspec.structs.fields(type_)}


def _default_of(field: msgspec.structs.FieldInfo) -> str:
    default = bytes(field.default) if isinstance(field.default, msgspec.Raw) else field.default
    return "required" if field.required else repr(default)


def _without_texts(schema: object) -> object:
    """Docstrings are no contract."""
    if isinstance(schema, list):
        return [_without_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    is_text = isinstance(schema.get("description"), str)
    return {name: _without_texts(value) for name, value in schema.items() if not (is_text and name == "description")}


CONTRACT: Final[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_members_bounds_and_defaults_are_those_of_the_contract(name: str) -> None:
    assert json.loads(json.dumps(schemas()[name])) == CONTRACT[name]


def test_every_struct_that_is_written_has_its_contract() -> None:
    assert sorted(schemas()) == sorted(CONTRACT)


if __name__ == "__main__":
    sys.exit(FILE.write_text(json.dumps(schemas(), indent=1, sort_keys=True) + "\n", encoding="utf-8") < 0)
