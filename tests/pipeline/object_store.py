"""Real object stores on loopback: SeaweedFS for S3, out of its wheel on PyPI, and Azurite for Azure, from npm.

SeaweedFS was chosen because it refuses a conditional PUT (`If-None-Match: *`) under a lock of its own, so that of
several who commit at once exactly one succeeds; because its data outlives its process; and because it needs no
container. Azurite, by Microsoft, does the same in one thread. For Google's store there is no such server: those on PyPI
write twice where `ifGenerationMatch=0` forbids it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pyarrow.fs as arrow_fs

from pipeline.lake.store_path import AZURE, StorePath
from tests.support.node_peers import installed

KEY_ID = "AKIATESTTESTTESTTEST"
SECRET = "tests+only/never-in-any-output-0123456789"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_PROGRAM = Path(sys.executable).with_name("weed")
_SECONDS = 60.0
_SERVICES = ("master", "volume", "filer", "s3")


def reserved() -> socket.socket:
    """A port that nobody else gets as long as this is open, but on which a server can listen."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def environment(port: int) -> dict[str, str]:
    """With what programs find the store, and are let in."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def azure_environment(port: int) -> dict[str, str]:
    """The same for the emulator of Azure, whose account and key everybody knows."""
    return {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
    }


@dataclass(frozen=True)
class ObjectStore:
    """A store that runs.

    Attributes:
        port: Of S3, on loopback.
    """

    port: int

    @property
    def bucket(self) -> StorePath:
        """The one bucket: a store of this kind makes files of their own for each."""
        return StorePath("tests")

    def upload(self, folder: Path, to: StorePath) -> None:
        """Copy all files of a folder, manifests last, as one that uploads segments should."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        for path in sorted(paths, key=lambda path: (path.suffix == ".json", path)):
            with self.files().open_output_stream((to / path.relative_to(folder).as_posix()).inner) as stream:
                stream.write(path.read_bytes())

    def files(self) -> arrow_fs.FileSystem:
        """A client, with the rights of everybody who has the key."""
        return arrow_fs.S3FileSystem(
            access_key=KEY_ID,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_delayed_open=True,
        )


class AzureStore(ObjectStore):
    """The emulator of Azure."""

    @property
    def bucket(self) -> StorePath:
        """The one container."""
        return StorePath("tests", scheme=AZURE)

    def files(self) -> arrow_fs.FileSystem:
        """A client of its own, as `azcopy` would be."""
        here = f"127.0.0.1:{self.port}"
        return arrow_fs.AzureFileSystem(
            account_name="devstoreaccount1",
            account_key=AZURE_KEY,
            blob_storage_authority=here,
            dfs_storage_authority=here,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )


@contextmanager
def object_store(folder: Path, port: int) -> Iterator[ObjectStore]:
    """Start a store whose data is in this folder; ended at once, as a machine that fails would be.

    Raises:
        AssertionError: It does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rights = {"name": "tests", "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [rights]}))
    held = [reserved() for _ in range(2 * len(_SERVICES) - 1)]
    others = [one.getsockname()[1] for one in held]
    ports = [f"-{name}.port.grpc={others.pop()}" for name in _SERVICES]
    ports += [f"-{name}.port={others.pop()}" for name in _SERVICES[:-1]]
    where = [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.port={port}"]
    what = [
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-volume.max=20",
        "-volume.minFreeSpace=16MiB",
    ]
    command = [str(_PROGRAM), "-logtostderr=true", "server", *where, *what, "-master.volumeSizeLimitMB=64", *ports]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=_quiet())
    try:
        _wait(process, port, folder / "log")
        store = ObjectStore(port)
        _wait_for_room(store)
        yield store
    finally:
        process.kill()
        process.wait()
        for one in held:
            one.close()


@contextmanager
def azure_store(folder: Path, port: int) -> Iterator[ObjectStore]:
    """Start the emulator of Azure with its data in this folder; the test is skipped where npm cannot install it.

    Raises:
        AssertionError: It does not come up.
    """
    program = installed("azurite") / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--location", str(folder / "data"), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command = ["node", str(program), "--silent", "--disableTelemetry", "--skipApiVersionCheck", *where]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=_quiet())
    try:
        _wait(process, port, folder / "log")
        store = AzureStore(port)
        _wait_for_room(store)
        yield store
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(f"http://127.0.0.1:{port}/status", timeout=2).close()
        except HTTPError:
            return
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text(errors="replace")[-3000:])


def _wait_for_room(store: ObjectStore) -> None:
    """Its gate answers before the places for objects are there."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            store.files().create_dir(store.bucket.inner)
            with store.files().open_output_stream((store.bucket / "first").inner) as stream:
                stream.write(b"x")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _quiet() -> dict[str, str]:
    """Without the credentials of other stores, and without what would make it look for other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WEED_"))}
