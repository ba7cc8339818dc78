"""What we know of foreign domains' keys, on disk: roots, high-water marks, held updates.

One SQLite file of its own, which cleaning the stubs cache never touches. A state is on disk before `save` returns. Each
row carries a MAC under the node's local secret, so that a mark changed by hand is noticed instead of believed.

Source: trust and hosts, section 3.6, step 7; section 7, row 26.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec
import trio

from catalogue_client.core.state import TrustState, raised, retrusted
from catalogue_client.core.updates import readmitted
from catalogue_client.core.verify import approve
from protofly.errors import Code, HostError, PeerError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS trust (domain TEXT PRIMARY KEY, state BLOB NOT NULL, mac BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS decided (domain TEXT PRIMARY KEY, at REAL NOT NULL) STRICT;
"""


class ChangedMeanwhileError(PeerError):
    """Somebody else changed what is remembered of a domain between a read and a write."""

    def __init__(self, domain: str) -> None:
        super().__init__(Code.BROKEN_TRUST, "what is remembered was changed meanwhile; ask again", domain=domain)


class TrustStore:
    """Durable `TrustState` per domain. `secret` (32 bytes) is this node's own and lies outside what it protects.

    Attributes:
        on_saved: Called with each state that is remembered from now on, in whatever thread wrote it.
    """

    def __init__(self, path: Path, *, secret: bytes) -> None:
        """Open or create the file, readable by its owner only.

        Raises:
            HostError: STORAGE: it cannot be opened or is not a trust store.
        """
        self._key = hashlib.sha256(b"trapezoid trust store\0" + secret).digest()
        self._lock = threading.Lock()
        self.on_saved: Callable[[TrustState], None] = _ignore
        with contextlib.ExitStack() as undo:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600)
                self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                undo.callback(self._database.close)
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=FULL")
                self._database.executescript(_SCHEMA)
                # Reading does not wait for a write that is being synced.
                self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            except (sqlite3.Error, OSError) as error:
                raise HostError(Code.STORAGE, f"trust store: {error}") from error
            undo.pop_all()

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
        """Return the state remembered of `domain`, or None.

        Raises:
            PeerError: CACHE_TAMPERED if the row was not written by this node; `retrust` is the way out.
            HostError: STORAGE.
        """
        return self._read(self._reader, domain)

    def _read(self, connection: sqlite3.Connection, domain: str) -> TrustState | None:
        try:
            row = connection.execute("SELECT state, mac FROM trust WHERE domain = ?", (domain,)).fetchone()
        except sqlite3.Error as error:
            raise HostError(Code.STORAGE, f"trust store: {error}") from error
        if row is None:
            return None
        state, mac = row
        if not hmac.compare_digest(mac, _mac_of(self._key, domain, state)):
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

    async def replace(self, before: TrustState | None, state: TrustState) -> None:
        """Remember `state` if what is remembered is still `before`; on disk when this returns.

        The operator's commands write into the same file while a node asks other domains. What the operator said
        meanwhile must not be undone by an answer that was on its way.

        Raises:
            ChangedMeanwhileError: It is something else; nothing was written.
            HostError: STORAGE.
        """
        await trio.to_thread.run_sync(self.replace_now, before, state)

    def replace_now(self, before: TrustState | None, state: TrustState) -> None:
        """Do as `replace`, and block meanwhile."""
        with self._transaction() as database:
            if self._read(database, state.domain) != before:
                raise ChangedMeanwhileError(state.domain)
            self._insert(database, state)
        self.on_saved(state)

    def decided_at(self, domain: str) -> float:
        """Time of the operator's last decision about trust in a domain, in Unix seconds; 0.0 before the first one.

        Raises:
            HostError: STORAGE, the database cannot be read.
        """
        try:
            return _decided_at(self._reader, domain)
        except sqlite3.Error as error:
            raise HostError(Code.STORAGE, f"trust store: {error}") from error

    def learn(self, theirs: TrustState, *, decided_at: float = 0.0) -> TrustState | None:
        """Take over what another node of ours remembers of a domain: all of it at first, later what it saw besides.

        What an operator has made this node forget does not come back so, unless one decided later there. Blocks.

        Args:
            theirs: What it remembers.
            decided_at: When an operator decided that.

        Returns:
            What is remembered here if that other node should know it, None otherwise.

        Raises:
            PeerError: CACHE_TAMPERED.
            HostError: STORAGE.
        """
        with self._transaction() as database:
            ours = self._read(database, theirs.domain)
            if ours is None and _decided_at(database, theirs.domain) > decided_at:
                return None
            following = theirs if ours is None else raised(ours, theirs)
            if following is not None:
                self._insert(database, following)
                if ours is None and decided_at:
                    _decide(database, theirs.domain, decided_at)
                return None
        return ours if ours is not None and raised(theirs, ours) is not None else None

    async def retrust(self, domain: str, fingerprint: str) -> TrustState | None:
        """The operator's way out of broken trust: forget the domain, and believe only the key set named here next.

        Returns:
            What was remembered before, None when that was nothing or unreadable. `forget` brings it back until a root
            of the named key set was accepted.
        """
        return await trio.to_thread.run_sync(self.retrust_now, domain, fingerprint)

    def retrust_now(self, domain: str, fingerprint: str) -> TrustState | None:
        """Do as `retrust`, and block meanwhile."""
        try:
            before = self.load(domain)
        except PeerError:
            before = None
        self._write(retrusted(before, domain, fingerprint), is_decided=True)
        return before

    async def forget(self, domain: str) -> TrustState | None:
        """Undo a `retrust` that was not used yet; else forget everything about the domain, as if it was never met.

        Returns:
            What is remembered from now on.

        Raises:
            HostError: NOT_REGISTERED when nothing is remembered, or STORAGE.
        """
        return await trio.to_thread.run_sync(self.forget_now, domain)

    def forget_now(self, domain: str) -> TrustState | None:
        """Do as `forget`, and block meanwhile."""
        try:
            state = self.load(domain)
        except PeerError:
            state = None  # unreadable: it goes
        if state is None and domain not in self.domains():
            raise HostError(Code.NOT_REGISTERED, f"nothing is remembered of {domain}")
        if state is not None and state.replaced is not None:
            self.replace_now(state, state.replaced)
            return state.replaced
        with self._transaction() as database:
            database.execute("DELETE FROM trust WHERE domain = ?", (domain,))
            _decide(database, domain, time.time())
        return None

    async def approve(self, domain: str, name: str) -> None:
        """The operator grants what the held update of stub `name` wants, and lets versions run that have failed here.

        Raises:
            HostError: NOT_REGISTERED if nothing of that name is held, and none has failed.
        """
        state = self.load(domain)
        if state is None or (name not in state.held and not state.failed_modules):
            raise HostError(Code.NOT_REGISTERED, f"no update of {name} of {domain} is held, and none has failed here")
        following = readmitted(state)
        await self.replace(state, approve(following, name) if name in state.held else following)

    def _write(self, state: TrustState, *, is_decided: bool = False) -> None:
        with self._transaction() as database:
            self._insert(database, state)
            if is_decided:
                _decide(database, state.domain, time.time())
        self.on_saved(state)

    def _insert(self, database: sqlite3.Connection, state: TrustState) -> None:
        raw = msgspec.json.encode(state)
        row = (state.domain, raw, _mac_of(self._key, state.domain, raw))
        database.execute("INSERT OR REPLACE INTO trust (domain, state, mac) VALUES (?, ?, ?)", row)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time, in this process and beside it. Raises HostError: STORAGE."""
        try:
            with self._lock:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                except BaseException:
                    self._database.execute("ROLLBACK")
                    raise
                self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise HostError(Code.STORAGE, f"trust store: {error}") from error


def _mac_of(key: bytes, domain: str, state: bytes) -> bytes:
    return hmac.digest(key, domain.encode() + b"\0" + state, "sha256")


def _decided_at(connection: sqlite3.Connection, domain: str) -> float:
    row = connection.execute("SELECT at FROM decided WHERE domain = ?", (domain,)).fetchone()
    return 0.0 if row is None else float(row[0])


def _decide(database: sqlite3.Connection, domain: str, at: float) -> None:
    database.execute("INSERT OR REPLACE INTO decided (domain, at) VALUES (?, ?)", (domain, at))


def _ignore(_state: TrustState) -> None:
    """Nobody else wants to know."""
