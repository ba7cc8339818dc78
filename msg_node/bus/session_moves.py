"""Sessions that come from other nodes of the domain, and go there: the same runtime is never live twice.

Before a session is opened or brought back here, its runtime address is claimed in the directory. If another node has
it, that one is asked for the session: it decides by its own rules, ends the session there (4001) and gives it with all
that it holds. If that node has died, and its lease with it, the session is taken from what it stored. Otherwise the
runtime is refused: 409 `address-taken` while another connection has the session, 503 `not-connected` while its node can
neither be asked nor is known to be dead. A session that a node gave, and that the one that asked has not taken in, is
found by its token (`moved_session`). Who asks for it before it is durable there has to try again, and until then the
giver keeps its claims: else somebody would find neither the session nor where it is, and call its token a bad one.
The runtime is claimed before its addresses, so that of several nodes that want a session at once one claims those.

    open ─▶ ours? ─▶ free: claim ─▶ as by a node alone
                  ─▶ another's: ask it, or read what it stored ─▶ claim in its place ─▶ take the session in ─▶ same

While that is under way nothing more is read from the runtime's connection. Source: message specification, section 5.1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import trio

from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.core.moved_session import (
    Asked,
    GivenSession,
    MovedSession,
    find_wanted,
    let_go,
    move_in,
    move_out,
    moved_events,
)
from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import Effects
from msg_node.bus.node_questions import ANSWER_SECONDS, NodeQuestions
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.runtime_port import RuntimePort
from msg_node.bus.services import SessionRequests
from msg_node.cluster.directory import NONE_DEAD, Claim
from msg_node.kernel.changes import Change, Table, decode_row
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.resources import is_child_form
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.service import ServiceResult
from msg_node.kernel.session import OpenRefused
from msg_node.requests.parked_actions import ParkedActions
from msg_node.sessions.core.session_service import (
    RECONNECTION_FAIL,
    OpenRefusedError,
    ReconnectionError,
    offered_token,
)
from protofly import codec
from protofly.address import domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.message import Message

logger = logging.getLogger("msg_node")

ASKED: Final = b"s"
MOVED_BYTES: Final = 4 << 20
"""Most of a session that moves: what holds more stays where it is."""
MOVES_AT_ONCE: Final = 256

StoredAt = Callable[[str, Asked], Awaitable[tuple[MovedSession | None, int]]]
"""Reads what a node that has died stored of a session, and under which epoch it died.

Raises HostError: NOT_CONNECTED while it may be alive.
"""

GivenAway = Callable[[str], Awaitable[bytes | None]]
"""Reads a session on its way by the digest of its token. Raises HostError."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the node that has a session to a request to move it.

    Attributes:
        moved: The session, which has ended there; None: there is none, or it stays.
        refusal: Word of the code why it stays, "" when it does not.
        retry_seconds: When another try may succeed.
    """

    moved: MovedSession | None = None
    refusal: str = ""
    retry_seconds: float = 0.0


_asked_decoder = msgspec.json.Decoder(Asked)
_answered_decoder = msgspec.json.Decoder(Answered)


class PausedReading:
    """Has the reader of a connection wait until its session has been decided."""

    is_slow = False
    patience_seconds = 2 * ANSWER_SECONDS + 5.0

    def __init__(self) -> None:
        self._done = trio.Event()

    @property
    def is_congested(self) -> bool:
        """True until then."""
        return not self._done.is_set()

    async def wait_relief(self) -> None:
        """Wait until then."""
        await self._done.wait()

    def end(self) -> None:
        """Let it go on."""
        self._done.set()


class SessionMoves:
    """Claims runtimes before their sessions are opened here, and gives sessions away.

    Args:
        node: The name of this node.
        state: Sessions and what they hold.
        claims: What is ours already, and the directory.
        stored_at: See `StoredAt`.
        given_away: See `GivenAway`.
        questions: To other nodes, and of theirs.
    """

    def __init__(
        self,
        node: str,
        state: BusTables,
        claims: AddressClaims,
        *,
        stored_at: StoredAt,
        given_away: GivenAway,
        questions: NodeQuestions,
    ) -> None:
        self._node = node
        self._state = state
        self._directory = claims.directory
        self._questions = questions
        questions.late_answerers[ASKED] = self._answer
        self._claims = claims
        self._stored_at = stored_at
        self._given_away = given_away
        self._moving: dict[str, trio.Event] = {}
        self._giving: set[str] = set()
        self._sessions: SessionRequests
        self._effects: Effects
        self._own: OwnMessages
        self._actions: ParkedActions
        self._wanted, self._coming = trio.open_memory_channel[Callable[[], Awaitable[None]]](MOVES_AT_ONCE)
        claims.on_lost, claims.others.on_shared = self.lost, self.shared
        claims.others.shares = partial(_shares, state)
        claims.on_claimed = state.owners.confirm
        state.owners.awaits_claims = True

    def connect(self, sessions: SessionRequests, effects: Effects, own: OwnMessages, actions: ParkedActions) -> None:
        """Set who ends sessions here, and who has events repeated to them; once, before anything runs."""
        self._actions = actions
        self._sessions = sessions
        self._effects = effects
        self._own = own

    async def run(self) -> None:
        """Open what was prepared until cancelled."""
        async with trio.open_nursery() as nursery:
            async for prepare in self._coming:
                nursery.start_soon(prepare)

    # A runtime of ours.

    def prepare(
        self, port: RuntimePort, message: Message, go_on: Callable[[], None], refuse: Callable[[PeerError], None]
    ) -> bool:
        """Claim the runtime of a request for a session, unless it is ours already; then nothing is to be waited for.

        Args:
            port: The connection, whose reader waits.
            message: Of type open or re-open.
            go_on: Serves the request, as soon as the runtime is ours.
            refuse: Answers it with an error.

        Returns:
            False when nobody has to be asked.
        """
        try:
            runtime_key = runtime_part(message.from_key) or message.from_key
            domain = domain_of(runtime_key)
        except PeerError:
            return False  # the service says what is wrong with it
        if runtime_key in self._claims.held or domain not in self._state.domains:
            return False
        if self._state.sessions.by_connection(port.connection) is not None:
            return False  # it gets no second one: the service says so, and nothing has to come here for that
        paused = PausedReading()

        async def move() -> None:
            while (before := self._moving.get(runtime_key)) is not None:
                await before.wait()  # one connection after the other, as at a node alone
            done = self._moving[runtime_key] = trio.Event()
            try:
                if runtime_key not in self._claims.held:
                    await self._move(runtime_key, self._asked(port, message, runtime_key))
            except HostError as exc:
                refuse(exc if isinstance(exc, PeerError) else PeerError(exc.code, exc.detail))
            else:
                go_on()
                self._release_unused(runtime_key)
            finally:
                del self._moving[runtime_key]
                done.set()
                paused.end()

        try:
            self._wanted.send_nowait(move)
        except trio.WouldBlock:
            refuse(PeerError(Code.OVERLOAD, "too many sessions are moving"))
            return True
        port.blockers.add(paused)
        return True

    def _asked(self, port: RuntimePort, message: Message, runtime_key: str) -> Asked:
        """What the other node is asked. Raises PeerError: what is offered as a proof is none, as the service says."""
        credentials, offered = self._state.transitions.credentials, port.line.offered
        is_open = message.type == "open"
        token = offered_token(codec.request_members(message.body))
        if not is_open and not token:
            credentials.check_connection(offered)
            return Asked(runtime_key=runtime_key, session_address=message.from_key, takes_given=True)
        offered = Offered(token or offered.token, offered.certificate)
        proven = credentials.check(offered, runtime_key, now=self._effects.now())
        if not is_open:
            return Asked(runtime_key=runtime_key, session_address=message.from_key, takes_given=True)
        credential, is_in_full = proven.credential, proven.is_in_full
        return Asked(runtime_key=runtime_key, credential=credential, is_in_full=is_in_full, takes_given=True)

    async def _move(self, runtime_key: str, asked: Asked) -> None:
        """Make a runtime ours, and its session, wherever that is."""
        if runtime_key in self._giving:
            raise PeerError(Code.OVERLOAD, "its session goes to another node")
        owner = (await self._directory.claim([runtime_key]))[runtime_key]
        is_ours = owner.node == self._node
        moved, dead = None, NONE_DEAD
        if owner.node in self._questions.bus.connected:
            moved = await self._session_at(owner.node, asked)
        elif not is_ours:
            moved, epoch = await self._stored_at(owner.node, asked)
            dead = {owner.node: epoch}
        if moved is None and asked.session_address:
            moved = await self._on_its_way(asked)
        elif moved is not None and dead:
            await self._put_on_its_way(moved)  # what it holds is claimed in place of the dead before it is stored here
        if moved is None and is_ours:
            self._claims.held.add(runtime_key)
            return
        owners = await self._claim(runtime_key, owner, moved, dead)
        if owners[runtime_key] == owner and not is_ours:
            if moved is not None:
                self._off_its_way(moved)  # that node has it, and may end it
            raise HostError(Code.NOT_CONNECTED, "the node that has the session has begun again")
        if owners[runtime_key].node != self._node:
            raise PeerError(Code.ADDRESS_TAKEN, "another node was faster")
        self._claims.held.add(runtime_key)
        if moved is not None:
            self._take_in(moved, owners)

    async def _on_its_way(self, asked: Asked) -> MovedSession | None:
        """The session of a runtime that another node gave, and that nobody has taken in; None if there is none."""
        if self._state.sessions.by_session_address(asked.session_address) is not None:
            return None
        digest = digest_of(asked.session_address.rpartition("/")[2])
        row = await self._given_away(digest)
        if row is None:
            return None
        given = decode_row(row, GivenSession, table=Table.GIVEN_SESSIONS, key=digest)
        moved = decode_row(bytes(given.moved), MovedSession, table=Table.GIVEN_SESSIONS, key=digest)
        is_over = given.given_at + self._state.transitions.rules.grace_seconds < self._effects.now()
        return None if is_over or moved.session.runtime_key != asked.runtime_key else moved

    async def _put_on_its_way(self, moved: MovedSession) -> None:
        """Store a session for any node that takes it in. Raises HostError."""
        done, errors = trio.Event(), list[HostError]()

        def failed(error: HostError) -> None:
            errors.append(error)
            done.set()

        self._claims.submit([_given(moved, msgspec.json.encode(moved), self._effects.now())], done.set, failed)
        await done.wait()
        if errors:
            raise errors[0]

    def _off_its_way(self, moved: MovedSession) -> None:
        done = Change(Table.GIVEN_SESSIONS, moved.session.token_digest, None)
        with suppress(HostError):  # it is forgotten when its grace has ended
            self._claims.submit([done], _nothing, is_awaited=False)

    async def _claim(
        self, runtime_key: str, owner: Claim, moved: MovedSession | None, dead: Mapping[str, int]
    ) -> dict[str, Claim]:
        """Claim a runtime in place of the node that had it, and if that succeeds what its session owns."""
        known = {} if moved is None else {key: Claim(*claim) for key, claim in moved.claims.items()}
        known[runtime_key] = owner
        replaced = {key: claim for key, claim in known.items() if claim.node != self._node}
        keys = [runtime_key] if moved is None else moved.keys
        owners = await self._directory.claim(keys, replaced, led_by=runtime_key, dead=dead)
        if moved is None or owners[runtime_key].node != self._node:
            return owners
        others = {key: one for key, one in owners.items() if one.node != self._node}
        free = {key for key, one in others.items() if one.node == owner.node}
        if rest := {key: one for key, one in others.items() if key not in free}:
            free.update(await self._claims.others.abandoned(rest))
        if free:
            owners |= await self._directory.claim(free, {key: others[key] for key in free}, dead=dead)
        return owners

    def _take_in(self, moved: MovedSession, owners: dict[str, Claim]) -> None:
        claimant = self._state.owners.claimant  # of what somebody here has claimed since it was stored
        ours = {key for key, claim in owners.items() if claim.node == self._node and claimant(key) is None}
        sid = self._state.transitions.next_sid
        changes = move_in(self._state, moved.with_only(ours), now=self._effects.now())
        changes.append(Change(Table.GIVEN_SESSIONS, moved.session.token_digest, None))
        self._claims.has_claimed(ours)
        self._take_events(sid, moved)
        self._effects.apply(ServiceResult(changes=changes), self._own.send)

    def _take_events(self, sid: int, moved: MovedSession) -> None:
        actions, now = self._actions, self._effects.now()
        for one in moved.events:
            with suppress(codec.BrokenMessageError):
                [event] = codec.decode(bytes(one.message))
                actions.guaranteed.take_over(event, sid, now, one.seconds)
                actions.is_used = True

    def _release_unused(self, runtime_key: str) -> None:
        """The request was refused after all: the runtime may be opened elsewhere."""
        if self._state.sessions.by_runtime(runtime_key) is None:
            self._claims.release([runtime_key])

    def lost(self, keys: Sequence[str]) -> None:
        """Other nodes own addresses that memory has here: end what is bound to them."""
        for key in keys:
            sid, owner = self._state.sessions.by_runtime(key), self._state.owners.claimant(key)
            if sid is not None:
                self._effects.apply(self._sessions.move_out(sid, now=self._effects.now()), self._own.send)
            elif owner is not None:
                self._state.listeners.remove_at(owner, key)
                self._state.owners.release({owner}, key)
        self._effects.store_rest()

    def shared(self, keys: Sequence[str]) -> None:
        """Other nodes own what these are below: who has claimed them here listens to them, and owns them no more."""
        for key in keys:
            owner = self._state.owners.claimant(key)
            if owner is not None:
                self._state.owners.release({owner}, key)
        self._effects.store_rest()

    # Another node.

    async def _session_at(self, node: str, asked: Asked) -> MovedSession | None:
        """The session that a node gives away. Raises PeerError: why it does not."""
        text = await self._questions.ask(node, ASKED, msgspec.json.encode(asked))
        try:
            answer = _answered_decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise HostError(Code.NOT_CONNECTED, "the answer of the node cannot be read") from exc
        if answer.refusal == Code.BAD_TOKEN.word:
            raise ReconnectionError(RECONNECTION_FAIL)
        if answer.refusal:
            code = Code.ADDRESS_TAKEN if answer.refusal == Code.ADDRESS_TAKEN.word else Code.OVERLOAD
            raise OpenRefusedError(OpenRefused(code, answer.retry_seconds))
        return answer.moved

    def _answer(self, text: bytes, answer: Callable[[bytes], None]) -> None:
        """Another node asks for a session: give it away, or say why not. Raises PeerError: PROTOCOL_ERROR."""
        try:
            asked = _asked_decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "the question cannot be read") from exc
        self._give(asked, lambda answered: answer(msgspec.json.encode(answered)))

    def _give(self, asked: Asked, answer: Callable[[Answered], None]) -> None:
        now = self._effects.now()
        found = find_wanted(self._state, asked, now=now)
        if found is None:
            answer(Answered(refusal=self._why_none(asked)))
            return
        if isinstance(found, OpenRefused):
            answer(Answered(refusal=found.code.word, retry_seconds=found.retry_after_seconds))
            return
        events = moved_events(self._actions.guaranteed.of_subscriber(found.sid, now))
        moved = msgspec.structs.replace(move_out(self._state, found), events=events)
        text = msgspec.json.encode(moved)
        if len(text) > MOVED_BYTES:
            answer(Answered(refusal=Code.OVERLOAD.word))
            return
        let_go(self._state, found, moved)
        if not asked.takes_given:
            self._effects.apply(self._sessions.move_out(found.sid, now=now), self._own.send)
            answer(Answered(moved=moved))
            return
        self._giving.add(asked.runtime_key)
        self._claims.keep(moved.keys)

        def given(answered: Answered) -> None:
            self._giving.discard(asked.runtime_key)
            self._claims.release_kept(moved.keys)
            answer(answered)

        self._effects.apply(self._sessions.move_out(found.sid, now=now), self._own.send)
        try:  # with what ends it here, in one transaction
            self._claims.submit(
                [_given(moved, text, now)],
                lambda: given(Answered(moved=moved)),
                lambda _: given(Answered(refusal=Code.OVERLOAD.word)),
            )
        except HostError:
            given(Answered(moved=moved))  # not even that is taken any more: let it go as it can

    def _why_none(self, asked: Asked) -> str:
        """Why a session is not here: "" if another node may look where it is, and have the runtime."""
        if asked.runtime_key in self._moving or asked.runtime_key in self._giving:
            return (Code.OVERLOAD if asked.session_address else Code.ADDRESS_TAKEN).word
        if not asked.session_address:
            return ""
        has_another = self._state.sessions.by_runtime(asked.runtime_key) is not None
        return Code.BAD_TOKEN.word if has_another or asked.runtime_key in self._claims.held else ""


def _given(moved: MovedSession, text: bytes, now: float) -> Change:
    """Puts a session on its way."""
    given = GivenSession(given_at=now, moved=msgspec.Raw(text))
    return Change(Table.GIVEN_SESSIONS, moved.session.token_digest, given)


def _nothing() -> None:
    """Nobody waits."""


def _shares(state: BusTables, key: str) -> bool:
    """True for a child, unless it matters whom the reporter of its object, at another node, has accepted."""
    return is_child_form(key) and not state.observer_rights.matters
