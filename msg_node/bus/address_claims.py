"""Has what sessions own claimed in the directory, beside its rows: nothing is promised before both are done.

It stands in front of the state store. Claims and releases follow from the rows that are submitted, keep their order,
and go to the directory many at a time. An address that another node has already is lost here: the step that wanted it
is answered 409 `address-taken`, what memory holds of it is undone (`on_lost`), and nobody else pays for that. A claim
of a node that died before it stored what the claim is for stands for nothing: it is replaced. What is below an address
of another node is lost as well (`OtherClaims`). While the directory cannot be asked, steps are answered like those
whose rows cannot be stored, and their claims are tried again. Source: design, section 6.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial

import trio

from msg_node.addresses.core.allocation import OwnedRow
from msg_node.bus.other_claims import OtherClaims
from msg_node.cluster.directory import Claim, Directory
from msg_node.kernel.changes import Change, Table
from msg_node.kernel.session import Session, SessionRow
from msg_node.storage.state_store import OnDurable, OnFailed, StateStore, attempt
from protofly.errors import Code, HostError
from protofly.limits import STATE_RETRY_SECONDS

logger = logging.getLogger("msg_node")


class ClaimsLostError(HostError):
    """Other nodes have addresses that were claimed here.

    Attributes:
        keys: Those addresses.
        sids: Sessions that had claimed them: what is reported to these meanwhile may not hold.
        sid_keys: The same as keys of their rows.
    """

    def __init__(self, keys: AbstractSet[str], sids: AbstractSet[int]) -> None:
        super().__init__(Code.ADDRESS_TAKEN, "another node has this address")
        self.keys = keys
        self.sids = sids
        self.sid_keys = frozenset(map(str, sids))


class _Promise:
    """The steps that follow when rows and claims are both done, or one of them has failed."""

    __slots__ = ("_error", "_on_durable", "_on_failed", "_open")

    def __init__(self, on_durable: OnDurable, on_failed: OnFailed | None) -> None:
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._open = 2
        self._error: HostError | None = None

    def kept(self) -> None:
        self._settle()

    def broken(self, error: HostError) -> None:
        if self._error is None or isinstance(self._error, ClaimsLostError):  # rows that are not stored concern all
            self._error = error
        self._settle()

    def _settle(self) -> None:
        self._open -= 1
        if self._open:
            return
        if self._error is None:
            attempt(self._on_durable)
        elif self._on_failed is not None:
            attempt(partial(self._on_failed, self._error))


@dataclass(frozen=True, slots=True)
class _Step:
    """Keys that one submission owns from now on (True) or no more, in order; none for a report of earlier steps.

    Attributes:
        sids: Sessions that claim some of them, by key.
    """

    keys: dict[str, bool]
    promise: _Promise | None
    sids: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Exempt:
    """Claims that do not follow from rows.

    Attributes:
        claimed: Made already, for the next submission.
        kept: Kept for a while, and whether rows have ended them meanwhile.
    """

    claimed: frozenset[str] = frozenset()
    kept: dict[str, bool] = field(default_factory=dict)

    def keys_to_change(self, keys: dict[str, bool]) -> dict[str, bool]:
        """Those of the keys of a submission that are to be claimed (True) or released."""
        claimed, self.claimed = self.claimed, frozenset()
        changed = {key: is_owned for key, is_owned in keys.items() if not (is_owned and key in claimed)}
        for key in changed.keys() & self.kept.keys():
            self.kept[key] = not changed[key]
        return {key: is_owned for key, is_owned in changed.items() if is_owned or key not in self.kept}


class AddressClaims:
    """Stands in for the state store where a step owns or releases addresses.

    Args:
        store: Takes the rows.
        directory: Takes the claims.
        node: Our name.

    Attributes:
        directory: See above.
        held: Runtime addresses that are claimed for sessions here.
        on_lost: Called with addresses that another node owns and memory still has here.
        on_claimed: Called with addresses that are ours from now on.
        others: What other nodes have claimed.
    """

    def __init__(self, store: StateStore, directory: Directory, node: str) -> None:
        self._store = store
        self.directory = directory
        self._node = node
        self._runtimes: dict[str, str] = {}
        self._of_runtime: Counter[str] = Counter()
        self._steps: list[_Step] = []
        self._claiming: list[_Step] = []
        self._is_refused = False
        self._exempt = _Exempt()
        self._wanted = trio.Event()
        self._called_back: Callable[[], None] = _nothing
        self.held: set[str] = set()
        self.on_lost: Callable[[Sequence[str]], None] = _ignore
        self.on_claimed: Callable[[Collection[str]], None] = _ignore
        self.others = OtherClaims(directory, node)

    @property
    def on_called_back(self) -> Callable[[], None]:
        """See `StateStore`."""
        return self._called_back

    @on_called_back.setter
    def on_called_back(self, called_back: Callable[[], None]) -> None:
        self._called_back = self._store.on_called_back = called_back

    @property
    def is_settled(self) -> bool:
        """True if everything that was submitted is durable and claimed."""
        return self._store.is_settled and not self._steps and not self._claiming

    @property
    def is_failing(self) -> bool:
        """True while rows or claims were refused the last time."""
        return self._store.is_failing or self._is_refused

    def restored(self, sessions: Collection[Session]) -> None:
        """Sessions were restored before anything runs; their claims are made by `restart`."""
        for session in sessions:
            if not session.is_guest:
                self._remember(str(session.sid), session.runtime_key)

    async def restart(self, addresses: Collection[str]) -> list[str]:
        """Claim what was restored, runtimes and addresses; returns what other nodes own by now. Raises HostError."""
        keys = [*self._of_runtime, *addresses]
        owners = await self.directory.restart(keys)
        self.held |= self._of_runtime.keys() & {key for key in keys if owners[key].node == self._node}
        return [key for key in keys if owners[key].node != self._node]

    def submit(
        self,
        changes: Collection[Change],
        on_durable: OnDurable,
        on_failed: OnFailed | None = None,
        *,
        is_awaited: bool = True,
    ) -> None:
        """See `StateStore.submit`."""
        keys = self._exempt.keys_to_change(self._keys_of(changes))
        under_way = self._steps or self._claiming
        if not keys and (changes or not under_way):
            self._store.submit(changes, on_durable, on_failed, is_awaited=is_awaited)
            return
        promise = _Promise(on_durable, on_failed)
        self._store.submit(changes, promise.kept, promise.broken, is_awaited=is_awaited)
        if keys:
            self._steps.append(_Step(keys, promise, _claimants(changes)))
            self._wanted.set()
        else:
            under_way.append(_Step(keys, promise))  # a report of what came before it

    def has_claimed(self, keys: Collection[str]) -> None:
        """These are ours in the directory already: the next submission that owns them claims them no more.

        Unless something else about them is under way: then that comes first, and they are claimed in its order.
        """
        under_way = [step.keys for step in (*self._claiming, *self._steps)]
        self._exempt.claimed = frozenset(key for key in keys if not any(key in one for one in under_way))

    def keep(self, keys: Collection[str]) -> None:
        """Keep these claims when rows say that they end, until `release_kept`."""
        self._exempt.kept |= dict.fromkeys(keys, False)

    def release_kept(self, keys: Collection[str]) -> None:
        """End those of these claims that have ended meanwhile, unless somebody here has claimed them again."""
        if ended := [key for key in keys if self._exempt.kept.pop(key, False)]:
            self.release(ended)

    def release(self, keys: Collection[str]) -> None:
        """End claims behind which there are no rows."""
        self.held.difference_update(keys)
        self._steps.append(_Step(dict.fromkeys(keys, False), None))
        self._wanted.set()

    async def run(self) -> None:
        """Claim and release until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            self._claiming, self._steps = self._steps, []
            try:
                await self._perform(self._claiming)
            except HostError as exc:
                await self._try_again_later(exc)

    async def _perform(self, steps: Sequence[_Step]) -> None:
        last: dict[str, bool] = {}
        claimed: dict[str, None] = {}  # also what is released after it: each claim is answered by itself
        for step in steps:
            last |= step.keys
            claimed |= {key: None for key, is_owned in step.keys.items() if is_owned}
        owners = await self._claim(claimed.keys()) if claimed else {}
        lost = {key for key in claimed if owners[key].node != self._node}
        shared, below = await self.others.above(claimed.keys() - lost - self._of_runtime.keys())
        lost |= below
        kept = {key for key in claimed if last[key]} - lost - shared
        self.held |= self._of_runtime.keys() & kept
        attempt(partial(self.on_claimed, kept))  # first of all: what was looked up meanwhile finds its recipient here
        released = [key for key, is_owned in last.items() if not is_owned and key not in lost]
        if released:
            await self.directory.release(released)
        self._claiming, self._is_refused = [], False
        sids = {step.sids[key] for step in steps for key in lost & step.sids.keys()}
        error = ClaimsLostError(lost, sids) if lost else None
        for step in steps:
            if step.promise is not None:
                _settle(step, step.promise, error)
        for keys, undo in ((lost, self.on_lost), (shared, self.others.on_shared)):
            if undone := sorted({key for key in keys if last[key]}.difference(*(step.keys for step in self._steps))):
                attempt(partial(undo, undone))  # what a later step has let go or claimed again is that step's
        attempt(self._called_back)

    async def _claim(self, keys: Collection[str]) -> dict[str, Claim]:
        """Claim addresses, also those that nobody has any more. Returns who owns them now. Raises HostError."""
        owners = await self.directory.claim(keys)
        others = {key: one for key, one in owners.items() if one.node != self._node and key not in self._of_runtime}
        if others and (free := await self.others.abandoned(others)):
            owners |= await self.directory.claim(free, {key: others[key] for key in free})
        return owners

    async def _try_again_later(self, error: HostError) -> None:
        logger.error("cluster: addresses cannot be claimed; trying again: %s", error)
        steps, self._claiming, self._is_refused = self._claiming, [], True
        self._steps[:0] = [_Step(step.keys, None, step.sids) for step in steps if step.keys]
        for step in steps:
            if step.promise is not None:
                step.promise.broken(error)
        attempt(self._called_back)
        self._wanted.set()
        await trio.sleep(STATE_RETRY_SECONDS)

    def _keys_of(self, changes: Collection[Change]) -> dict[str, bool]:
        keys: dict[str, bool] = {}
        for change in changes:
            if change.table is Table.ADDRESSES:
                keys[change.key] = change.row is not None
            elif change.table is Table.SESSIONS:
                if isinstance(change.row, SessionRow):
                    self._opened(change.key, change.row, keys)
                elif change.row is None:
                    self._ended(change.key, keys)
        return keys

    def _opened(self, sid: str, row: SessionRow, keys: dict[str, bool]) -> None:
        if row.is_guest or sid in self._runtimes:
            return
        self._remember(sid, row.runtime_key)
        if row.runtime_key not in self.held:
            keys[row.runtime_key] = True

    def _ended(self, sid: str, keys: dict[str, bool]) -> None:
        runtime_key = self._runtimes.pop(sid, "")
        if not runtime_key:
            return
        self._of_runtime[runtime_key] -= 1
        if not self._of_runtime[runtime_key]:
            del self._of_runtime[runtime_key]
            self.held.discard(runtime_key)
            keys[runtime_key] = False

    def _remember(self, sid: str, runtime_key: str) -> None:
        self._runtimes[sid] = runtime_key
        self._of_runtime[runtime_key] += 1


def _claimants(changes: Collection[Change]) -> dict[str, int]:
    """The sessions that claim addresses, by key."""
    sids = {}
    for change in changes:
        if isinstance(change.row, OwnedRow):
            sids[change.key] = change.row.sid
        elif isinstance(change.row, SessionRow):
            sids[change.row.runtime_key] = int(change.key)
    return sids


def _settle(step: _Step, promise: _Promise, error: ClaimsLostError | None) -> None:
    """Break what rests on a lost claim: of a report, who made it says whether it does."""
    if error is not None and (not step.keys or error.keys & step.keys.keys()):
        promise.broken(error)
    else:
        promise.kept()


def _nothing() -> None:
    """Nobody waits."""


def _ignore(_: Collection[str]) -> None:
    """Nobody holds anything."""
