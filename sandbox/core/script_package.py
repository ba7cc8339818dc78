"""The package of a JavaScript protostub: the interpreter, and the script as data with a line about it.

The script stays byte for byte what it was. What it needs besides is written before it in one line: its file name, the
configuration that it gets where the operator says nothing else, and which of its URLs are which endpoint.

Source: docs/javascript-stubs.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from protofly.errors import SettingsError
from sandbox.core.module_check import StubKind, inspect_module
from sandbox.core.scripts import with_script

CONFIGURATION_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "adapter": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "msg_node": {"type": "string", "maxLength": 400, "pattern": "^domain://[!#-Z^-~]+$"},
                "subscriptions": {"enum": ["new", "old", "none"]},
            },
        }
    },
}
"""Of every protostub: what is for the script is the script's; `adapter` is for the prelude."""

CONNECTOR_SCHEMA: Final[dict[str, Any]] = {"type": "object", "not": {"required": ["adapter"]}}
"""Of every connector. The prelude subscribes to nothing for one, and an operator cannot make it."""

_NO_SUBSCRIPTIONS: Final = {"adapter": {"subscriptions": "none"}}

START_BYTES: Final = 25_000
"""Of every script at least, which makes fifty million units of fuel; the limit of CPU time comes first."""

_NAME: Final = re.compile(r"(?!default\Z)[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,32}")
_MODULE: Final = re.compile(
    rb"(?:^|[;}\n])\s*(?:export\s*(?:default\b|[{*]|(?:async|function|class|const|let|var)\b)|import\b\s*[\w{*\"'])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A JavaScript protostub, and what it needs to run.

    Attributes:
        text: The file, as it was published.
        file: Its name, for messages.
        name: Of the stub.
        version: Of the stub.
        configuration: What the script gets where the operator says nothing else.
        endpoints: Which endpoint a URL of the script belongs to, by how the URL begins.
        http: The endpoints that are requested over HTTP.
        kind: What the script is for.
    """

    text: bytes
    file: str
    name: str
    version: str = "1.0.0"
    configuration: Mapping[str, object] = field(default_factory=dict)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    http: Sequence[str] = ()
    kind: StubKind = "protostub"


def package_script(script: Script, interpreter: bytes) -> bytes:
    """The module that is interpreter and script.

    Args:
        script: The script.
        interpreter: The module that runs it.

    Raises:
        SettingsError: Name or version cannot be used.
        PeerError: MODULE_LIMITS: together they are too large.
    """
    if not _NAME.fullmatch(script.name):
        raise SettingsError(f"{script.name!r} cannot be the name of a stub: letters, digits, `-`, `_`, not `default`")
    if not _VERSION.fullmatch(script.version):
        raise SettingsError(f"{script.version!r} cannot be a version")
    about = {
        "file": script.file,
        "isModule": is_module(script.text),
        "configuration": {**script.configuration, **(_NO_SUBSCRIPTIONS if script.kind == "connector" else {})},
        "endpoints": script.endpoints,
        "http": list(script.http),
    }
    content = script_content(about, script.text)
    module = with_script(interpreter, statement=msgspec.json.encode(_statement(script)), script=content)
    inspect_module(module)
    return module


def _statement(script: Script) -> dict[str, object]:
    """What the package says of itself; a connector hears of no addresses."""
    statement: dict[str, object] = {"abi": 1, "name": script.name, "version": script.version}
    if script.kind == "connector":
        return statement | {"configuration": CONNECTOR_SCHEMA, "kind": script.kind}
    return statement | {"configuration": CONFIGURATION_SCHEMA, "events": ["addresses"]}


def script_content(about: Mapping[str, object], text: bytes) -> bytes:
    """Build the input of the interpreter: one line about the script, then the script.

    The line is filled up with spaces, since fuel is given by the byte: a short script may take long to start as well.
    """
    line = msgspec.json.encode(about)
    return line.ljust(START_BYTES - len(text)) + b"\n" + text


def is_module(text: bytes) -> bool:
    """True for what has a statement that imports or exports. The interpreter tries the other kind as well."""
    return _MODULE.search(text) is not None
