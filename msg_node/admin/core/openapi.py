"""The admin site as an OpenAPI 3.1 document, made from the table of operations so that it cannot say anything else.

All operations share one path: each is a schema of its request, and `operation` says which. `GET /openapi.json` of the
admin site returns it, `trapezoid config reference --openapi` prints it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from msg_node.admin.core.operations import (
    LIMIT,
    MOST_SECONDS,
    OPERATIONS,
    TEXT_CHARS,
    Argument,
    ArgumentKind,
    Operation,
)
from msg_node.admin.core.pages import DEFAULT_ROWS, MOST_ROWS
from protofly.limits import POLICY_SIGNATURE_BYTES

Schema = dict[str, Any]

_JSON: Final = "application/json"
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
_KINDS: Final[dict[ArgumentKind, Schema]] = {
    ArgumentKind.TEXT: {"type": "string", "maxLength": TEXT_CHARS},
    ArgumentKind.NUMBER: _NUMBER,
    ArgumentKind.SECONDS: {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS},
            {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[smhd]?$"},
        ],
        "examples": [90, "30s", "15m", "2h", "1d"],
    },
    ArgumentKind.FLAG: {"type": "boolean"},
    ArgumentKind.DOMAIN: {"type": "string", "format": "hostname"},
    ArgumentKind.PATTERN: {"type": "string", "examples": ["c.example", "*.c.example"]},
    ArgumentKind.MOMENT: {
        "anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}],
        "examples": [1_772_388_000, "2026-03-01T18:00:00Z"],
    },
    ArgumentKind.DIGEST: {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    ArgumentKind.SIGNATURE: {"type": "string", "maxLength": POLICY_SIGNATURE_BYTES},
    ArgumentKind.FILES: {"type": "object", "additionalProperties": {"type": "string"}},
}
_COMMON: Final[dict[str, Schema]] = {
    "OperationDescription": {
        "type": "object",
        "required": ["name", "meaning", "changes", "arguments"],
        "properties": {
            "name": {"type": "string"},
            "meaning": {"type": "string"},
            "changes": {"type": "boolean", "description": "It has a dry run, and each use of it is recorded."},
            "arguments": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "kind", "meaning", "required"],
                    "properties": {
                        "name": {"type": "string"},
                        "kind": {"type": "string", "enum": [kind.value for kind in ArgumentKind]},
                        "meaning": {"type": "string"},
                        "required": {"type": "boolean"},
                    },
                },
            },
        },
    },
    "Page": {
        "type": "object",
        "description": "The result of a list.",
        "required": ["rows", "total", "next"],
        "properties": {
            "rows": {"type": "array", "items": {"type": "object"}},
            "total": _NUMBER | {"description": "Rows that pass the filter."},
            "next": {"type": ["integer", "null"], "description": "The `after` of the next page; null on the last."},
        },
    },
    "Change": {
        "type": "object",
        "description": "The result of an operation that changes something.",
        "required": ["operation", "before", "after", "dry_run"],
        "properties": {
            "operation": {"type": "string"},
            "before": {"description": "What there was; null: nothing."},
            "after": {"description": "What there is now, or would be after a dry run; null: nothing."},
            "dry_run": {"type": "boolean", "description": "True: nothing was changed."},
            "answer": {"type": "object", "description": "What only this reply has, such as a new token."},
        },
    },
    "Facts": {"type": "object", "description": "The result of every other operation; members are added over time."},
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "status", "detail"],
                "properties": {
                    "code": {"type": "string", "description": "Stable; docs/troubleshooting.md says what to do."},
                    "status": {"type": "integer", "minimum": 400, "maximum": 599},
                    "detail": {"type": "string"},
                },
            }
        },
    },
}


def openapi_document() -> Schema:
    """The document as JSON has it."""
    requests = {_request_name(one): _request(one) for one in OPERATIONS.values()}
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Trapezoid admin API",
            "version": "1",
            "summary": "What operators may ask of a running node.",
            "description": "Operations and arguments are added; none is renamed or removed without a line in the "
            "changelog. Replies are never stored by caches.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The listener of `[admin]`."}],
        "security": [{"adminToken": []}],
        "paths": {"/api": {"get": _listing(), "post": _performing()}, "/openapi.json": {"get": _describing()}},
        "components": {
            "securitySchemes": {
                "adminToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The content of `data_dir/admin-token`.",
                }
            },
            "schemas": {
                "Request": {
                    "oneOf": [{"$ref": _ref(name)} for name in requests],
                    "discriminator": {
                        "propertyName": "operation",
                        "mapping": {one.name: _ref(_request_name(one)) for one in OPERATIONS.values()},
                    },
                },
                **requests,
                **_COMMON,
            },
        },
    }


def openapi_text() -> str:
    """The document as the file `docs/admin-openapi.json` has it."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1).decode() + "\n"


def _listing() -> Schema:
    operations = {"type": "array", "items": {"$ref": _ref("OperationDescription")}}
    schema: Schema = {"type": "object", "required": ["operations"], "properties": {"operations": operations}}
    return {
        "operationId": "listOperations",
        "summary": "All operations with their arguments.",
        "responses": _responses("The table of operations.", schema),
    }


def _performing() -> Schema:
    results = [{"$ref": _ref(name)} for name in ("Page", "Change", "Facts")]
    schema: Schema = {"type": "object", "required": ["result"], "properties": {"result": {"anyOf": results}}}
    return {
        "operationId": "performOperation",
        "summary": "Perform one operation.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": {"$ref": _ref("Request")}}}},
        "responses": _responses("It was performed.", schema),
    }


def _describing() -> Schema:
    return {
        "operationId": "describe",
        "summary": "This document.",
        "responses": _responses("An OpenAPI document.", {"type": "object", "required": ["openapi"]}),
    }


def _responses(description: str, schema: Schema) -> Schema:
    refused = {_JSON: {"schema": {"$ref": _ref("Error")}}}
    return {
        "200": {"description": description, "content": {_JSON: {"schema": schema}}},
        "401": {"description": "`bad-token`.", "content": refused},
        "default": {"description": "Refused: `error.code` says why.", "content": refused},
    }


def _request(operation: Operation) -> Schema:
    properties: Schema = {"operation": {"type": "string", "const": operation.name}}
    required = ["operation"]
    properties["arguments"] = {
        "type": "object",
        "properties": {one.name: _argument(one) for one in operation.arguments},
        "additionalProperties": False,
    }
    if needed := [one.name for one in operation.arguments if one.is_required]:
        properties["arguments"]["required"] = needed
        required.append("arguments")
    if operation.changes:
        text = "Check everything, and change nothing."
        properties["dry_run"] = {"type": "boolean", "default": False, "description": text}
    return {
        "type": "object",
        "description": operation.meaning,
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def _argument(argument: Argument) -> Schema:
    schema = {**_KINDS[argument.kind], "description": argument.meaning}
    if argument is LIMIT:
        schema |= {"minimum": 1, "maximum": MOST_ROWS, "default": DEFAULT_ROWS}
    if argument.choices:
        schema["enum"] = list(argument.choices)
    elif argument.is_required and argument.kind is ArgumentKind.TEXT:
        schema["minLength"] = 1
    if argument.is_secret:
        schema |= {"format": "password", "writeOnly": True}
    return schema


def _request_name(operation: Operation) -> str:
    """A name for generators: `peer block` is `PeerBlock`."""
    return "".join(word.capitalize() for word in operation.name.replace("-", " ").split())


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"
