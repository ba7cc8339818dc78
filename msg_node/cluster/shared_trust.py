"""What nodes of a domain remember of other domains: a first use counts for all of them, and so does what is newest.

Each node puts what it remembers into the engine whenever that changes, and takes over what others have put there: about
domains that it has not met, and newer roots and serials of those whose key sets it has followed itself. What operators
decide at one node about a domain that another one knows (`peer retrust`, `peer forget`, `peer approve`) stays there:
nothing of the engine undoes it, and what follows from it takes the place of older keys in the engine. Source: trust and
hosts, section 3.6.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
import trio

from catalogue_client.core.state import TrustState, have_same_keys
from catalogue_client.trust_store import TrustStore
from msg_node.storage.engine_documents import TRUST, EngineDocuments
from protofly.errors import HostError, PeerError

logger = logging.getLogger("msg_node")

RETRY_SECONDS: Final = 1.0
_OTHER_KEYS: Final = (
    "cluster: another node knows %s by other keys: somebody deceives one of them, or `peer retrust` is due"
)


class SharedState(TrustState, frozen=True, kw_only=True):
    """Trust state of a domain, as the engine has it; `decided_at` is the time of an operator's decision."""

    decided_at: float = 0.0


class SharedTrust:
    """Shares trust marks with the other nodes.

    Args:
        store: What is remembered here.
        documents: Of the kind `TRUST`.
        read: Reads all of them. Blocks. Raises HostError.
    """

    def __init__(
        self, store: TrustStore, documents: EngineDocuments, read: Callable[[str], Mapping[str, bytes]]
    ) -> None:
        self._store = store
        self._documents = documents
        self._read = read
        self._lock = threading.Lock()
        self._unsaid: dict[str, TrustState] = {}
        self._wanted = trio.Event()
        self._wake: Callable[[], None] = _nothing
        store.on_saved = self._saved

    def heard(self, kinds: Collection[str] | None) -> None:
        """Rows of the domain have changed; None: perhaps of all kinds."""
        if kinds is None or TRUST in kinds:
            self._wanted.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Share until cancelled. What others remember is known when this reports started, if the engine answers."""
        token = trio.lowlevel.current_trio_token()
        self._wake = lambda: token.run_sync_soon(lambda: self._wanted.set())
        try:
            await self._try_to_share()
            task_status.started()
            while True:
                await self._wanted.wait()
                await self._try_to_share()
        finally:
            self._wake = _nothing
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._documents.close)

    async def _try_to_share(self) -> None:
        self._wanted = trio.Event()
        try:
            await trio.to_thread.run_sync(self._share)
        except HostError as exc:
            logger.error("cluster: what is remembered of other domains cannot be shared now: %s", exc)
            await trio.sleep(RETRY_SECONDS)
            self._wanted.set()

    # In threads.

    def _saved(self, state: TrustState) -> None:
        with self._lock:
            self._unsaid[state.domain] = state
        self._wake()

    def _share(self) -> None:
        rows = {domain: self._decoded(domain, row) for domain, row in self._read(TRUST).items()}
        self._take([state for state in rows.values() if state is not None])
        self._note_unsaid(rows.keys())
        with self._lock:
            unsaid, self._unsaid = self._unsaid, {}
        while unsaid:
            domain, state = next(iter(unsaid.items()))
            try:
                self._say(state, rows.get(domain))
            except HostError:
                with self._lock:
                    self._unsaid = {**unsaid, **self._unsaid}
                raise
            del unsaid[domain]

    def _note_unsaid(self, said: Collection[str]) -> None:
        """Announce trust that is remembered here from before nodes shared it."""
        for domain in self._store.domains():
            if domain in said:
                continue
            try:
                state = self._store.load(domain)
            except PeerError:
                continue
            if state is not None:
                with self._lock:
                    self._unsaid.setdefault(domain, state)

    def _say(self, state: TrustState, theirs: SharedState | None) -> None:
        decided_at = self._store.decided_at(state.domain)
        if theirs is not None:
            have_others = not state.is_pending and not have_same_keys(state, theirs)
            if have_others and decided_at <= theirs.decided_at:
                logger.error(_OTHER_KEYS, state.domain, extra={"domain": state.domain})
                return
            decided_at = max(decided_at, theirs.decided_at)
        shared = SharedState(**msgspec.structs.asdict(state), decided_at=decided_at)
        self._documents.put(state.domain, msgspec.json.encode(shared))

    def _decoded(self, domain: str, row: bytes) -> SharedState | None:
        try:
            state = msgspec.json.decode(row, type=SharedState)
        except msgspec.MsgspecError:
            logger.warning("cluster: what another node remembers of %s cannot be read", domain)
            return None
        return state if state.domain == domain else None

    def _take(self, states: Iterable[SharedState]) -> None:
        for state in states:
            known = {name: getattr(state, name) for name in TrustState.__struct_fields__}
            try:
                newer = self._store.learn(TrustState(**known), decided_at=state.decided_at)
            except PeerError as exc:  # the file is tampered with: that is reported where the domain is asked
                logger.warning("cluster: what another node remembers of %s is of no use: %s", state.domain, exc)
                continue
            if newer is not None:
                with self._lock:
                    self._unsaid.setdefault(state.domain, newer)


def _nothing() -> None:
    """Nothing runs."""
