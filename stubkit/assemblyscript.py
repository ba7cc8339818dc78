"""Compile a stub written in AssemblyScript, with the compiler of npm: pinned by a lock file, installed once for a user.

The compiler knows no custom sections, so `STUB_NAME`, `STUB_VERSION` and what else a module says of itself are read
from the source and put behind the module.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from protofly import limits
from protofly.errors import SettingsError
from sandbox.core.module_check import ABI_SECTION, ABI_VERSION

SDK_FOLDER: Final = Path(__file__).parent / "sdk" / "assemblyscript"
INSTALL_SECONDS: Final = 180.0
COMPILE_SECONDS: Final = 120.0
_FILES: Final = ("package.json", "package-lock.json", ".npmrc")
_SHOWN_CHARS: Final = 4000
_OPTIONS: Final = (
    "--optimizeLevel=3",
    "--shrinkLevel=1",
    "--converge",
    "--runtime=minimal",
    "--use=abort=trapezoid_stub/abort",
    "--exportStart=_initialize",
    "--initialMemory=4",
    f"--maximumMemory={limits.MEMORY_BYTES >> 16}",
    "--disable=simd",
)
_CONSTANT: Final = r"""export const STUB_%s(?:: *string)? *= *(?:"([^"\\\n]*)"|'([^'\\\n]*)'|`([^`\\$]*)`)"""
_ENTRY: Final = """import * as kit from "./trapezoid_stub";
import * as own from "./stub";
kit.__connect(own.onEvent, %s);
export function window(size: i32): i32 { return kit.__window(size); }
export function handle(pointer: i32, length: i32): i64 {
  const answer = kit.__handle(pointer, length);
  kit.__tidy();
  return answer;
}
"""


def compile_assemblyscript(source: Path, work: Path, has_names: bool) -> bytes:
    """The module of one source file, compiled in the folder `work`.

    Raises:
        SettingsError: No Node.js or npm, the compiler cannot be installed, or its complaint.
    """
    text = _read(source)
    section = _section(source, text)
    compiler = _installed_compiler()
    batch_end = "own.onBatchEnd" if "export function onBatchEnd(" in text else "() => {}"
    (work / "stub.ts").write_text(text, encoding="utf-8")
    (work / "entry.ts").write_text(_ENTRY % batch_end, encoding="utf-8")
    shutil.copyfile(SDK_FOLDER / "trapezoid_stub.ts", work / "trapezoid_stub.ts")
    script = compiler / "node_modules" / "assemblyscript" / "bin" / "asc.js"
    _run(
        ["node", str(script), "entry.ts", "-o", "stub.wasm", *_OPTIONS, *(["--debug"] if has_names else [])],
        work,
        COMPILE_SECONDS,
    )
    return (work / "stub.wasm").read_bytes() + custom_section(ABI_SECTION, msgspec.json.encode(section))


def custom_section(name: str, payload: bytes) -> bytes:
    """A whole custom section of a module, header included."""
    body = _leb128(len(name)) + name.encode() + payload
    return b"\0" + _leb128(len(body)) + body


def _leb128(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + _leb128(value >> 7) if value > 0x7F else low


def _read(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except OSError as exc:
        raise SettingsError(f"{source}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{source}: not UTF-8") from exc


def _section(source: Path, text: str) -> dict[str, Any]:
    """The section in which the module names itself, from the constants of its source."""
    said = {name: _constant(text, name) for name in ("NAME", "VERSION", "CONFIGURATION", "EVENTS", "KIND")}
    for name in ("NAME", "VERSION"):
        if not said[name]:
            raise SettingsError(f'{source}: the line `export const STUB_{name}: string = "…";` is missing')
    section: dict[str, Any] = {"abi": ABI_VERSION, "name": said["NAME"], "version": said["VERSION"]}
    for name in ("CONFIGURATION", "EVENTS"):
        if said[name]:
            try:
                section[name.lower()] = msgspec.json.decode(said[name])
            except msgspec.DecodeError as exc:
                raise SettingsError(f"{source}: STUB_{name} is not JSON: {exc}") from exc
    if said["KIND"]:
        section["kind"] = said["KIND"]
    return section


def _constant(text: str, name: str) -> str:
    found = re.search(_CONSTANT % name, text)
    return next((group for group in found.groups() if group), "") if found else ""


def _installed_compiler() -> Path:
    """The folder with the compiler of the lock file; it is installed there at its first use."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise SettingsError(f"AssemblyScript needs Node.js 20 and npm; there is no `{program}`")
    lock = (SDK_FOLDER / "package-lock.json").read_bytes()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trapezoid"
    folder = root / f"assemblyscript-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (folder / "node_modules").is_dir():
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=root))
        try:
            for name in _FILES:
                shutil.copyfile(SDK_FOLDER / name, fresh / name)
            _run(["npm", "ci", "--no-progress"], fresh, INSTALL_SECONDS)
            with contextlib.suppress(OSError):  # another process was faster
                fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _run(command: list[str], folder: Path, seconds: float) -> None:
    program = f"{command[0]} {Path(command[1]).name}"
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SettingsError(f"{program} did not end within {seconds:.0f} s") from exc
    except OSError as exc:
        raise SettingsError(f"{program} cannot be started: {exc.strerror}") from exc
    if done.returncode:
        raise SettingsError(f"{program} failed:\n{(done.stderr or done.stdout).strip()[-_SHOWN_CHARS:]}")
