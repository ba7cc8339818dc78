"""A node's state with its services and nothing around them: what a connector and the bus would do, as plain calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from msg_node.addresses.core.allocation import Owners
from msg_node.bus.announcements import Announcements
from msg_node.kernel.certificates import PeerCertificate
from msg_node.kernel.changes import Change, Journal, Table
from msg_node.kernel.credentials import Credential, Credentials
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.proof import Offered
from msg_node.kernel.rules import Rules
from msg_node.kernel.service import ServiceResult
from msg_node.kernel.session import Dialect, Line
from msg_node.node_state import StateParts, make_state, restore
from msg_node.registries.core.twin import Twin
from msg_node.services import NodeFacts, make_services
from msg_node.sessions.core.session_service import Permit, SessionService, permit_all
from msg_node.sessions.core.transitions import SessionRules, SessionTransitions
from protofly import codec
from protofly.limits import ALLOCATION_PER_SESSION
from protofly.message import Message

DOMAIN = "alpha.example"
NODE = f"runtime://{DOMAIN}/mn-1"
ALLOCATION = f"domain://msg-node.{DOMAIN}/address-allocation"
SM = f"domain://msg-node.{DOMAIN}/sm"
REGISTRY = f"domain://registry.{DOMAIN}"
GRACE_SECONDS = 120.0


def body_of(message: Message) -> dict[str, object]:
    """Members of a reply's body."""
    return codec.body_members(message.body)


def apply_changes(rows: dict[Table, dict[str, bytes]], changes: Iterable[Change]) -> None:
    """What the state store does with changes."""
    for change in changes:
        if change.row is None:
            rows[change.table].pop(change.key, None)
        else:
            rows[change.table][change.key] = msgspec.json.encode(change.row)


class StateRig:
    """Cores and services over rows in memory. `restarted()` is the same rig after `kill -9`."""

    def __init__(
        self,
        *,
        credentials: Iterable[Credential] = (),
        gate: Credentials | None = None,
        lease_seconds: float | None = None,
        notifies_presence: bool = False,
        permit: Permit = permit_all,
        allows_anonymous: bool = True,
        allows_guests: bool = False,
        rules: Rules | None = None,
        pools: Mapping[str, Sequence[str]] | None = None,
        addresses_per_session: int = ALLOCATION_PER_SESSION,
        kept_objects: Sequence[str] = (),
        rows: dict[Table, dict[str, bytes]] | None = None,
    ) -> None:
        self.now = 1_000_000.0
        self.rows: dict[Table, dict[str, bytes]] = rows if rows is not None else {table: {} for table in Table}
        self._credentials = tuple(credentials)
        self._seeds = 0
        self._pools = pools
        self._gate = gate or Credentials(self._credentials, allows_anonymous=allows_anonymous)
        journal = Journal()
        parts = StateParts(
            journal=journal,
            owners=Owners(journal, per_session=addresses_per_session, pools=pools),
            rules=rules or Rules(),
            twin=Twin(journal, objects=kept_objects),
            transitions=SessionTransitions(
                journal, self._gate, SessionRules(GRACE_SECONDS, lease_seconds=lease_seconds)
            ),
        )
        self.state = make_state(OwnNames.of({DOMAIN, "alias.example"}, {NODE}), parts)
        self.services = make_services(
            self.state,
            SessionService(
                self.state.lifecycle,
                self.state.own,
                permit=permit,
                permit_guest=(lambda _domain, _message: None) if allows_guests else None,
            ),
            Announcements(NODE, self.state.listeners, first_id=1000, notifies_presence=lambda: notifies_presence),
            NodeFacts(NODE, "1"),
        )

    def restarted(self) -> StateRig:
        """A new process over the same rows."""
        rig = StateRig(gate=self._gate, rows=self.rows, pools=self._pools)
        rig.now = self.now + 1
        rig._seeds = self._seeds
        restore(rig.state, rig.rows, now=rig.now)
        rig.keep(rig.state.take_changes())
        return rig

    def seed(self) -> bytes:
        """Fresh bytes, the same in every run."""
        self._seeds += 1
        return hashlib.sha256(str(self._seeds).encode()).digest()

    def keep(self, changes: Iterable[Change]) -> None:
        """Commit."""
        apply_changes(self.rows, changes)

    def swept(self) -> ServiceResult:
        """Everything that is over ends: what came of all slices together."""
        results = []
        for sweep in (self.services.sessions.sweep, self.services.sweep_registry):
            while (one := sweep(now=self.now)).changes or one.effects:
                results.append(one)
        return ServiceResult(
            notifications=[one for result in results for one in result.notifications],
            changes=[one for result in results for one in result.changes],
            effects=[one for result in results for one in result.effects],
            notices=[one for result in results for one in result.notices],
            news=[one for result in results for one in result.news],
        )

    def session_verb(
        self,
        type_: str,
        from_: str,
        connection: int,
        body: Mapping[str, object] | None = None,
        bearer: str = "",
        certificate: PeerCertificate | None = None,
        dialect: Dialect = Dialect.SESSION_MESSAGES,
    ) -> ServiceResult:
        """One message to `mn:/session`."""
        message = codec.build(id=1, type=type_, from_=from_, to="mn:/session", body=body)
        result = self.services.sessions.handle_session(
            message, Line(connection, Offered(bearer, certificate), dialect), now=self.now, seed=self.seed()
        )
        self.keep(result.changes)
        return result

    def open(self, name: str, connection: int, body: Mapping[str, object] | None = None) -> tuple[int, str]:
        """Open a session of runtime `name`; return its number and token."""
        result = self.session_verb("open", f"runtime://{DOMAIN}/{name}", connection, body)
        reply = body_of(result.replies[0])
        assert reply["code"] == 200, reply
        sid = self.state.sessions.by_connection(connection)
        assert sid is not None
        return sid, str(reply["runtimeToken"])

    def ask(
        self,
        sid: int,
        to: str,
        type_: str,
        body: object = None,
        *,
        from_: str = "",
        id_: int | str | None = 7,
    ) -> ServiceResult:
        """One message to a service."""
        session = self.state.sessions.get(sid)
        sender = from_ or (session.runtime if session is not None else f"runtime://{DOMAIN}/nobody")
        raw = codec.encode_message(
            id=id_, type=type_, from_=sender, to=to, body=msgspec.json.encode(body) if body is not None else None
        )
        result = self.services.handle(codec.decode(raw)[0], sid, now=self.now, seed=self.seed())
        self.keep(result.changes)
        return result

    def reply(self, sid: int, to: str, type_: str, body: object = None, *, from_: str = "") -> dict[str, object]:
        """Body of the one reply to a request to a service."""
        (reply,) = self.ask(sid, to, type_, body, from_=from_).replies
        return body_of(reply)
