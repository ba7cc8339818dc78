"""The flight recorders of stubs: what a stub was given and answered, written into a sealed file when it faults.

Recordings have messages in them, so they are encrypted under the node's secret; `trapezoid stub record` opens them. A
domain has at most FILES_PER_DOMAIN of them, and writes none more often than its stub may crash.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protofly.errors import Code, HostError, PeerError
from protofly.stub import VerifiedStub
from sandbox.core.frames import Reply
from sandbox.core.recording import FlightLog, RecordedStub, Recording, decode_recording, encode_recording
from sandbox.stub_process import Calls, StubProcess

logger = logging.getLogger("federation")

FILES_PER_DOMAIN: Final = 5
RECORDING_BYTES: Final = 256 << 20
"""The largest recording that is read, after decompression."""
SUFFIX: Final = ".recording"
_SEALED: Final = b"rmn-sealed-recording\n"
_NONCE_BYTES: Final = 12
_LEVEL: Final = 3


class Recordings:
    """The folder of sealed recordings of one node.

    Args:
        folder: Made when the first one is written.
        secret: The node's own, 32 bytes.
    """

    def __init__(self, folder: Path, *, secret: bytes) -> None:
        self._folder = folder
        self._key = hashlib.sha256(b"trapezoid stub recordings\0" + secret).digest()

    def files(self, domain: str = "") -> list[Path]:
        """Those of a domain, or all; oldest first."""
        found = self._folder.glob(f"*{SUFFIX}") if self._folder.is_dir() else ()
        return sorted(path for path in found if not domain or path.name.rpartition("-")[0] == domain)

    def write(self, recording: Recording) -> Path:
        """Seal a recording, and remove older ones of its domain beyond the limit.

        Raises:
            HostError: STORAGE.
        """
        domain = recording.stub.domain
        path = self._folder / f"{domain}-{int(recording.at * 1000):015}{SUFFIX}"
        nonce = os.urandom(_NONCE_BYTES)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sealed = AESGCM(self._key).encrypt(nonce, packed(recording), _SEALED)
            temporary = path.with_suffix(".tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_SEALED + nonce + sealed)
            temporary.replace(path)
            for old in self.files(domain)[:-FILES_PER_DOMAIN]:
                old.unlink(missing_ok=True)
        except OSError as exc:
            raise HostError(Code.STORAGE, f"recording of {domain}: {exc}") from exc
        return path

    def read(self, path: Path) -> Recording:
        """One recording, sealed by this node or exported by any.

        Raises:
            PeerError: RECORDING_KEY: this node did not seal it; DOCUMENT_MALFORMED.
            HostError: STORAGE.
        """
        raw = read_file(path)
        if not is_sealed(raw):
            return opened(path, raw)
        start = len(_SEALED) + _NONCE_BYTES
        try:
            return opened(path, AESGCM(self._key).decrypt(raw[len(_SEALED) : start], raw[start:], _SEALED))
        except (InvalidTag, ValueError) as exc:  # of a file that was cut short, even the nonce may be incomplete
            raise PeerError(Code.RECORDING_KEY, f"{path}: sealed by another node, or changed") from exc


def read_file(path: Path) -> bytes:
    """The bytes of a recording.

    Raises:
        HostError: STORAGE.
    """
    try:
        return path.read_bytes()
    except OSError as exc:
        raise HostError(Code.STORAGE, f"{path}: {exc.strerror}") from exc


def is_sealed(raw: bytes) -> bool:
    """True for a file that only its node can open."""
    return raw.startswith(_SEALED)


def opened(path: Path, raw: bytes) -> Recording:
    """Decode a recording that is not sealed, or has been opened.

    Raises:
        PeerError: DOCUMENT_MALFORMED; it names the file.
    """
    try:
        return unpacked(raw)
    except PeerError as exc:
        raise PeerError(exc.code, f"{path}: {exc.detail}") from exc


def packed(recording: Recording) -> bytes:
    """A recording as a file that anybody can read."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(encode_recording(recording))


def unpacked(raw: bytes) -> Recording:
    """The inverse of `packed`.

    Raises:
        PeerError: DOCUMENT_MALFORMED.
    """
    try:
        size = zstandard.frame_content_size(raw)  # the library takes it for the size to reserve, whatever it is
        if not 0 <= size <= RECORDING_BYTES:
            raise PeerError(Code.DOCUMENT_MALFORMED, f"no recording: {size:,} bytes; at most {RECORDING_BYTES:,}")
        content = zstandard.ZstdDecompressor().decompress(raw)
    except zstandard.ZstdError as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"no recording: {exc}") from exc
    return decode_recording(content)


class FlightRecorder:
    """Records one instance (see `ExchangeRecorder`), and writes a file when it faults."""

    def __init__(self, stub: RecordedStub, recordings: Recordings, max_bytes: int) -> None:
        self._stub = stub
        self._recordings = recordings
        self._log = FlightLog(max_bytes)

    def handed(self, calls: Calls) -> None:
        """See `ExchangeRecorder`."""
        self._log.handed(calls)

    def answered(self, reply: Reply) -> None:
        """See `ExchangeRecorder`."""
        self._log.answered(reply.outputs)

    async def faulted(self, fault: str) -> None:
        """See `ExchangeRecorder`. The file is written in a thread, to its end: it may be a large one."""
        about = {"domain": self._stub.domain, "stub": self._stub.name}
        recording = self._log.recording(self._stub, fault=fault, at=time.time())
        try:
            with trio.CancelScope(shield=True):
                path = await trio.to_thread.run_sync(self._recordings.write, recording)
        except HostError as exc:
            logger.error("the recording of a stub is lost: %s", exc, extra=about)
        else:
            logger.warning("stub %s of %s is recorded in %s", self._stub.name, self._stub.domain, path, extra=about)


@dataclass(slots=True)
class FlightRecorders:
    """Recorders of the stubs whose peer entries ask for it.

    Attributes:
        recordings: The folder; None where nothing is recorded.
        max_bytes: Bytes to keep, by domain. Others count for instances that are loaded from then on.
    """

    recordings: Recordings | None = None
    max_bytes: Mapping[str, int] = field(default_factory=dict)

    def follow(self, process: StubProcess, stub: VerifiedStub) -> None:
        """Record an instance that has just been loaded, if its domain is recorded."""
        max_bytes = self.max_bytes.get(stub.domain, 0)
        if self.recordings is None or not max_bytes:
            return
        about = RecordedStub(
            domain=stub.domain,
            name=stub.name,
            version=stub.version,
            sha256=stub.module_sha256,
            budget=process.budget.to_bytes(),
        )
        process.record(FlightRecorder(about, self.recordings, max_bytes))
