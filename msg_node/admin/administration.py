"""The admin service of a running node: performs the operations of the table, whatever way they came in.

Operations run in the event loop of the node, each whole: nothing of it waits in the middle, so no message sees half of
a change. What is changed holds at once; the reply comes when it is durable. Each change, and each attempt at one, is an
audit record (`admin_event`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
import trio

from msg_node.admin import (
    account_changes,
    changes,
    connecting,
    group_changes,
    partner_views,
    policy_changes,
    quarantine_changes,
    recording_changes,
    trust_changes,
    views,
)
from msg_node.admin.administered import Administered
from msg_node.admin.changes import Arguments, recorded, shown
from msg_node.admin.core.operations import AdminRequest, Operation, find_operation, read_arguments
from msg_node.admin.core.pages import Row, page_of
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.proposals import (
    NEED_TWO,
    OF_DOMAIN,
    Author,
    Proposal,
    proposal_of,
    revisions_of,
)
from msg_node.admin.erasing import erase_person
from msg_node.kernel.restrictions import Restriction
from msg_node.storage.policy_store import FILES_OF_SETTINGS
from protofly.errors import Code, HostError
from protofly.records import AdminEvent

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 0.5
REPLY_SECONDS: Final = 0.2
"""So long somebody who asks the node to stop has to read the reply."""
_DETAIL_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Actor:
    """Author of an administrative request, proved by its way in: a user of this machine, a runtime, a token.

    `credential` is what proved it, the same on each way in and at each address. `machine` is where it means somebody,
    "" for a credential that is the same everywhere.
    """

    name: str
    way: Literal["socket", "message", "https", "node"]
    credential: str
    machine: str = ""

    @property
    def author(self) -> Author:
        """The actor, as proposals name it."""
        return Author(f"{self.name} by {self.way}", self.credential, self.machine)


HOLDER: Final = "holder"
"""The credential of everybody who gives the token of `[admin]`, in requests or to the console."""
THE_NODE: Final = Actor("the node", "node", "")

_LISTS: Final[Mapping[str, Callable[[Administered], Iterable[Row]]]] = {
    "sessions": views.sessions,
    "addresses": views.addresses,
    "subscriptions": views.subscriptions,
    "links": views.links,
    "stubs": views.stubs,
    "peers": views.peers,
    "alarms": partner_views.alarms,
    "latencies": partner_views.latencies,
    "policies": partner_views.policies,
    "gates": views.gates,
    "limits": views.limits,
    "quotas": views.quotas,
    "queues": views.queues,
    "restrictions": views.restrictions,
    "recordings": recording_changes.recordings,
}

_FACTS: Final[Mapping[str, Callable[[Administered, Arguments], object]]] = {
    "status": lambda node, _arguments: node.status(),
    "metrics": lambda node, _arguments: {"text": node.metrics().decode()},
    "summary": lambda node, _arguments: node.summary(),
    "partner": partner_views.partner,
}


_QUESTIONS: Final = {
    **policy_changes.QUESTIONS,
    **account_changes.QUESTIONS,
    **group_changes.QUESTIONS,
    **quarantine_changes.QUESTIONS,
    "denials": partner_views.find_denials,
    "records": partner_views.find_records,
    "peer check": partner_views.check,
    "peer ping": connecting.ping,
}
_OF_POLICIES: Final = {**policy_changes.PLANNERS, **group_changes.PLANNERS}
_OF_FILES: Final = {**quarantine_changes.PLANNERS, "erase": erase_person}
_WAITING_PLANNERS: Final = {**_OF_POLICIES, **account_changes.PLANNERS, **_OF_FILES}
_RECORDED: Final = frozenset({"quarantine show"})
"""Questions that are recorded: they show what messages say."""
_BY_CREDENTIAL: Final = policy_changes.PLANNERS_BY_CREDENTIAL
_PLANNERS: Final = {**changes.PLANNERS, **recording_changes.PLANNERS, **trust_changes.PLANNERS, **connecting.PLANNERS}


class Administration:
    """Performs operations on one node.

    Args:
        node: Its parts.
    """

    def __init__(self, node: Administered) -> None:
        self._node = node
        self._proposals = node.proposals

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End what holds for a time only, and stop the node if somebody asked for it; until cancelled."""
        task_status.started()
        while not self._node.stop.is_set():
            now = time.time()
            for restriction in self._node.state.restrictions.ended(now):
                await self._ended(restriction)
            self._proposals.expire(now)
            for one in self._proposals.confirmed():
                await self._make_confirmed(one)
            for name in self._node.levels.end(now):
                logger.info("the level of the log of %s is what it was", name or "all")
            await trio.sleep(LOOK_SECONDS)
        await trio.sleep(REPLY_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    async def perform(self, request: AdminRequest, actor: Actor) -> object:
        """Perform one operation.

        Args:
            request: As the way in has read it.
            actor: Has been found to be an operator.

        Returns:
            What JSON can say: a page of rows, facts, or what a change has changed.

        Raises:
            PeerError: NO_SUCH_SERVICE for an unknown operation; BAD_BODY, NAME_INVALID or BAD_HEADER for its arguments;
                NOT_REGISTERED for what is not there.
            SettingsError: The settings to come cannot be used.
            HostError: STORAGE: the change is in force, and would not survive a restart.
        """
        operation = find_operation(request.operation)
        if operation.changes:
            return await self._change(operation, request, actor)
        arguments = read_arguments(operation, request.arguments)
        question = _QUESTIONS.get(operation.name)
        if question is not None:
            if operation.name in _RECORDED:
                self._record(operation.name, actor, self._recorded(operation, arguments))
            return await question(self._node, arguments)
        if (facts := _FACTS.get(operation.name)) is not None:
            return facts(self._node, arguments)
        if operation.name == "log":
            return page_of(self._node.log.lines(str(arguments.get("level", ""))), arguments)
        if operation.name == "policy proposals":
            return page_of(map(_proposal_row, self._proposals.waiting(time.time())), arguments)
        return page_of(_LISTS[operation.name](self._node), arguments)

    async def _change(self, operation: Operation, request: AdminRequest, actor: Actor) -> object:
        if operation.name == "policy confirm":
            async with self._node.changing:
                return await self._confirm(operation, request, actor)
        if operation.name == "policy withdraw":
            return await self._withdraw(operation, request, actor)
        if operation.name in account_changes.PLANNERS:
            async with account_changes.held(self._node):
                return await self._planned(operation, request, actor)
        if not (operation.name in _OF_POLICIES or operation.name in _BY_CREDENTIAL or operation.name in NEED_TWO):
            return await self._planned(operation, request, actor)
        async with self._node.changing:
            if request.dry_run or not self._needs_two(request):
                return await self._planned(operation, request, actor)
            return await self._propose(operation, request, actor)

    def _needs_two(self, request: AdminRequest) -> bool:
        """True if a change is only proposed: the settings ask for two persons, and nobody has seen it yet."""
        name = request.operation
        is_return = name == "policy activate" and request.arguments.get("bundle") == FILES_OF_SETTINGS
        return self._node.settings().policy.two_persons and (name in NEED_TWO or is_return)

    async def _propose(self, operation: Operation, request: AdminRequest, actor: Actor) -> object:
        """Check a change, and keep it until a second person confirms it."""
        tried = msgspec.structs.replace(request, dry_run=True)
        result, now = await self._planned(operation, tried, actor), time.time()
        proposal = proposal_of(operation.name, request.arguments, result, actor.author, now)
        self._proposals.add(proposal, now)
        await self._store()
        shown_arguments: dict[str, object] = {"proposal": proposal.id, "operation": operation.name}
        shown_arguments |= self._recorded(operation, request.arguments)
        self._record("policy propose", actor, shown_arguments)
        logger.warning("%s by %s: proposed %s %s", actor.name, actor.way, operation.name, shown(shown_arguments))
        return {**result, "dry_run": False, "proposal": proposal.id}

    def _proposed(
        self, operation: Operation, request: AdminRequest, actor: Actor, *, is_confirmed: bool
    ) -> list[Proposal]:
        """The proposals that a request names. Raises PeerError, which is recorded."""
        try:
            arguments = read_arguments(operation, request.arguments)
            proposals = self._proposals.find(str(arguments["proposal"]), time.time())
            if is_confirmed:
                proposals[0].check_person(actor.author.digest, actor.machine)
        except HostError as exc:
            self._record(operation.name, actor, self._recorded(operation, request.arguments), error=exc)
            raise
        return proposals

    async def _confirm(self, operation: Operation, request: AdminRequest, actor: Actor) -> object:
        """Make a change that somebody else has proposed, if it would still do the same, wherever it was proposed."""
        first, *others = proposals = self._proposed(operation, request, actor, is_confirmed=True)
        if first.operation in OF_DOMAIN:
            made = await self._make(first, operation, request, actor)
            for one in () if request.dry_run else others:
                self._proposals.remove(one)
        elif self._proposals.is_ours(first):
            made = await self._make(first, operation, request, actor)
            self._hand_over(others, request, actor)
        else:
            made = self._hand_over(proposals, request, actor)
        if not request.dry_run:
            await self._store()
        return made

    def _hand_over(self, proposals: Sequence[Proposal], request: AdminRequest, actor: Actor) -> dict[str, object]:
        """Let other nodes make what was proposed there."""
        for one in () if request.dry_run else proposals:
            self._proposals.confirm(one, actor.author)
            self._record("policy confirm", actor, {"proposal": one.id, "made_at": one.node})
        return {
            "operation": "policy confirm",
            "before": None,
            "after": {"made_at": [one.node for one in proposals]},
            "dry_run": request.dry_run,
        }

    async def _make_confirmed(self, proposal: Proposal) -> None:
        """Make what was proposed here and confirmed at another node; what cannot be made is forgotten."""
        operation = find_operation("policy confirm")
        request = AdminRequest(operation=operation.name, arguments={"proposal": proposal.id})
        async with self._node.changing:
            if proposal not in self._proposals.confirmed():
                return  # somebody confirmed it here meanwhile
            try:
                proposal.check_person(proposal.confirmed_with, proposal.confirmed_on)
                await self._make(proposal, operation, request, Actor(proposal.confirmed_by, "node", ""))
            except HostError as exc:
                logger.warning("the confirmed change %s is not made: %s", proposal.id, exc)
                self._proposals.remove(proposal)
        with contextlib.suppress(HostError):  # the store reports it, and tries again
            await self._store()

    async def _make(
        self, proposal: Proposal, operation: Operation, request: AdminRequest, actor: Actor
    ) -> dict[str, object]:
        """Make a change that has two persons, if it would still do the same. Raises HostError."""
        change = find_operation(proposal.operation)
        asked = AdminRequest(operation=change.name, arguments=proposal.asked, dry_run=True)
        result = await self._planned(change, asked, actor)
        try:
            proposal.check_current(revisions_of(change.name, result))
        except HostError as exc:
            self._record(operation.name, actor, self._recorded(operation, request.arguments), error=exc)
            raise
        if request.dry_run:
            return result
        made = await self._planned(change, msgspec.structs.replace(asked, dry_run=False), actor, proposal)
        self._proposals.remove(proposal)
        return made

    async def _withdraw(self, operation: Operation, request: AdminRequest, actor: Actor) -> object:
        """Forget a proposal; any operator may, its own author too."""
        proposals = self._proposed(operation, request, actor, is_confirmed=False)
        plan = Plan(_proposal_row(proposals[0]), None, lambda: None)
        if not request.dry_run:
            for one in proposals:
                self._proposals.remove(one)
            await self._store()
            self._record(operation.name, actor, {"proposal": proposals[0].id}, plan)
        return {"operation": operation.name, "before": plan.before, "after": None, "dry_run": request.dry_run}

    async def _planned(
        self, operation: Operation, request: AdminRequest, actor: Actor, proposal: Proposal | None = None
    ) -> dict[str, object]:
        """Plan a change, and make it unless it is only tried; with `proposal`, in the name of two persons."""
        try:
            arguments = read_arguments(operation, request.arguments)
            by = actor.author.by
            by = by if proposal is None else f"{by}, proposed by {proposal.by}"
            if (planner := _WAITING_PLANNERS.get(operation.name)) is not None:
                plan = await planner(self._node, arguments, by)
            elif (bound := _BY_CREDENTIAL.get(operation.name)) is not None:
                plan = await bound(self._node, arguments, by, actor.credential)
            else:
                plan = _PLANNERS[operation.name](self._node, arguments, by)
            if plan.store is not None and not request.dry_run:
                with trio.CancelScope(shield=True):  # what is on the disk is applied as well
                    await trio.to_thread.run_sync(plan.store)
        except HostError as exc:
            self._record(
                operation.name, actor, self._recorded(operation, request.arguments), error=_nameless(operation, exc)
            )
            raise
        result: dict[str, object] = {
            "operation": operation.name,
            "before": plan.before,
            "after": plan.after,
            "dry_run": request.dry_run,
        }
        if not request.dry_run:
            result |= {"answer": dict(plan.answer)} if plan.answer else {}
            shown_arguments = self._recorded(operation, arguments)
            if proposal is not None:
                shown_arguments |= {"proposal": proposal.id, "proposed_by": proposal.by}
            self._record(operation.name, actor, shown_arguments, plan)
            logger.warning("%s by %s: %s %s", actor.name, actor.way, operation.name, shown(shown_arguments))
            plan.apply()
            await self._store()
            if plan.finish is not None:
                plan.finish()
                await self._store()
            if plan.wait is not None:
                result["answer"] = dict(await plan.wait())
        return result

    async def _ended(self, restriction: Restriction) -> None:
        """The time of a restriction is over."""
        what, subject = restriction.what, restriction.subject
        self._record("lift", THE_NODE, {"what": what, "subject": subject}, Plan(restriction, None, lambda: None))
        logger.warning("the restriction of the %s %s has ended", what.value, subject)
        changes.lift(self._node, what, subject)
        with contextlib.suppress(HostError):  # the store reports it, and tries again
            await self._store()

    async def _store(self) -> None:
        """Wait until what has changed is durable. Raises HostError STORAGE."""
        stored, errors = trio.Event(), list[HostError]()

        def failed(error: HostError) -> None:
            errors.append(error)
            stored.set()

        self._node.store.submit(self._node.state.take_changes(), stored.set, failed)
        await stored.wait()
        if errors:
            detail = f"the change is in force, but is not stored, and ends with this process: {errors[0].detail}"
            raise HostError(Code.STORAGE, detail)

    def _recorded(self, operation: Operation, arguments: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a request as a record has them: no secret, nothing that may name whom it is about."""
        if operation.is_secret:
            public = {one.name for one in operation.arguments if not one.is_secret}
            arguments = {name: value for name, value in arguments.items() if name in public}
        if operation.is_personal:
            public = {one.name for one in operation.arguments if not one.is_personal}
            hashed = self._node.pseudonym
            arguments = {name: value if name in public else hashed(str(value)) for name, value in arguments.items()}
        return recorded(arguments)

    def _record(
        self,
        operation: str,
        actor: Actor,
        arguments: Mapping[str, object],
        plan: Plan | None = None,
        *,
        error: HostError | None = None,
    ) -> None:
        event = AdminEvent(
            ts_us=time.time_ns() // 1000,
            operation=operation,
            actor=actor.name,
            way=actor.way,
            arguments=shown(arguments) or "{}",
        )
        if plan is not None:
            event.before, event.after = shown(plan.before), shown(plan.after)
        if error is not None:
            event.code, event.detail = error.code.word, error.detail[:_DETAIL_CHARS]
        self._node.record(event)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _proposal_row(proposal: Proposal) -> Row:
    return {
        "proposal": proposal.id,
        "operation": proposal.operation,
        "arguments": shown(recorded(proposal.asked)),
        "by": proposal.by,
        "at": _utc(proposal.at),
        "until": _utc(proposal.until),
        "node": proposal.node,
        "confirmed_by": proposal.confirmed_by,
    }


def _nameless(operation: Operation, error: HostError) -> HostError:
    """An error as a record has it: without its text, where that may name a person or have a secret in it."""
    return HostError(error.code) if operation.is_personal or operation.is_secret else error
