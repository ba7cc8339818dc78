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

from protofly.errors import HostError, PeerError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.module_check import ModuleFacts, inspect_module
from stubkit.sandboxed import CompiledStub, compiled_stub, read_module
from stubkit.trial import CHECK_DOMAIN, CheckStep, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The findings of `check_stub` about a module."""

    path: str
    module_bytes: int
    facts: ModuleFacts | None
    compiled_bytes: int
    compile_seconds: float
    steps: tuple[CheckStep, ...]
    refusal: str
    """Why the module was not run at all, "" if it was."""
    is_live_unproved: bool = False
    """True if it says `live` without proof of its far end: a manifest that asks for `auth` does not let it."""

    @property
    def is_good(self) -> bool:
        """True if the stub kept the contract in every step."""
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
    module = await trio.to_thread.run_sync(read_module, path)
    try:
        facts = inspect_module(module)
    except PeerError as exc:
        return _refused(path, module, None, exc)
    try:
        async with compiled_stub(module, insecure_no_seccomp=insecure_no_seccomp) as compiled:
            return await _try_out(path, compiled, endpoints)
    except (PeerError, StubFaultError) as exc:
        return _refused(path, module, facts, exc)


async def _try_out(path: Path, compiled: CompiledStub, endpoints: Sequence[str]) -> CheckReport:
    stub = await compiled.sandbox.start_worker(CHECK_DOMAIN, compiled.code, Budget())
    try:
        trial = Trial(stub, endpoints, compiled.module)
        steps = await trial.play()
    finally:
        stub.close()
    return CheckReport(
        path=str(path),
        module_bytes=len(compiled.module),
        facts=compiled.facts,
        compiled_bytes=len(compiled.code),
        compile_seconds=compiled.compile_seconds,
        steps=tuple(steps),
        refusal="",
        is_live_unproved=trial.is_live_unproved,
    )


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
