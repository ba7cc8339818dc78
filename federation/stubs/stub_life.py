"""The life of one domain's stub: each step moves the state machine, and is shown and recorded.

`core/stub_lifecycle` decides which step may follow and how long to pause. The state is shown in the inventory of
stubs, and as the state of the link while nothing else carries it.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Final

from federation.core.contact_trouble import Side
from federation.core.link_counts import LinkCount
from federation.core.stub_lifecycle import Pause, Restart, StubLifecycle, StubState
from federation.core.stub_status import StepTimes
from federation.links.domain_link import DomainLink
from federation.stubs.stub_records import StubRecords
from protofly.errors import Code, StubFaultError
from protofly.stub import VerifiedStub

logger = logging.getLogger("federation")

ROLL_BACK_SECONDS: Final = 10.0
"""For how long the version before one that failed may take to be live again."""


class StubLife:
    """The life of the stub of one link, over all its instances.

    Attributes:
        records: Of what happens to it.
    """

    def __init__(self, link: DomainLink) -> None:
        self.records = StubRecords(link.stub, link.records.record, link.now)
        self._link = link
        self._lifecycle = StubLifecycle()

    @property
    def is_circuit_open(self) -> bool:
        """True from the crash too many until a probe went well."""
        return self._lifecycle.is_circuit_open

    def held_back_seconds(self) -> float:
        """Return the seconds for which it is still left alone after a crash, 0 when it may start."""
        pause_seconds = max(0.0, self._lifecycle.starts_at() - self._link.now())
        if pause_seconds:
            self._show_as_link()
        return pause_seconds

    # Deployment.

    def deploying(self) -> None:
        """Its package is being fetched, verified and compiled."""
        self._lifecycle.deploying(self._link.machine.detail)
        self._show_as_link()

    def verified(self, stub: VerifiedStub) -> None:
        """A package may run; another one than before begins with a clean record."""
        if self._link.stub.started_sha256 != stub.module_sha256:
            self._link.stub.started_sha256 = stub.module_sha256
            self._lifecycle.replaced()
            self.records.verified(stub)

    def compiled(self, times: StepTimes) -> None:
        """Record how long it was compiled, if it was."""
        for name, milliseconds in times.steps:
            if name == "compile":
                self.records.compiled(milliseconds / 1000)

    def took_over(self, stub: VerifiedStub) -> None:
        """A newer version carries in the place of the one that ran; its life begins live, with a clean record."""
        self._link.stub.started_sha256 = stub.module_sha256
        self._lifecycle.replaced()
        self.records.release("took-over", stub)
        self.reported(StubState.LIVE.value)

    def rolled_back(self, stub: VerifiedStub, detail: str, fault: StubFaultError | None = None) -> None:
        """A version is not tried again here, and the one before it goes on, with a clean record.

        Args:
            stub: The version that failed; with a missing line the one that goes on.
            detail: What was wrong.
            fault: What ended it, if it was the one of the link.
        """
        about = {"domain": self._link.domain, "code": Code.STUB_ROLLED_BACK.word}
        logger.error("stub rolled back: %s %s of %s: %s", stub.name, stub.version, stub.domain, detail, extra=about)
        self._link.events.met(Side.STUB, f"{Code.STUB_ROLLED_BACK.word}: {stub.version}: {detail}")
        if fault is not None:
            self._count(fault)
            self._lifecycle.replaced()
            self._link.queue.awaited_until = self._link.now() + ROLL_BACK_SECONDS
        self.records.release("rolled-back", stub, detail)

    def started(self) -> None:
        """Its worker runs, and an instance of it is given its first event."""
        self._lifecycle.deployed()
        self._show()
        self._lifecycle.started(self._link.now())
        self._show()

    def reported(self, text: str) -> StubState | None:
        """It says in which state it is; returns the state, None when the word is unknown or comes too late."""
        state = self._lifecycle.reported(text, self._link.now())
        if state is not None:
            detail = self._link.machine.detail = self._lifecycle.detail
            if state is not StubState.LIVE and not self._link.is_live:
                self._link.machine.state = state.value
            self._show()
            self.records.state(state.value, detail)
        return state

    def draining(self) -> None:
        """No more messages will be handed over."""
        self._lifecycle.draining()
        self._show()

    def ended(self) -> None:
        """The instance ended in good order."""
        self._lifecycle.ended()
        self._show()

    # Failures; each says how long to wait before the next try.

    def unreached(self, detail: str) -> Pause:
        """Its domain was not reached, or the far end refused us."""
        pause = self._lifecycle.unreached(detail, draw=_draw(), was_up=bool(self._link.machine.peer_node))
        self._show_as_link()
        return pause

    def unusable(self, detail: str, *, is_refused: bool) -> float:
        """It cannot run: what its domain publishes `is_refused`, or something failed here."""
        pause_seconds = self._lifecycle.unusable(detail, draw=_draw(), is_refused=is_refused)
        self._show_as_link()
        return pause_seconds

    def refused_by_far_end(self, fault: StubFaultError) -> Pause:
        """It failed in good order, and says why: the far end refused us."""
        self._link.events.met(Side.REFUSAL, fault.detail)
        self._count(fault)
        return self.unreached(fault.detail)

    def crashed(self, fault: StubFaultError) -> Restart:
        """The instance or its worker failed."""
        link, now = self._link, self._link.now()
        logger.error("the stub of %s failed: %s", link.domain, fault, extra={"domain": link.domain})
        link.events.met(Side.STUB, str(fault))
        self._count(fault)
        restart = self._lifecycle.crashed(now, _draw(), str(fault))
        self._show_as_link()
        if restart.opens_circuit:
            self.records.circuit(restart.at - now)
        return restart

    def _count(self, fault: StubFaultError) -> None:
        self._link.counters[LinkCount.STUB_FAULTS] += 1
        self._link.machine.last_code = fault.code
        self.records.fault(fault)

    def _show(self) -> None:
        """Put the state into the inventory."""
        self._link.stub.became(self._lifecycle.state.value, self._lifecycle.detail, now=time.time())

    def _show_as_link(self) -> None:
        """The state of the stub is that of its link too, as nothing else carries it."""
        state = self._lifecycle.state
        shown = StubState.FAILED if state is StubState.DEPLOYMENT_FAILED else state
        self._link.machine.state, self._link.machine.detail = shown.value, self._lifecycle.detail
        self._show()


def _draw() -> float:
    return random.random()  # noqa: S311 - jitter, no secret
