"""The relay on the `ws` package of Node.js: copied to a folder of its own, its package installed there by npm.

Versions and hashes are those of `package-lock.json`, which names no registry. Nothing is installed into the project.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import trio

from protofly.errors import Code, TransportError

SOURCES: Final = Path(__file__).resolve().parents[1] / "peers" / "ws_relay"
INSTALL_SECONDS: Final = 60.0
_FILES: Final = ("package.json", "package-lock.json", ".npmrc", "relay.js", "chain.js")
_MARK: Final = "installed.lock"
_LOG_CHARS: Final = 300


async def install_ws_relay(folder: Path, *, script: str = "relay.js") -> Path:
    """Have the relays and their package in `folder`; returns the path of `script`.

    Does nothing when they are there already.

    Raises:
        TransportError: NOT_CONNECTED when there is no Node.js, no npm, or npm cannot install; the text has its last
            words.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise TransportError(Code.NOT_CONNECTED, f"there is no {program}")
    if not _has_package(folder):
        await _install(folder)
        shutil.copyfile(folder / "package-lock.json", folder / _MARK)
    return folder / script


def _has_package(folder: Path) -> bool:
    """Copy our files; whether what the lockfile names was installed beside them before."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copyfile(SOURCES / name, folder / name)
    mark = folder / _MARK
    return mark.exists() and mark.read_bytes() == (folder / "package-lock.json").read_bytes()


async def _install(folder: Path) -> None:
    with trio.move_on_after(INSTALL_SECONDS):
        done = await trio.run_process(
            ["npm", "ci", "--no-progress"],
            cwd=folder,
            stdin=b"",
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            words = " ".join(done.stdout.decode(errors="replace").split())[-_LOG_CHARS:]
            raise TransportError(Code.NOT_CONNECTED, f"npm cannot install ws: {words}")
        return
    raise TransportError(Code.NOT_CONNECTED, f"npm did not install ws within {INSTALL_SECONDS:.0f} s")
