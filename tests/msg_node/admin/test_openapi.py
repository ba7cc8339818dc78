"""The OpenAPI description of the admin site says what the site does: requests, replies, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from msg_node.admin.core.openapi import openapi_document, openapi_text
from msg_node.admin.core.operations import LIMIT, OPERATIONS, Argument, ArgumentKind, Operation, read_arguments
from msg_node.admin.core.pages import page_of
from protofly.errors import PeerError
from tests.support.admin_rig import admin_site, bearer
from tests.support.runtime_rig import runtime_address
from trapezoid.commands import app

DOCUMENT: Final = openapi_document()
SAMPLES: Final[dict[ArgumentKind, Any]] = {
    ArgumentKind.TEXT: "some text",
    ArgumentKind.NUMBER: 7,
    ArgumentKind.SECONDS: "15m",
    ArgumentKind.FLAG: True,
    ArgumentKind.DOMAIN: "c.example",
    ArgumentKind.PATTERN: "*.c.example",
    ArgumentKind.MOMENT: "2026-03-01T18:00:00Z",
    ArgumentKind.FILES: {"a.toml": "text"},
    ArgumentKind.SIGNATURE: "{}",
    ArgumentKind.DIGEST: "a0" * 32,
}
TRIED: Final[tuple[Any, ...]] = (
    *SAMPLES.values(),
    *("", "x" * 512, "x" * 513, "2w", "-1", "0.5h", -1, 0, 1, 1000, 1001, 1.5, 1e12 + 0.5, False, {}, {"a": 1}, []),
)
WIDER: Final = frozenset({ArgumentKind.DOMAIN, ArgumentKind.PATTERN, ArgumentKind.MOMENT})
"""Kinds whose texts the node checks further than a schema can say."""


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole)


REQUEST: Final = validator("Request")


def nodes(value: object) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def sample(argument: Argument) -> object:
    return argument.choices[0] if argument.choices else SAMPLES[argument.kind]


def needed(operation: Operation) -> dict[str, object]:
    return {one.name: sample(one) for one in operation.arguments if one.is_required}


def is_taken(operation: Operation, arguments: dict[str, Any]) -> bool:
    """True if the node takes these arguments."""
    try:
        read = read_arguments(operation, arguments)
        if LIMIT in operation.arguments:
            page_of([], read)
    except PeerError:
        return False
    return True


def test_every_reference_leads_to_a_schema_and_every_schema_is_one() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    references = {one["$ref"].removeprefix("#/components/schemas/") for one in nodes(DOCUMENT) if "$ref" in one}
    assert references | {"Request"} == schemas.keys()
    for schema in schemas.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_the_document_has_what_openapi_requires() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    operations = [one for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == 3
    assert all(reply["description"] for one in operations for reply in one["responses"].values())
    [required] = DOCUMENT["security"]
    assert required.keys() == DOCUMENT["components"]["securitySchemes"].keys()


def test_every_operation_is_one_schema_of_the_request() -> None:
    request = DOCUMENT["components"]["schemas"]["Request"]
    mapping = request["discriminator"]["mapping"]
    assert mapping.keys() == OPERATIONS.keys()
    assert [one["$ref"] for one in request["oneOf"]] == list(mapping.values())
    assert len(set(mapping.values())) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda one: one.name)
def test_the_schema_takes_the_arguments_that_the_node_takes(operation: Operation) -> None:
    request = {"operation": operation.name, "arguments": needed(operation)}
    assert REQUEST.is_valid(request)
    assert is_taken(operation, needed(operation))
    assert REQUEST.is_valid({**request, "dry_run": True}) is operation.changes
    assert not REQUEST.is_valid({**request, "dryRun": True})
    assert not REQUEST.is_valid({**request, "arguments": {**needed(operation), "no such argument": 1}})
    for name in needed(operation):
        fewer = {one: value for one, value in needed(operation).items() if one != name}
        assert not REQUEST.is_valid({**request, "arguments": fewer})
    for argument in operation.arguments:
        for value in TRIED:
            arguments = {**needed(operation), argument.name: value}
            is_valid = REQUEST.is_valid({"operation": operation.name, "arguments": arguments})
            if is_taken(operation, arguments):
                assert is_valid, (argument.name, value)
            elif argument.kind not in WIDER or not isinstance(value, str):
                assert not is_valid, (argument.name, value)


def test_an_unknown_operation_fits_no_schema() -> None:
    assert not REQUEST.is_valid({"operation": "x"})
    assert not REQUEST.is_valid({})


async def test_the_site_returns_it_to_the_holder_of_the_token_only(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (_at, client, token):
        refused = await client.get("/openapi.json")
        given = await client.get("/openapi.json", headers=bearer(token))
    assert (refused.status_code, "openapi" in refused.json()) == (401, False)
    assert validator("Error").is_valid(refused.json())
    assert (given.json(), given.headers["content-type"]) == (json.loads(openapi_text()), "application/json")


async def test_what_the_site_replies_is_as_described(tmp_path: Path) -> None:
    requests: dict[str, dict[str, object]] = {
        "Page": {"operation": "sessions"},
        "Change": {"operation": "kick", "arguments": {"runtime": runtime_address("bob"), "ban": "1h"}, "dry_run": True},
        "Facts": {"operation": "policy active"},
        "Error": {"operation": "partner", "arguments": {"domain": "no domain"}},
    }
    async with admin_site(tmp_path) as (_at, client, token):
        table = (await client.get("/api", headers=bearer(token))).json()["operations"]
        replies = {
            name: (await client.post("/api", json=request, headers=bearer(token))).json()
            for name, request in requests.items()
        }
    assert all(validator("OperationDescription").is_valid(one) for one in table)
    for name, reply in replies.items():
        value = reply if name == "Error" else reply["result"]
        assert validator(name).is_valid(value), (name, reply)


def test_the_file_and_the_command_have_the_document_that_is_generated() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin-openapi.json").read_text(encoding="utf-8")
    assert page == openapi_text(), "run: trapezoid config reference --openapi --output FILE"
    assert CliRunner().invoke(app, ["config", "reference", "--openapi"]).output == page
    both = CliRunner().invoke(app, ["config", "reference", "--openapi", "--status"])
    assert both.exit_code == 2
