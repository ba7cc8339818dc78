"""What we know of foreign domains' keys, on disk: roots, high-water marks, held updates.

One SQLite file of its own, which cleaning the stubs cache never touches. A state is on disk before `save` returns. Each
row carries a MAC under the node's local secret, so that a mark changed by hand is noticed instead of believed.

Source: trust and hosts, section 3.6, step 7; section 7, row 26.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import threading
from pathlib import Path
from typing import Self

import msgspec
import trio

from catalogue_client.core.state import TrustState
from catalogue_client.core.verify import approve
from protofly.documents import TrustLevel
from protofly.errors import Code, HostError, PeerError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS trust (domain TEXT PRIMARY KEY, state BLOB NOT NULL, mac BLOB NOT NULL) STRICT;
"""


class TrustStore:
    """Durable `TrustState` per domain. `secret` (32 bytes) is this node's own and lies outside what it protects."""

    def __init__(self, path: Path, *, secret: bytes) -> None:
        """Open or create the file, readable by its owner only.

        Raises:
            HostError: STORAGE: it cannot be opened or is not a trust store.
        """
        self._key = hashlib.sha256(b"trapezoid trust store\0" + secret).digest()
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_SCHEMA)
            # Reading does not wait for a write that is being synced.
            self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise HostError(Code.STORAGE, f"trust store: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._reader.close()
            self._database.close()

    def load(self, domain: str) -> TrustState | None:
        """What is remembered of `domain`, or None.

        Raises:
            PeerError: CACHE_TAMPERED if the row was not written by this node; `retrust` is the way out.
        """
        row = self._reader.execute("SELECT state, mac FROM trust WHERE domain = ?", (domain,)).fetchone()
        if row is None:
            return None
        state, mac = row
        if not hmac.compare_digest(mac, self._mac(domain, state)):
            raise PeerError(Code.CACHE_TAMPERED, "the trust marks were changed by someone else", domain=domain)
        try:
            return msgspec.json.decode(state, type=TrustState)
        except msgspec.MsgspecError as error:
            raise PeerError(Code.CACHE_TAMPERED, f"the trust marks cannot be read: {error}", domain=domain) from error

    def domains(self) -> list[str]:
        """Every domain of which something is remembered, sorted."""
        return [domain for (domain,) in self._reader.execute("SELECT domain FROM trust ORDER BY domain")]

    async def save(self, state: TrustState) -> None:
        """Remember `state`; on disk when this returns.

        Raises:
            HostError: STORAGE.
        """
        # Not abandoned on cancel: a half-known outcome of a write would be worse than the wait.
        await trio.to_thread.run_sync(self._write, state)

    async def retrust(self, domain: str, fingerprint: str) -> None:
        """The operator's way out of broken trust: forget the domain, and believe only the key set named here next."""
        await self.save(TrustState(domain=domain, level=TrustLevel.PINNED, fingerprints=[fingerprint]))

    async def approve(self, domain: str, name: str) -> None:
        """The operator grants what the held update of stub `name` wants.

        Raises:
            HostError: NOT_REGISTERED if nothing of that name is held.
        """
        state = self.load(domain)
        if state is None or name not in state.held:
            raise HostError(Code.NOT_REGISTERED, f"no update of {name} of {domain} is held")
        await self.save(approve(state, name))

    def _write(self, state: TrustState) -> None:
        raw = msgspec.json.encode(state)
        row = (state.domain, raw, self._mac(state.domain, raw))
        try:
            with self._lock:
                self._database.execute("INSERT OR REPLACE INTO trust (domain, state, mac) VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            raise HostError(Code.STORAGE, f"trust store: {error}") from error

    def _mac(self, domain: str, state: bytes) -> bytes:
        return hmac.digest(self._key, domain.encode() + b"\0" + state, "sha256")
