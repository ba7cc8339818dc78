"""Which engine the installed package carries, without loading it.

The Python package has a version of its own: package 50.0.1 carries library 50.0.0. Advisories are about the library, so
the library is asked. It has no function for that; the text that it writes when it finds a defect of its own holds the
version, and is a constant in the file.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = "wasmtime"
_DEFECT_TEXT: Final = b"This is a bug in Wasmtime"
_VERSION: Final = re.compile(rb"version: (\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)\n\s*\Z")
_LOOKED_BACK_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """Versions of the engine.

    Attributes:
        library: Of the library that runs guests. If the file does not say, `sha256-` and the beginning of its hash.
        package: Of the Python package around it.
    """

    library: str
    package: str

    def __str__(self) -> str:
        return f"{PACKAGE} {self.library} (package {self.package})"


@cache
def engine_version() -> EngineVersion:
    """The engine that this installation runs guests with.

    Raises:
        FileNotFoundError: It is not installed.
    """
    spec = find_spec(PACKAGE)  # finds, and does not load
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in Path(folder).glob("*/_*wasmtime*") if path.is_file()]
    if not found:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed, or not for this platform")
    try:
        package = version(PACKAGE)
    except PackageNotFoundError:
        package = "unknown"
    return EngineVersion(library_version(found[0]), package)


def library_version(file: Path) -> str:
    """The version that a library file names; `sha256-` and the beginning of its hash if it names none."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(_DEFECT_TEXT)
        while place >= 0:
            found = _VERSION.search(content[max(0, place - _LOOKED_BACK_BYTES) : place])
            if found is not None:
                return found[1].decode()
            place = content.find(_DEFECT_TEXT, place + 1)
        return f"sha256-{hashlib.sha256(content).hexdigest()[:16]}"
