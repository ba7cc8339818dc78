"""Takes a node's name, keeps its lease, and says when it is in danger or lost.

Renewals are made in a thread of their own, so that a busy node, or one that reads a million rows at its start, keeps
its name. The clock goes on while the machine sleeps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import trio

from msg_node.cluster.core.lease import BEAT_SECONDS, LOOK_SECONDS, Lease, LeaseState, LeaseVerdict, NameSearch
from msg_node.cluster.names import Names, NodeFacts
from msg_node.storage.engine_errors import EngineError, FencedError
from protofly.errors import MisuseError

_LOG = logging.getLogger(__name__)

LEAVE_SECONDS = 3.0
"""Time for a last write to an engine that may be gone; without it, the lease ends by itself."""


def lease_clock() -> float:
    """Seconds of this machine since its start, those included in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The name that a process wants.

    Attributes:
        name: Of the node.
        instance: Where the process runs; no two processes of one instance run at the same time.
        is_standby: Wait for as long as another process holds the name.
        facts: Asked at each renewal, in another thread.
    """

    name: str
    instance: str
    is_standby: bool
    facts: Callable[[], NodeFacts]


class LeaseKeeper:
    """Holds one name. Use: `take`, then `run` until the node ends; `leave` when it has written its last row.

    Args:
        names: Over a connection of its own.
        wanted: The name.
    """

    def __init__(self, names: Names, wanted: Wanted) -> None:
        self._names = names
        self._wanted = wanted
        self._lease: Lease | None = None
        self._thread: threading.Thread | None = None
        self._must_stop = threading.Event()
        self._on_beat: Callable[[], None] = _nothing
        self._defect: Exception | None = None
        self._error = ""

    @property
    def name(self) -> str:
        """The name."""
        return self._wanted.name

    @property
    def epoch(self) -> int:
        """The epoch under which the name is held."""
        assert self._lease is not None, "the name is taken first"
        return self._lease.epoch

    def state(self) -> LeaseState:
        """The state of the name now."""
        return LeaseState.LAPSED if self._lease is None else self._lease.state(now=lease_clock())

    def problem(self) -> str:
        """Reason why the lease is not renewed, "" if it is; set when the lease has ended, however silent the engine."""
        if self._error or self._lease is None or self.state() is LeaseState.HELD:
            return self._error
        return f"{self._names.place} does not answer"

    async def take(self) -> None:
        """Take the name, as soon as it may be taken, and renew it from then on.

        Raises:
            EngineError: The engine cannot be used; `node-running`: another process holds the name, and we are none that
                waits.
        """
        search = NameSearch(self._wanted.instance, is_standby=self._wanted.is_standby)
        is_waiting = False
        while (verdict := await trio.to_thread.run_sync(self._look, search)) is not LeaseVerdict.TAKE:
            if verdict is LeaseVerdict.REFUSE:
                action = "stop it, give this node another name, or let it wait with cluster.standby"
                text = f"a running node holds the name {self.name}"
                raise EngineError("node-running", self._names.place, text, action)
            if not is_waiting:
                _LOG.info("waiting for the name %s, which another process holds", self.name)
                is_waiting = True
            await trio.sleep(LOOK_SECONDS)
        self._thread = threading.Thread(target=self._renew_until_stopped, name="lease", daemon=True)
        self._thread.start()
        _LOG.info("this process is %s, epoch %d", self.name, self.epoch)

    async def run(self, on_lapsed: Callable[[], None], on_held: Callable[[], None]) -> None:
        """Watch the lease.

        Args:
            on_lapsed: Called when it was not renewed in time: nothing may be promised until `on_held` is called.
            on_held: Called when it was renewed after all.

        Raises:
            FencedError: Another process has taken the name.
            MisuseError: The renewals have ended by a bug of ours.
        """
        token = trio.lowlevel.current_trio_token()
        beat = trio.Event()

        def beaten() -> None:
            nonlocal beat
            beat.set()
            beat = trio.Event()

        self._on_beat = lambda: token.run_sync_soon(beaten)
        known = LeaseState.HELD
        while True:
            state = self.state()
            if self._defect is not None:
                raise MisuseError("the lease is not renewed any more") from self._defect
            if state is LeaseState.LOST:
                raise FencedError(self._names.place, self.name)
            if state is not known:
                known = state
                if state is LeaseState.LAPSED:
                    text = "the lease of %s has run out: no session is opened, requests get 503 state-unavailable; %s"
                    _LOG.warning(text, self.name, self.problem())
                else:
                    _LOG.warning("the lease of %s is back: the node serves again", self.name)
                (on_lapsed if state is LeaseState.LAPSED else on_held)()
            heard = beat
            if state is LeaseState.LAPSED:
                await heard.wait()
                continue
            with trio.move_on_after(self._seconds_left()):
                await heard.wait()

    async def leave(self) -> None:
        """Let the name go, so that nobody has to wait for it. The state must have been written."""
        self._must_stop.set()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._leave)

    def _seconds_left(self) -> float:
        assert self._lease is not None, "the name is taken first"
        return max(0.0, self._lease.ends_at - lease_clock())

    # In threads.

    def _look(self, search: NameSearch) -> LeaseVerdict:
        row = self._names.read(self.name)
        asked_at = lease_clock()
        verdict = search.seen(row, now=asked_at)
        if verdict is LeaseVerdict.TAKE:
            epoch = self._names.take(self.name, row, self._wanted.instance, self._wanted.facts())
            if epoch is None:
                return LeaseVerdict.WAIT
            self._lease = Lease(epoch, asked_at=asked_at)
        return verdict

    def _renew_until_stopped(self) -> None:
        try:
            while not self._must_stop.wait(BEAT_SECONDS):
                self._renew()
                self._on_beat()
        except trio.RunFinishedError:
            return
        except Exception as exc:  # the node must not go on under a name that nobody renews
            self._defect = exc
            self._on_beat()

    def _renew(self) -> None:
        assert self._lease is not None
        asked_at = lease_clock()
        try:
            if self._names.renew(self.name, self._lease.epoch, self._wanted.facts()):
                self._lease.renewed(asked_at=asked_at)
            else:
                self._lease.lost()
        except EngineError as exc:
            if not self._error:
                _LOG.error("the lease of %s cannot be renewed: %s", self.name, exc.detail)
            self._error = exc.detail
        else:
            self._error = ""

    def _leave(self) -> None:
        """Without an answer of the engine, the lease ends by itself."""
        if self._thread is not None:
            self._thread.join(LEAVE_SECONDS)
            if self._thread.is_alive():
                return
        try:
            if self._lease is not None and not self._error:
                self._names.leave(self.name, self._lease.epoch)
        except EngineError as exc:
            _LOG.warning("the name %s could not be left: %s", self.name, exc.detail)
        finally:
            self._names.close()


def _nothing() -> None:
    """Do nothing."""
