"""One archive with all that a cluster needs to run the pipeline: our code, and every library that it imports.

Executors unpack it beside them and put it on their path, before what their machines have under the same names. What it
does not bring is Python, of the same minor version as the one that packed it, and PySpark, which comes with Spark.

The archive depends on what is installed and on nothing else: the same environment gives the same bytes.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from pipeline.lake.table_log import LakeError
from pipeline.spark.session import WORKER_PYTHON

FOLDER: Final = "trapezoid"
"""Name under which executors unpack it."""
_OURS: Final = ("pipeline", "policy", "protofly")
_LIBRARIES: Final = (
    *("cryptography", "deltalake", "httpx", "idna", "jinja2", "matplotlib", "msgspec", "numpy", "pandas"),
    *("prometheus-client", "pyarrow", "rich", "typer", "zstandard"),
)
_WITH_SPARK: Final = frozenset({"pyspark", "py4j"})
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_LEFT_OUT: Final = frozenset({"__pycache__", "include", "tests"})
_LEVEL: Final = 1
"""Of compression: libraries are mostly machine code, which more work makes little smaller."""
_FILE_MODE: Final = 0o644


def pack(archive: Path) -> int:
    """Write the archive, a `.tar.gz`; returns how many files are in it.

    Raises:
        LakeError: A library is not installed.
        OSError: It cannot be written.
    """
    files = dict(sorted(contents()))
    temporary = archive.with_name(archive.name + ".tmp")
    with (
        temporary.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files.items():
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), _FILE_MODE
            tar.addfile(member, io.BytesIO(content))
    temporary.replace(archive)
    return len(files)


def contents() -> Iterator[tuple[str, Path]]:
    """Yield names and files of an archive for executors. Raises LakeError: a library is not installed."""
    yield from _our_files()
    yield from _library_files()


def archive_settings(archive: Path) -> dict[str, str]:
    """Settings of Spark that bring an archive to its executors.

    Their interpreter is looked for on their path, under the name that every Python of this version has: where ours is
    says nothing about other machines.
    """
    return {
        WORKER_PYTHON: f"python{python_version()}",
        "spark.archives": f"{archive.absolute()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
        "spark.yarn.appMasterEnv.PYTHONPATH": f"./{FOLDER}",
    }


def python_version() -> str:
    """The version that executors need."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _our_files() -> Iterator[tuple[str, Path]]:
    for name in _OURS:
        [root] = import_module(name).__path__
        for path in Path(root).rglob("*"):
            inside = path.relative_to(root)
            if path.is_file() and not _LEFT_OUT & set(inside.parts):
                yield f"{name}/{inside.as_posix()}", path


def _library_files() -> Iterator[tuple[str, Path]]:
    for library in _with_requirements(_LIBRARIES):
        for file in library.files or ():
            path = Path(str(file.locate()))
            is_inside = ".." not in file.parts and not file.is_absolute()
            if is_inside and not _LEFT_OUT & set(file.parts) and path.is_file():
                yield file.as_posix(), path


def _with_requirements(names: Iterable[str]) -> list[Distribution]:
    """These libraries and all that they need."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found or key in _WITH_SPARK:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError as exc:
            if name not in names:
                continue  # needed on other systems only
            raise LakeError(f"{name} is not installed; `pip install 'trapezoid[pipeline]'` brings it") from exc
        waiting += [_required(text) for text in found[key].requires or () if "extra ==" not in text]
    return [found[key] for key in sorted(found)]


def _required(text: str) -> str:
    match = _NAME.match(text)
    assert match is not None
    return match[0]
