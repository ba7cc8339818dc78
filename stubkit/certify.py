"""`stub certify`, `stub bench` and `stub fuzz`: test a module, with its author's cases, in a sandbox of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import trio

from protofly.errors import PeerError, SettingsError
from stubkit.cases import Script
from stubkit.certification import SPEC, Certification, RequirementVerdict
from stubkit.fuzz import FuzzResult, fuzz
from stubkit.live_stub import NotLiveError, Rate, StubUnderTest
from stubkit.requirements import REQUIREMENTS, judge
from stubkit.sandboxed import compiled_stub, read_module

MODULE_TITLE: Final = "Is a module that hosts accept"
BENCH_MESSAGES: Final = 2000
BENCH_BATCH: Final = 16
_Result = TypeVar("_Result")


def certify(
    path: Path, script: Script, *, kit: str, made: str, progress: Callable[[RequirementVerdict], None]
) -> Certification:
    """Test one module.

    Args:
        path: The module.
        script: Its author's cases; their member `live` says how it becomes live.
        kit: Version of this program.
        made: Time in ISO 8601.
        progress: Called with each result.

    Raises:
        SettingsError: The file cannot be read, or there is no sandbox here.
    """
    return trio.run(_certify, path, script, (kit, made), progress)


async def _certify(
    path: Path, script: Script, about: tuple[str, str], progress: Callable[[RequirementVerdict], None]
) -> Certification:
    module = await trio.to_thread.run_sync(read_module, path)
    verdicts: list[RequirementVerdict] = []

    def note(verdict: RequirementVerdict) -> None:
        verdicts.append(verdict)
        progress(verdict)

    name = version = engine = ""
    rate: Rate | None = None
    try:
        async with compiled_stub(module) as compiled:
            facts = compiled.facts
            name, version, engine = facts.name, facts.version, compiled.sandbox.fingerprint
            note(
                RequirementVerdict(number="SR-01", title=MODULE_TITLE, result="passed", detail=f"{len(module):,} bytes")
            )
            under_test = StubUnderTest(compiled, script)
            for requirement in REQUIREMENTS:
                began = trio.current_time()
                verdict = await judge(requirement, under_test)
                note(msgspec.structs.replace(verdict, seconds=round(trio.current_time() - began, 3)))
            if all(verdict.result == "passed" for verdict in verdicts):
                rate = await measured(under_test, BENCH_MESSAGES, BENCH_BATCH)
    except PeerError as exc:
        note(RequirementVerdict(number="SR-01", title=MODULE_TITLE, result="failed", detail=str(exc)))
    return Certification(
        spec=SPEC,
        stub=name,
        version=version,
        sha256=hashlib.sha256(module).hexdigest(),
        kit=about[0],
        engine=engine,
        made=about[1],
        verdicts=verdicts,
        fuel_per_message=round(rate.fuel, 1) if rate else 0.0,
        cpu_us_per_message=round(rate.cpu_us, 2) if rate else 0.0,
        memory_bytes=rate.memory_bytes if rate else 0,
    )


async def measured(under_test: StubUnderTest, messages: int, batch: int) -> Rate:
    """Measure the cost of messages in a live instance.

    Raises:
        NotLiveError: The script does not make it live.
        StubFaultError: The fault of the instance.
    """
    async with under_test.live_instance() as host:
        return await under_test.carry(host, messages, batch)


def bench(path: Path, script: Script, *, messages: int, batch: int) -> Rate:
    """`measured` for callers without an event loop.

    Raises:
        SettingsError: The file cannot be read, or the script does not make the stub live.
        PeerError: The module breaks the contract.
        StubFaultError: The fault of the instance.
    """
    return trio.run(_with_module, path, script, lambda under_test: measured(under_test, messages, batch))


def fuzz_module(path: Path, script: Script, *, calls: int, seed: int) -> FuzzResult:
    """`stubkit.fuzz.fuzz` for callers without an event loop.

    Raises:
        SettingsError: The file cannot be read.
        PeerError: The module breaks the contract.
    """
    return trio.run(_with_module, path, script, lambda under_test: fuzz(under_test, calls=calls, seed=seed))


async def _with_module(path: Path, script: Script, use: Callable[[StubUnderTest], Awaitable[_Result]]) -> _Result:
    async with compiled_stub(await trio.to_thread.run_sync(read_module, path), path) as compiled:
        try:
            return await use(StubUnderTest(compiled, script))
        except NotLiveError as exc:
            raise SettingsError(f"{path}: {exc}; docs/stub-requirements.md says what a script needs") from exc
