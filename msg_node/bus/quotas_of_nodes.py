"""Quotas of QoS providers over several nodes: one of them grants reservations, and notifies listeners.

It has claimed that in the directory, like a link; when it dies or leaves, the next one that is asked
claims it. It needs nothing from the one before: what is reserved is read from what all nodes have stored. Only what the
one before has granted in its last moment is not stored yet, so a new one waits `BEGIN_SECONDS` first. Reservations stay
at the node of their session. See `msg_node.qos.core.domain_quotas`. Source: message specification, section 14.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import trio

from msg_node.bus.link_claims import LinkClaims
from msg_node.bus.node_questions import NodeQuestions
from msg_node.cluster.directory import Directory
from msg_node.qos.core.domain_quotas import DomainQuotas, Grant, Granted, Release, Released
from msg_node.qos.core.leases import Amounts, Lease, Leases
from msg_node.qos.core.qos_service import QosService
from protofly.errors import Code, HostError, PeerError

logger = logging.getLogger("msg_node")

GRANT: Final = b"q"
RELEASE: Final = b"Q"
"""Kinds of the questions."""
KEY: Final = "service qos"
"""In the directory; no address has a space."""
LOOK_SECONDS: Final = 1.0
BEGIN_SECONDS: Final = 1.0
GRANT_SECONDS: Final = 3.0
"""A node that has just died is waited for so long, which is less than who reserves waits."""
_grants = msgspec.json.Decoder(Grant)
_granted = msgspec.json.Decoder(Granted)
_releases = msgspec.json.Decoder(Release)
_released = msgspec.json.Decoder(Released)


@dataclass(frozen=True, slots=True)
class QuotaSources:
    """Sources of the reservations of other nodes.

    Attributes:
        node: Our name.
        directory: Who grants, and who owns which object.
        is_dead: Whether a node has died.
        stored: Reads all reservations of the domain; raises HostError.
        unreachable: Names of nodes that may have reservations and cannot be asked.
        keep: Stores what has changed at this node, then calls the first function, or the second one if that failed.
    """

    node: str
    directory: Directory
    is_dead: Callable[[str], bool]
    stored: Callable[[], Awaitable[list[Lease]]]
    unreachable: Callable[[], Sequence[str]]
    keep: Callable[[Callable[[], None], Callable[[HostError], None]], None]


class QuotasOfNodes:
    """Asks the node that grants, and grants if that is this one; a `DomainView` for the service.

    Args:
        questions: Between nodes.
        service: That of this node.
        leases: The reservations of its sessions.
    """

    def __init__(self, sources: QuotaSources, questions: NodeQuestions, service: QosService, leases: Leases) -> None:
        self._sources = sources
        self._claims = LinkClaims(sources.node, sources.directory, sources.is_dead)
        self._questions = questions
        self._service = service
        self._leases = leases
        self._quotas = DomainQuotas()
        self._granting = trio.Lock()
        self._begins_at = 0.0
        self.is_granting = False
        """See `DomainView`."""
        self._nursery: trio.Nursery | None = None
        service.others = self
        questions.late_answerers[GRANT] = self._asked
        questions.late_answerers[RELEASE] = self._asked_to_release

    def reserved(self, provider: str) -> Amounts:
        """See `DomainView`."""
        return (self._quotas if self.is_granting else self._leases).reserved(provider)

    async def ask(self, wanted: Grant) -> Granted:
        """Ask the node that grants. Raises HostError: it cannot be asked, or is not known."""
        sources = self._sources
        if wanted.object_key and not await sources.directory.find([wanted.object_key]):
            return Granted(is_granted=False, has_object=False)
        node = await self._claims.claim_key(KEY)
        self._note(is_granting=node == sources.node)
        if self.is_granting:
            return await self._grant(wanted)
        try:
            with trio.fail_after(GRANT_SECONDS):
                return _granted.decode(await self._questions.ask(node, GRANT, msgspec.json.encode(wanted)))
        except (msgspec.MsgspecError, trio.TooSlowError) as exc:
            raise HostError(Code.NOT_CONNECTED, f"node {node} could not grant it") from exc

    async def release(self, wanted: Release) -> Released:
        """Ask all nodes that are connected to end a reservation."""
        text, silent = msgspec.json.encode(wanted), list(self._sources.unreachable())
        for node in list(self._questions.bus.connected):
            try:
                if _released.decode(await self._questions.ask(node, RELEASE, text)).is_found:
                    return Released(is_found=True)
            except (HostError, msgspec.MsgspecError):
                silent.append(node)
        return Released(is_found=False, is_whole=not silent)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after what is reserved here, and, where this node grants, in the whole domain; until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await trio.sleep(LOOK_SECONDS)
                try:
                    await self.look()
                except HostError as exc:
                    logger.warning("cluster: reservations of the domain are not known: %s", exc)

    async def look(self) -> None:
        """Look once. Raises HostError."""
        directory = self._sources.directory
        for_objects = list(self._leases.objects_to_look_after())
        found = await directory.find([KEY, *{lease.object_key for lease in for_objects}])
        self._note(is_granting=KEY in found and found[KEY].node == self._sources.node)
        gone = [lease for lease in for_objects if lease.object_key not in found]
        for lease in gone:
            self._leases.end(lease.name)
        if gone:
            self._sources.keep(_nothing, _not_kept)
        if self.is_granting:
            self._quotas.saw(await self._sources.stored(), time.time())

    def _note(self, *, is_granting: bool) -> None:
        if is_granting and not self.is_granting:
            self._begins_at = trio.current_time() + BEGIN_SECONDS
        self.is_granting = is_granting

    async def _grant(self, wanted: Grant) -> Granted:
        """Judge one after the other, each by what is stored then. Raises HostError."""
        async with self._granting:
            await trio.sleep_until(self._begins_at)
            self._quotas.saw(await self._sources.stored(), time.time())
            self._service.read(wanted.provider, wanted.limits, wanted.usage)
            return self._quotas.grant(wanted, time.time())

    def _asked(self, text: bytes, answer: Callable[[bytes], None]) -> None:
        """Another node asks. Raises PeerError: PROTOCOL_ERROR."""
        try:
            wanted = _grants.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the question cannot be read") from exc
        if self._nursery is not None:
            self._nursery.start_soon(self._answer, wanted, answer)

    async def _answer(self, wanted: Grant, answer: Callable[[bytes], None]) -> None:
        self._note(is_granting=True)  # it has just looked into the directory
        try:
            answer(msgspec.json.encode(await self._grant(wanted)))
        except HostError as exc:
            logger.warning("cluster: a reservation cannot be granted: %s", exc)
            answer(b"")

    def _asked_to_release(self, text: bytes, answer: Callable[[bytes], None]) -> None:
        """Another node asks, for an operator; answered when it is stored. Raises PeerError: PROTOCOL_ERROR."""
        try:
            wanted = _releases.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the question cannot be read") from exc
        if self._leases.end(wanted.name) is None:
            answer(msgspec.json.encode(Released(is_found=False)))
            return
        kept = partial(answer, msgspec.json.encode(Released(is_found=True)))
        self._sources.keep(kept, lambda _: answer(b""))


def _nothing() -> None:
    """It is stored."""


def _not_kept(error: HostError) -> None:
    logger.warning("cluster: reservations that have ended are not stored: %s", error)
