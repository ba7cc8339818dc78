"""Changes of policies that wait for a second person, where the settings ask for two.

Who asks for such a change proposes it: everything is checked, and nothing has changed. It is made when somebody with
another credential confirms it, and checked again for that. A bundle needs no proposal: adding it is one.
Proposals are in memory, expire after a day, and have the same name for the same change by the same credential, so that
the processes of one node agree about it. Source: feature row PE-07.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from protofly.errors import Code, PeerError

PROPOSALS: Final = 64
PROPOSAL_SECONDS: Final = 86_400.0
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
_ID_CHARS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One change that waits.

    Attributes:
        id: Its name.
        operation: The change.
        arguments: As they were asked for.
        by: Who proposed it, for people.
        credential: What proved them.
        at: When, in seconds since the Unix epoch.
        revisions: Of the policies before and after it; empty where it is about groups or gates.
    """

    id: str
    operation: str
    arguments: Mapping[str, Any]
    by: str
    credential: str
    at: float
    revisions: tuple[str, ...] = ()

    @property
    def until(self) -> float:
        """When it expires, in seconds since the Unix epoch."""
        return self.at + PROPOSAL_SECONDS

    def check_person(self, credential: str) -> None:
        """Check that it may be confirmed with a credential. Raises PeerError SECOND_PERSON."""
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
    operation: str, arguments: Mapping[str, Any], result: Mapping[str, Any], by: str, credential: str, now: float
) -> Proposal:
    """The proposal of a change, from what its dry run has found."""
    said = msgspec.json.encode((operation, dict(arguments), credential), order="sorted")
    return Proposal(
        id=hashlib.sha256(said).hexdigest()[:_ID_CHARS],
        operation=operation,
        arguments=dict(arguments),
        by=by,
        credential=credential,
        at=now,
        revisions=revisions_of(operation, result),
    )


def revisions_of(operation: str, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Revisions of the policies before and after a change, as its dry run shows them."""
    if not operation.startswith("policy "):
        return ()
    return tuple(str(result[side]["revision"]) for side in ("before", "after"))


class Proposals:
    """All that wait, oldest first."""

    def __init__(self) -> None:
        self._waiting: dict[str, Proposal] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, proposal: Proposal, now: float) -> None:
        """Keep one; the same again begins its day anew.

        Raises:
            PeerError: QUOTA: too many wait.
        """
        self._expire(now)
        self._waiting.pop(proposal.id, None)
        if len(self._waiting) >= PROPOSALS:
            raise PeerError(Code.QUOTA, f"{PROPOSALS} changes of policies wait for a second person already")
        self._waiting[proposal.id] = proposal

    def find(self, id_: str, now: float) -> Proposal:
        """The proposal of a name. Raises PeerError NOT_REGISTERED."""
        self._expire(now)
        found = self._waiting.get(id_)
        if found is None:
            raise PeerError(Code.NOT_REGISTERED, "no change waits under this name; `policy proposals` lists them")
        return found

    def remove(self, id_: str) -> None:
        """It is made, or withdrawn."""
        self._waiting.pop(id_, None)

    def waiting(self, now: float) -> list[Proposal]:
        """Those that wait, oldest first."""
        self._expire(now)
        return list(self._waiting.values())

    def _expire(self, now: float) -> None:
        for one in [one for one in self._waiting.values() if now >= one.until]:
            del self._waiting[one.id]
