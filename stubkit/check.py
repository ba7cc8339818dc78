"""Try a stub against the contract: structural gate, limited compilation, and a scripted life in a real sandbox worker.

The script is the same for every stub and knows none of their protocols: it starts the stub, opens what the stub wants
opened, then behaves like the worst of far ends and hosts: nonsense in both frame kinds, silence, refusals, losses, a
message of 1 MiB, a burst of small ones, a drain. A stub that keeps the contract takes all of it without a fault and
answers only with actions that a host can carry out. What each step cost is measured.

Source: docs/abi.md; docs/writing-a-stub.md (how to read the report).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from protofly.errors import HostError, SettingsError
from sandbox.core.budget import Budget
from sandbox.core.module_check import ModuleFacts, inspect_module
from sandbox.host import Sandbox
from stubkit.trial import CHECK_DOMAIN, CheckStep, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What is known about a module after `check_stub`."""

    path: str
    module_bytes: int
    facts: ModuleFacts | None
    compiled_bytes: int
    compile_seconds: float
    steps: tuple[CheckStep, ...]
    refusal: str
    """Why the module was not run at all, "" if it was."""
    is_live_unproved: bool = False
    """Whether it says `live` without proof of its far end: a manifest that asks for `auth` does not let it."""

    @property
    def is_good(self) -> bool:
        """Whether the stub kept the contract in every step."""
        return not self.refusal and all(not step.complaint for step in self.steps)


def check(path: Path, *, endpoints: Sequence[str] = ("mn",), insecure_no_seccomp: bool = False) -> CheckReport:
    """`check_stub` for callers without an event loop, such as a command line."""
    return trio.run(_check, path, tuple(endpoints), insecure_no_seccomp)


async def _check(path: Path, endpoints: Sequence[str], insecure_no_seccomp: bool) -> CheckReport:
    return await check_stub(path, endpoints=endpoints, insecure_no_seccomp=insecure_no_seccomp)


async def check_stub(
    path: Path, *, endpoints: Sequence[str] = ("mn",), insecure_no_seccomp: bool = False
) -> CheckReport:
    """Gate, compile and run one module.

    Args:
        path: The module.
        endpoints: Endpoint names that the manifest will grant; opening another one is a complaint.
        insecure_no_seccomp: Run the worker where seccomp is not there; only for trying out own stubs.

    Raises:
        SettingsError: the file cannot be read, or no sandbox can be started on this machine.
    """
    try:
        module = await trio.Path(path).read_bytes()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    try:
        facts = inspect_module(module)
    except HostError as exc:
        return _refused(path, module, None, exc)
    try:
        return await _run_in_sandbox(path, module, facts, endpoints, insecure_no_seccomp)
    except ExceptionGroup as group:
        raise _only_error(group) from group


async def _run_in_sandbox(
    path: Path, module: bytes, facts: ModuleFacts, endpoints: Sequence[str], insecure_no_seccomp: bool
) -> CheckReport:
    sandbox = Sandbox(insecure_no_seccomp=insecure_no_seccomp)
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        report = await _run(sandbox, path, module, facts, endpoints)
        nursery.cancel_scope.cancel()
    return report


def _only_error(group: ExceptionGroup[Exception]) -> Exception:
    """The one error in a group; a group with several stays one, as none of them is the cause."""
    if len(group.exceptions) > 1:
        return group
    (error,) = group.exceptions
    return _only_error(error) if isinstance(error, ExceptionGroup) else error


def _refused(path: Path, module: bytes, facts: ModuleFacts | None, error: HostError) -> CheckReport:
    return CheckReport(
        path=str(path),
        module_bytes=len(module),
        facts=facts,
        compiled_bytes=0,
        compile_seconds=0.0,
        steps=(),
        refusal=str(error),
    )


async def _run(
    sandbox: Sandbox, path: Path, module: bytes, facts: ModuleFacts, endpoints: Sequence[str]
) -> CheckReport:
    began = trio.current_time()
    try:
        code = await sandbox.compile(module)
        compile_seconds = trio.current_time() - began
        stub = await sandbox.start_worker(CHECK_DOMAIN, code, Budget())
    except HostError as exc:
        return _refused(path, module, facts, exc)
    try:
        trial = Trial(stub, endpoints)
        steps = await trial.play()
    finally:
        stub.close()
    return CheckReport(
        path=str(path),
        module_bytes=len(module),
        facts=facts,
        compiled_bytes=len(code),
        compile_seconds=compile_seconds,
        steps=tuple(steps),
        refusal="",
        is_live_unproved=trial.is_live_unproved,
    )
