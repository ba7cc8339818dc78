"""Make a package of a protostub that is JavaScript, as it was published: the interpreter of the kit, and the script.

The script stays byte for byte what it was (`sandbox/core/script_package.py`). It is started once, in a real sandbox: a
script that no node could start is refused here, with the reason.

Source: docs/javascript-stubs.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trio

from protofly.errors import SettingsError, StubFaultError
from protofly.limits import MODULE_BYTES
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestEvent
from sandbox.core.script_package import Script, package_script
from sandbox.core.scripts import script_events
from stubkit.files import replace_file
from stubkit.interpreter import INTERPRETER
from stubkit.sandboxed import compiled_stub
from stubkit.trial import CHECK_DOMAIN, SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedScript:
    """Script of a file, with the configuration of its catalogue descriptor if the file is one."""

    text: bytes
    configuration: Mapping[str, object] = field(default_factory=dict)


class _SourcePackage(msgspec.Struct, rename="camel"):
    source_code: str
    encoding: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    source_package: _SourcePackage | None = None
    source_code: str | None = None
    encoding: str = ""
    configuration: dict[str, Any] | str = {}


def read_published(path: Path) -> PublishedScript:
    """Read a `.js` file, or a descriptor or source package of a catalogue (JSON with `sourceCode`).

    Raises:
        SettingsError: It cannot be read, or has no script.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MODULE_BYTES + 1)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    return PublishedScript(text=raw) if path.suffix != ".json" else _catalogue_entry(path, raw)


def name_of(file: str) -> str:
    """The name of the stub that a file holds, as far as nobody gives it another one.

    It is that of the file up to its first dot. Catalogues have a `default` for every domain, which says nothing: its
    stub is called as a node calls one that it takes from a catalogue itself.
    """
    name = file.partition(".")[0]
    return "catalogue-default" if name == "default" else name


def read_json_object(path: Path) -> dict[str, object]:
    """Read a file with one JSON object.

    Raises:
        SettingsError: It cannot be read, or is something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path}: no JSON object: {exc}") from exc


def packaged(script: Script) -> bytes:
    """The module that is the interpreter of the kit and a script.

    Raises:
        SettingsError: Name or version cannot be used, or the interpreter is missing.
        PeerError: MODULE_LIMITS: together they are too large.
    """
    try:
        interpreter = INTERPRETER.read_bytes()
    except OSError as exc:
        raise SettingsError(f"{INTERPRETER}: {exc.strerror}") from exc
    return package_script(script, interpreter)


def adapt(script: Script, folder: Path, *, insecure_no_seccomp: bool = False) -> dict[str, object]:
    """Write the package of a script that starts; returns what an author wants to know of it.

    Raises:
        SettingsError: The script cannot be started, or the package cannot be written.
        PeerError: The package is too large.
    """
    module = packaged(script)
    trio.run(_start_once, script, module, insecure_no_seccomp)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(f"{folder}: {exc.strerror}") from exc
    path = folder / f"{script.name}.wasm"
    replace_file(path, module)
    return {
        "module": str(path),
        "stub": f"{script.name} {script.version}",
        "bytes": len(module),
        "sha256": hashlib.sha256(module).hexdigest(),
        "script": f"{script.file}, {len(script.text):,} bytes",
        "script_sha256": hashlib.sha256(script.text).hexdigest(),
    }


async def _start_once(script: Script, module: bytes, insecure_no_seccomp: bool) -> None:
    endpoints = sorted({"mn", *script.endpoints.values(), *script.http})
    start = GuestEvent(Event.START, 0, msgspec.json.encode(SETTINGS | {"endpoints": endpoints}))
    try:
        async with compiled_stub(module, insecure_no_seccomp=insecure_no_seccomp) as compiled:
            stub = await compiled.sandbox.start_worker(CHECK_DOMAIN, compiled.code, Budget())
            try:
                reply = await stub.exchange([start, *script_events(module)])
            finally:
                stub.close()
    except StubFaultError as exc:
        raise SettingsError(f"{script.file}: {exc}") from exc
    if reply.fault is not None:
        raise SettingsError(f"{script.file}: {reply.fault.code.word}: {reply.fault.trap}")
    for action in reply.actions:
        if action.op == Action.STATUS and action.payload.startswith(b"failed "):
            raise SettingsError(f"{script.file}: {action.payload[7:].decode('utf-8', 'replace')}")


def _catalogue_entry(path: Path, raw: bytes) -> PublishedScript:
    try:
        entry = msgspec.json.decode(raw, type=_Descriptor)
        configuration = entry.configuration
        if isinstance(configuration, str):
            configuration = msgspec.json.decode(configuration or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path}: no descriptor or source package of a catalogue: {exc}") from exc
    source = entry.source_package
    if source is None and entry.source_code is not None:
        source = _SourcePackage(entry.source_code, entry.encoding)
    if source is None:
        raise SettingsError(f"{path}: there is no `sourceCode` in it; fetch what `sourcePackageURL` names")
    text = source.source_code.encode()
    if source.encoding.lower() == "base64":
        try:
            text = base64.b64decode(text, validate=True)
        except binascii.Error as exc:
            raise SettingsError(f"{path}: `sourceCode` is no Base64: {exc}") from exc
    return PublishedScript(text=text, configuration=configuration)
