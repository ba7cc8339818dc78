"""The partner as one run: its servers, the node under test, the cases side by side, and what came of them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from federation.stubs.shipped_files import shipped_file
from interop.authority import DevelopmentAuthority
from interop.conformance.outcome import CaseVerdict, NoAnswerError, NodeFaultError
from interop.partner.domain import PartnerDomain
from interop.partner.line import LOST
from interop.partner.model import PartnerCase, PartnerStep
from interop.partner.node import NodeUnderTest
from interop.partner.servers import PartnerServers
from interop.partner.stage import Place, Stage
from interop.partner.terms import TERMS_FILE, PartnerTerms, case_domain, load_terms
from interop.processes import READY_SECONDS, Child, leaves
from interop.runtime_client import UnexpectedAnswerError
from protofly.errors import SettingsError, TransportError

PARALLEL: Final = 8
CLOSE_SECONDS: Final = 4.0
_FOUND: Final = (NodeFaultError, NoAnswerError, TransportError, UnexpectedAnswerError, *LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerOutcome:
    """One case, played. `step` counts from 1, and is the one that was not kept."""

    case: PartnerCase
    verdict: CaseVerdict
    problem: str = ""
    step: int = 0
    transcript: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        """True if the node has to be looked at."""
        return self.verdict in {CaseVerdict.FAILED, CaseVerdict.NO_ANSWER}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerReport:
    """All outcomes, in the order of the cases."""

    domain: str
    link: str
    outcomes: tuple[PartnerOutcome, ...]
    seconds: float

    @property
    def findings(self) -> tuple[PartnerOutcome, ...]:
        """The findings for which somebody has to look at the node."""
        return tuple(one for one in self.outcomes if one.is_finding)

    def count(self, verdict: CaseVerdict) -> int:
        """Count the cases with this result."""
        return sum(one.verdict is verdict for one in self.outcomes)


class Partner:
    """The partner of one folder, running. Made by `running_partner`."""

    def __init__(self, node: NodeUnderTest, servers: PartnerServers, domains: dict[str, PartnerDomain]) -> None:
        self.node = node
        self._servers = servers
        self._domains = domains
        self._module = shipped_file("stubs", "trapezoid_link", "link.wasm").read_bytes()

    async def play(self, case: PartnerCase, limit: trio.CapacityLimiter) -> PartnerOutcome:
        """Play one case, with a domain of its own; the caller holds a place of `limit`."""
        name = case.domain or case_domain(case.id)
        domain = self._domains[name] = PartnerDomain(name, self._servers.ports, self._module)
        self._servers.publish_names()
        began = trio.current_time()
        played: list[PartnerStep] = []
        problem, verdict = "", CaseVerdict.PASSED
        seconds = case.seconds + case.waits * self.node.terms.refresh_seconds
        try:
            with trio.fail_after(seconds):
                await _play_steps(case, Place(self._servers, limit), (self.node, domain), played)
        except trio.TooSlowError:
            verdict, problem = CaseVerdict.NO_ANSWER, f"not done within {seconds:.0f} s"
        except BaseExceptionGroup as group:
            error = _finding(group)
            verdict = CaseVerdict.NO_ANSWER if isinstance(error, NoAnswerError) else CaseVerdict.FAILED
            problem = str(error) or repr(error)
        return PartnerOutcome(
            case=case,
            verdict=verdict,
            problem=problem,
            step=0 if verdict is CaseVerdict.PASSED else len(played),
            transcript=tuple(domain.transcript),
            seconds=trio.current_time() - began,
        )


async def _play_steps(
    case: PartnerCase, place: Place, sides: tuple[NodeUnderTest, PartnerDomain], played: list[PartnerStep]
) -> None:
    """Play the steps of a case; `played` gets each when it begins."""
    async with trio.open_nursery() as nursery:
        stage = Stage(*sides, place, nursery)
        try:
            for step in case.steps:
                played.append(step)
                await step.play(stage)
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await stage.close()
        nursery.cancel_scope.cancel()


def _finding(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What the node has done wrong; everything else in a group is a fault of ours, and is raised."""
    errors = list(leaves(group))
    if not all(isinstance(error, _FOUND) for error in errors):
        raise group
    return next((error for error in errors if isinstance(error, NodeFaultError | NoAnswerError)), errors[0])


async def play_all(
    partner: Partner,
    cases: Sequence[PartnerCase],
    *,
    parallel: int = PARALLEL,
    on_outcome: Callable[[PartnerOutcome], None] = lambda _: None,
) -> PartnerReport:
    """Play cases, `parallel` at a time; those that have to wait for documents begin first."""
    outcomes: dict[str, PartnerOutcome] = {}
    began = trio.current_time()
    limit = trio.CapacityLimiter(parallel)

    async def play_one(case: PartnerCase) -> None:
        async with limit:
            outcomes[case.id] = await partner.play(case, limit)
        on_outcome(outcomes[case.id])

    async with trio.open_nursery() as nursery:
        for case in sorted(cases, key=lambda case: -case.waits):
            nursery.start_soon(play_one, case)
    return PartnerReport(
        domain=partner.node.domain,
        link=partner.node.terms.link,
        outcomes=tuple(outcomes[case.id] for case in cases),
        seconds=trio.current_time() - began,
    )


@asynccontextmanager
async def running_partner(folder: Path) -> AsyncIterator[Partner]:
    """The partner of a folder, with the node under test: started if it does not run and the file says how.

    Raises:
        SettingsError: The folder is none of a partner, or a port is taken.
        TransportError: The node does not listen.
    """
    terms = load_terms(folder)
    authority = DevelopmentAuthority(folder / terms.authority)
    domains: dict[str, PartnerDomain] = {}
    servers = PartnerServers(domains, authority.authority, terms.ports)
    node = NodeUnderTest(terms.node, authority.client_context())
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(servers.run, terms.name_server_port)
        except OSError as exc:
            raise SettingsError(
                f"{folder}: a port of the partner is taken ({exc}): end the program there, or name other ports in "
                f"{TERMS_FILE}"
            ) from exc
        child = await _start_node(folder, terms, node)
        try:
            yield Partner(node, servers, domains)
        finally:
            if child is not None:
                await child.stop()
        nursery.cancel_scope.cancel()


async def _start_node(folder: Path, terms: PartnerTerms, node: NodeUnderTest) -> Child | None:
    if await node.is_reachable():
        return None
    if not terms.node.command:
        raise SettingsError(
            f"{terms.node.runtimes}: no node listens: start it, or set node.command in {folder / TERMS_FILE}"
        )
    _empty(folder, terms.node.data)
    program, *arguments = terms.node.command
    child = Child(arguments, log_file=folder / "node.log", program=(program,), folder=folder)
    try:
        await child.start()
        await node.wait_reachable(READY_SECONDS)
    except BaseException:
        await child.stop()
        raise
    return child


def _empty(folder: Path, data: str) -> None:
    """Remove the data of the node under test: it has to meet the partner for the first time."""
    if not data:
        return
    target = (folder / data).resolve()
    if not target.is_relative_to(folder.resolve()) or target == folder.resolve():
        raise SettingsError(f"node.data: {target} is not below {folder}, so it is not emptied; name a folder there")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, mode=0o700)
