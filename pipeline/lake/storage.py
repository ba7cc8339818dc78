"""Files of lakes and spools, on a disk or in an object store (S3-compatible, or Azure): what both can do.

An object is there whole or not at all, and durable once it is there; nothing is renamed, linked or locked in a store.
Commits of tables hold by a conditional PUT, which `deltalake` does. Reading and writing goes through `pyarrow.fs`. Both
take credentials from where every program for the store does: the environment, a profile, or the role of the machine.
Azure alone has an object as soon as a stream to it is opened, empty until it is closed: so what others may read under a
name that they know is copied there by the store, once it is written.

All functions raise OSError: the disk, the store, or the way there has failed.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from functools import lru_cache
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq

from pipeline.lake import durable
from pipeline.lake.store_path import AZURE, Location, StorePath

_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0
_REGION: Final = "us-east-1"
"""What stores that know no regions are content with."""
_COPIED_BYTES: Final = 1 << 30
_EMULATOR: Final = "devstoreaccount1"
"""The one account of Azurite, with the key that Microsoft publishes for it. It is no secret."""
_EMULATOR_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_CANNOT_COPY: Final = {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP}
"""What systems say that do not copy by themselves."""


class Found(NamedTuple):
    """A file below a folder: its path relative to that, and what is known of it."""

    path: str
    size_bytes: int
    mtime_us: int


def exists(path: Location) -> bool:
    """True if there is a file, or anything below it."""
    if isinstance(path, Path):
        return path.exists()
    return bool(_info(path).type != arrow_fs.FileType.NotFound)


def size_of(path: Location) -> int:
    """Size of a file in bytes. Raises FileNotFoundError."""
    return marks(path).size_bytes


def marks(path: Location) -> Found:
    """By what it is noticed that a file has been changed. Raises FileNotFoundError."""
    if isinstance(path, Path):
        found = path.stat()
        return Found(path.name, found.st_size, found.st_mtime_ns // 1000)
    info = _info(path)
    if info.type != arrow_fs.FileType.File:
        raise FileNotFoundError(2, "No such object", str(path))
    return Found(path.name, info.size, _mtime_us(info))


def age_s(path: Location) -> float:
    """Seconds since a file was changed; 0 when it is gone."""
    try:
        return time.time() - marks(path).mtime_us / 1e6
    except FileNotFoundError:
        return 0.0


def read_bytes(path: Location, limit: int = -1) -> bytes:
    """The beginning of a file, or all of it. Raises FileNotFoundError."""
    if isinstance(path, Path):
        with path.open("rb") as file:
            return file.read(limit)
    with _files(path).open_input_stream(path.inner) as stream:
        content: bytes = stream.read(None if limit < 0 else limit)
        return content


def write_bytes(path: Location, content: bytes) -> None:
    """Write a file so that readers see the old one or the new one."""
    if isinstance(path, Path):
        durable.replace(path, content)
        return
    files = _files(path)
    written = path if path.scheme != AZURE else StorePath(path.bucket, f"{path.key}.{uuid4().hex}.new", path.scheme)
    with files.open_output_stream(written.inner) as stream:
        stream.write(content)
    if written is not path:
        files.copy_file(written.inner, path.inner)
        files.delete_file(written.inner)


def remove(path: Location) -> None:
    """Remove a file, if it is there."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    try:
        _files(path).delete_file(path.inner)
    except FileNotFoundError:
        return


def copy(source: Location, target: Location) -> None:
    """Copy a file to a name that is free. A store does it itself, and so does a file system that can share blocks.

    Raises ValueError: one is on a disk, the other in a store.
    """
    if isinstance(source, Path) and isinstance(target, Path):
        with source.open("rb") as reading, target.open("xb") as writing:
            _copy_content(reading, writing)
    elif isinstance(source, StorePath) and isinstance(target, StorePath) and source.scheme == target.scheme:
        _files(source).copy_file(source.inner, target.inner)
    else:
        raise ValueError(f"{source} and {target} are not in the same place")


def _copy_content(reading: BufferedReader, writing: BufferedWriter) -> None:
    try:
        while os.copy_file_range(reading.fileno(), writing.fileno(), _COPIED_BYTES):
            pass
    except OSError as exc:
        if exc.errno not in _CANNOT_COPY:
            raise
        shutil.copyfileobj(reading, writing)


def make_folder(path: Location) -> None:
    """Make a folder and those above it, where there are folders."""
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)


def files_below(folder: Location, suffix: str = "", *, besides: Container[str] = ()) -> Iterator[Found]:
    """Files whose names end so, in and below a folder, in order; none where there is no folder.

    Objects with names that no file could have (empty parts, `..`) are left out.

    Args:
        folder: Where to look.
        suffix: What names end with.
        besides: Paths that are left out, without looking at their files.
    """
    found = _files_on_disk(folder, suffix, besides) if isinstance(folder, Path) else _files_in_store(folder, suffix)
    yield from (file for file in found if file.path not in besides)


def _files_on_disk(folder: Path, suffix: str, besides: Container[str]) -> Iterator[Found]:
    names = (name for name in sorted(_paths_below(folder, "")) if name.endswith(suffix) and name not in besides)
    for path in filter(Path.is_file, map(folder.__truediv__, names)):
        with suppress(FileNotFoundError):  # it has gone since
            yield marks(path)._replace(path=path.relative_to(folder).as_posix())


def _paths_below(folder: Path | str, inside: str) -> Iterator[str]:
    """Paths of what is no folder, relative to the first one; links to folders are not followed."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # it has gone, or we have no business there
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _paths_below(entry.path, f"{inside}{entry.name}/")
        else:
            yield f"{inside}{entry.name}"


def _files_in_store(folder: StorePath, suffix: str) -> Iterator[Found]:
    selector = arrow_fs.FileSelector(folder.inner, recursive=True, allow_not_found=True)
    begin = len(folder.inner) + 1
    for info in sorted(_files(folder).get_file_info(selector), key=lambda one: str(one.path)):
        inside = info.path[begin:]
        is_plain = not {"", ".", ".."} & set(inside.split("/"))
        if info.type == arrow_fs.FileType.File and is_plain and inside.endswith(suffix):
            yield Found(inside, info.size, _mtime_us(info))


def open_parquet(path: Location, **options: Any) -> pq.ParquetFile:
    """A Parquet file to be read. Parts that are far apart are fetched from a store together."""
    if isinstance(path, Path):
        return pq.ParquetFile(path, **options)
    return pq.ParquetFile(path.inner, filesystem=_files(path), **{**options, "pre_buffer": True})


def parquet_metadata(path: Location) -> pq.FileMetaData:
    """The metadata of a Parquet file."""
    if isinstance(path, Path):
        return pq.read_metadata(path)
    return pq.read_metadata(path.inner, filesystem=_files(path))


def parquet_writer(path: Location, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """Writes a Parquet file, which is there once the writer is closed."""
    if isinstance(path, Path):
        return pq.ParquetWriter(path, schema, **options)
    return pq.ParquetWriter(path.inner, schema, filesystem=_files(path), **options)


def delta_options(path: Location) -> dict[str, str] | None:
    """Options with which `deltalake` reaches the store of a table; None for a disk. Credentials it finds by itself."""
    if isinstance(path, Path):
        return None
    if path.scheme == AZURE:
        return {}
    options = {"aws_conditional_put": "etag", "aws_region": _region()}
    endpoint = _endpoint()
    if endpoint:
        options |= {"aws_endpoint": endpoint, "aws_virtual_hosted_style_request": "false"}
        # Named by the operator; nobody else can make it plain HTTP.
        options["aws_allow_http"] = str(endpoint.startswith("http://")).lower()
    return options


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or _REGION


def _files(path: StorePath) -> arrow_fs.FileSystem:
    # By process: what a fork inherits of a client's threads does not run in it.
    if path.scheme == AZURE:
        return _azure(os.getpid(), os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""), _emulator())
    return _client(os.getpid(), _endpoint(), _region())


@lru_cache(maxsize=2)
def _client(_process: int, endpoint: str, region: str) -> arrow_fs.S3FileSystem:
    scheme, _, host = endpoint.rpartition("://")
    return arrow_fs.S3FileSystem(
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme or "https",
        region=region,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        # A small file is one request instead of three.
        allow_delayed_open=True,
    )


def _emulator() -> str:
    if os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() not in {"true", "1"}:
        return ""
    return os.environ.get("AZURITE_BLOB_STORAGE_URL") or "http://127.0.0.1:10000"


@lru_cache(maxsize=2)
def _azure(_process: int, account: str, emulator: str) -> arrow_fs.AzureFileSystem:
    # The names are those that `deltalake` looks for. Without a key the role of the machine counts, for both.
    if emulator:
        scheme, _, host = emulator.rstrip("/").rpartition("://")
        return arrow_fs.AzureFileSystem(
            account_name=_EMULATOR,
            account_key=_EMULATOR_KEY,
            blob_storage_authority=host,
            dfs_storage_authority=host,
            blob_storage_scheme=scheme,
            dfs_storage_scheme=scheme,
        )
    if not account:
        raise OSError(errno.EINVAL, "AZURE_STORAGE_ACCOUNT_NAME is not set; it says whose container an az:// URL means")
    return arrow_fs.AzureFileSystem(account_name=account, account_key=os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"))


def _info(path: StorePath) -> arrow_fs.FileInfo:
    return _files(path).get_file_info(path.inner)


def _mtime_us(info: arrow_fs.FileInfo) -> int:
    return 0 if info.mtime_ns is None else int(info.mtime_ns) // 1000
