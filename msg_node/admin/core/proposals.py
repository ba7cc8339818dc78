"""Changes of policies that wait for a second person, where the settings ask for two.

Who asks for such a change proposes it: everything is checked, and nothing has changed. It is made when somebody with
another credential confirms it, and checked again for that. A bundle needs no proposal: adding it is one.

Proposals are rows of the domain: they survive the process, expire after a day, and each of several nodes knows all of
them. A change of what one node has alone is made where it was proposed, at whichever node it is confirmed: the row says
by whom, and its node makes it. The same change by the same credential has the same name at each node, so that the
processes of one node agree about it; each has a row of its own.

The number of a user means a person on one machine only: the same number may be somebody else on another one, and one
person may have several. So a user of one machine confirms nothing that a user of another has proposed. Tokens,
certificates and log-ins are the same everywhere. Source: feature row PE-07.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.errors import Code, PeerError

PROPOSALS: Final = 64
PROPOSAL_SECONDS: Final = 86_400.0
_MADE_KEPT: Final = 256
NEED_TWO: Final = frozenset(
    {
        "policy roll-back",
        "group create",
        "group add",
        "group take",
        "group remove",
        "gate set",
        "gate unset",
    }
)
"""Operations that change which messages pass; so does `policy activate` for the files of the settings."""
OF_DOMAIN: Final = frozenset({"gate set", "gate unset"})
"""Those whose effect is at all nodes of the domain, wherever they are made."""
_ID_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class Author:
    """Operator who proposes or confirms a change.

    Attributes:
        by: For people.
        credential: What proved them; "" for nobody.
        machine: Where that means somebody; "" for a credential that is the same everywhere.
    """

    by: str
    credential: str
    machine: str = ""

    @property
    def digest(self) -> str:
        """Digest of the credential, which is all that is stored of it; "" if there is none."""
        return hashlib.sha256(self.credential.encode()).hexdigest() if self.credential else ""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One change that waits.

    Attributes:
        id: Its name.
        operation: The change.
        arguments: As they were asked for, as JSON.
        by: Who proposed it, for people.
        credential: A digest of what proved them.
        at: When, in seconds since the Unix epoch.
        revisions: Of the policies before and after it; empty where it is about groups or gates.
        node: Where it was proposed.
        confirmed_by: Who has confirmed it at another node, for people; "" while it waits.
        confirmed_with: A digest of what proved them.
        machine: Where the credential of who proposed it means somebody; "" for everywhere.
        confirmed_on: The same of who has confirmed it.
    """

    id: str
    operation: str
    arguments: str
    by: str
    credential: str
    at: float
    revisions: tuple[str, ...] = ()
    node: str = ""
    confirmed_by: str = ""
    confirmed_with: str = ""
    machine: str = ""
    confirmed_on: str = ""

    @property
    def asked(self) -> dict[str, Any]:
        """The arguments, to be read again."""
        return msgspec.json.decode(self.arguments, type=dict[str, Any])

    @property
    def until(self) -> float:
        """Expiry, in seconds since the Unix epoch."""
        return self.at + PROPOSAL_SECONDS

    def check_person(self, credential: str, machine: str) -> None:
        """Check that it may be confirmed with a credential of this digest. Raises PeerError SECOND_PERSON."""
        if machine and self.machine and machine != self.machine:
            text = (
                "a user of another machine has proposed this, who may be the same person: confirm it there, or with a "
                "token, certificate or log-in"
            )
            raise PeerError(Code.SECOND_PERSON, text)
        if credential in ("", self.credential):
            text = (
                "`policy.two_persons` is set: a change of policies is confirmed with another credential than proposed"
            )
            raise PeerError(Code.SECOND_PERSON, text)

    def check_current(self, revisions: tuple[str, ...]) -> None:
        """Check that it would still do what was proposed. Raises PeerError RECORD_OUTDATED."""
        if revisions != self.revisions:
            raise PeerError(Code.RECORD_OUTDATED, "other policies have come in force since: withdraw it, propose again")


def proposal_of(
    operation: str, arguments: Mapping[str, Any], result: Mapping[str, Any], author: Author, now: float
) -> Proposal:
    """The proposal of a change, from what its dry run has found; it is of no node yet."""
    whom = (author.credential, author.machine) if author.machine else (author.credential,)
    said = msgspec.json.encode((operation, dict(arguments), *whom), order="sorted")
    return Proposal(
        id=hashlib.sha256(said).hexdigest()[:_ID_CHARS],
        operation=operation,
        arguments=msgspec.json.encode(dict(arguments)).decode(),
        by=author.by,
        credential=author.digest,
        machine=author.machine,
        at=now,
        revisions=revisions_of(operation, result),
    )


def revisions_of(operation: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Revisions of the policies before and after a change, as its dry run shows them."""
    if not operation.startswith("policy "):
        return ()
    return tuple(str(result[side]["revision"]) for side in ("before", "after"))


class Proposals:
    """All that wait at the nodes of the domain.

    Args:
        journal: Gets what changes.
        node: Ours, as rows name it.
    """

    def __init__(self, journal: Journal, node: str = "") -> None:
        self._journal = journal
        self._node = node
        self._waiting: dict[str, Proposal] = {}
        self._done: dict[tuple[str, float], None] = {}  # what has been made or withdrawn here lately
        self._late: set[str] = set()  # rows of these that were written once more meanwhile

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, proposal: Proposal, now: float) -> None:
        """Keep one of this node; the same again begins its day anew.

        Raises:
            PeerError: QUOTA: too many wait.
        """
        self.expire(now)
        ours = msgspec.structs.replace(proposal, node=self._node)
        if _key(ours) not in self._waiting and len(self._waiting) >= PROPOSALS:
            raise PeerError(Code.QUOTA, f"{PROPOSALS} changes of policies wait for a second person already")
        self._waiting.pop(_key(ours), None)
        self._put(ours)

    def find(self, id_: str, now: float) -> list[Proposal]:
        """The same change as it waits at one node or several, at this one first. Raises PeerError NOT_REGISTERED."""
        named = [one for one in self.waiting(now) if one.id == id_]
        if not named:
            raise PeerError(Code.NOT_REGISTERED, "no change waits under this name; `policy proposals` lists them")
        return sorted(named, key=lambda one: not self.is_ours(one))

    def is_ours(self, proposal: Proposal) -> bool:
        """True if it was proposed at this node."""
        return proposal.node == self._node

    def confirm(self, proposal: Proposal, author: Author) -> None:
        """Let the node where it was proposed make it: one of another node."""
        confirmed = msgspec.structs.replace(
            proposal, confirmed_by=author.by, confirmed_with=author.digest, confirmed_on=author.machine
        )
        self._put(confirmed)

    def confirmed(self) -> list[Proposal]:
        """Those of this node that were confirmed at others, for it to make."""
        return [one for one in self._waiting.values() if one.confirmed_by and self.is_ours(one)]

    def remove(self, proposal: Proposal) -> None:
        """It is made, or withdrawn."""
        self._done[_key(proposal), proposal.at] = None
        if len(self._done) > _MADE_KEPT:
            del self._done[next(iter(self._done))]
        self._delete(_key(proposal))

    def of_person(self, is_named: Callable[[str], bool], credentials: Collection[str]) -> list[Proposal]:
        """Those that a person has proposed or confirmed, or whose arguments name the person.

        Args:
            is_named: True for a text that names the person.
            credentials: What proves the person.
        """
        digests = {Author("", one).digest for one in credentials} - {""}
        return [
            one
            for one in self._waiting.values()
            if not digests.isdisjoint((one.credential, one.confirmed_with))
            or any(map(is_named, (one.by, one.confirmed_by, *map(str, one.asked.values()))))
        ]

    def waiting(self, now: float) -> list[Proposal]:
        """Those that wait, oldest first."""
        self.expire(now)
        return sorted(self._waiting.values(), key=lambda one: one.at)

    def expire(self, now: float) -> None:
        """Forget those whose day is over."""
        for one in [one for one in self._waiting.values() if now >= one.until]:
            self._delete(_key(one))
        while self._late:
            self._journal.delete(Table.PROPOSALS, self._late.pop())

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            self.follow(key, raw)

    def follow(self, key: str, raw: bytes | None) -> None:
        """Another node has stored or removed (None) a proposal. Raises HostError: STORAGE."""
        if raw is None:
            self._waiting.pop(key, None)
            return
        found = decode_row(raw, Proposal, table=Table.PROPOSALS, key=key)
        if (key, found.at) in self._done:  # it was confirmed elsewhere while we made it
            self._late.add(key)
        else:
            self._waiting[key] = found

    def follow_all(self, rows: Rows) -> None:
        """Take over what all nodes have stored, in place of what is known here. Raises HostError: STORAGE."""
        self._waiting.clear()
        self.restore(rows)

    def _put(self, proposal: Proposal) -> None:
        self._waiting[_key(proposal)] = proposal
        self._journal.put(Table.PROPOSALS, _key(proposal), proposal)

    def _delete(self, key: str) -> None:
        del self._waiting[key]
        self._journal.delete(Table.PROPOSALS, key)


def _key(proposal: Proposal) -> str:
    return f"{proposal.id} {proposal.node}"
