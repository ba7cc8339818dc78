"""What runtimes of a scene do with registries: enter themselves into that of their domain, and find each other."""

from __future__ import annotations

import json
from typing import Final

from interop.lab.actors import LabRuntime
from interop.lab.core.operations import Operation
from interop.runtime_client import Answer
from protofly.errors import TransportError

_OK: Final = 200
_ABSENT: Final = 404
_ENTRY_SECONDS: Final = 3600


def _entry_of(runtime: LabRuntime) -> str:
    """Under which name the history knows the entry of a runtime."""
    return f"entry of {runtime.name}"


def _user_of(runtime: LabRuntime) -> str:
    return f"user://{runtime.domain}/{runtime.name}"


async def register(runtime: LabRuntime) -> None:
    """Enter a runtime into the registry of its domain."""

    async def ask() -> Answer:
        client = runtime.client
        entry = {
            "url": runtime.address,
            "user": _user_of(runtime),
            "descriptor": f"hyperty-catalogue://catalogue.{runtime.domain}/.well-known/hyperty/Lab",
            "runtime": client.runtime,
            "p2pRequester": client.runtime,
            "expires": _ENTRY_SECONDS,
            "resources": ["lab"],
            "dataSchemes": ["comm"],
        }
        registry = f"domain://registry.{runtime.domain}"
        return await client.request("create", f"{client.runtime}/registry", registry, {"value": entry})

    await runtime.step("register", _entry_of(runtime), ask)


async def find(asker: LabRuntime, sought: LabRuntime) -> None:
    """Ask the registry of the domain of `sought` for it; the history has whether it was there.

    Other answers than 200 and 404 say nothing: 408 is that of an entry whose runtime is away.
    """
    notes = asker.notes
    began, registry = notes.now(), f"domain://registry.{sought.domain}"
    try:
        answer = await asker.client.request("read", asker.address, registry, {"resource": _user_of(sought)})
    except TransportError:
        return
    if answer.code in {_OK, _ABSENT}:
        is_there = answer.code == _OK and any(one in json.dumps(answer.value) for one in sought.addresses)
        step = Operation(
            runtime=asker.name,
            kind="look-up",
            object=_entry_of(sought),
            result="found" if is_there else "absent",
            began=began,
            ended=notes.now(),
        )
        notes.operations.append(step)
