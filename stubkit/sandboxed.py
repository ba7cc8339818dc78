"""A stub of the author's, read, judged and compiled, in a sandbox that ends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from protofly.errors import PeerError, SettingsError
from protofly.limits import MODULE_BYTES
from sandbox.core.module_check import ModuleFacts, inspect_module
from sandbox.host import Sandbox

READ_BYTES: Final = 16 * MODULE_BYTES
"""Enough to say how much too large a module is."""


@dataclass(frozen=True, slots=True)
class CompiledStub:
    """One module, ready for any number of workers of this sandbox."""

    sandbox: Sandbox
    module: bytes
    facts: ModuleFacts
    code: bytes
    compile_seconds: float


@asynccontextmanager
async def compiled_stub(
    module: bytes, path: Path | None = None, *, insecure_no_seccomp: bool = False
) -> AsyncIterator[CompiledStub]:
    """Run a sandbox for one module. What is raised inside leaves as it is, if it is one error.

    Args:
        module: Its bytes.
        path: Its file, which errors about the module name.
        insecure_no_seccomp: See `Sandbox`.

    Raises:
        SettingsError: No sandbox can be started on this machine.
        PeerError: The module breaks the contract.
    """
    with module_named(path):
        facts = inspect_module(module)
    sandbox = Sandbox(insecure_no_seccomp=insecure_no_seccomp)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(sandbox.run)
            began = trio.current_time()
            with module_named(path):
                code = await sandbox.compile(module)
            yield CompiledStub(sandbox, module, facts, code, trio.current_time() - began)
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise only_error(group) from group


@contextmanager
def module_named(path: Path | None) -> Iterator[None]:
    """Have an error about a module name its file."""
    try:
        yield
    except PeerError as exc:
        if path is None:
            raise
        raise PeerError(exc.code, f"{path}: {exc.detail}") from exc


def read_module(path: Path) -> bytes:
    """The bytes of a module; of one that is far too large, the first READ_BYTES.

    Raises:
        SettingsError: It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(READ_BYTES)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc


def only_error(group: ExceptionGroup[Exception]) -> Exception:
    """The one error in a group; a group with several stays one, as none of them is the cause."""
    if len(group.exceptions) > 1:
        return group
    (error,) = group.exceptions
    return only_error(error) if isinstance(error, ExceptionGroup) else error
