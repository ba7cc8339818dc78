"""Clients that operators manage while the node runs: agents, consumers, services, devices. Pure.

A client has a name, the runtime addresses that it may open, roles, and one token, of which the digest is kept. Its kind
is one of its roles. A device may get its token by itself: an operator makes a code for it, which counts once and for a
short time, and opens a session with the only role `enrolling`; there it asks for the token. So nobody but the device
ever has that.

Source: feature rows HV-48 and HV-56.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from msg_node.kernel.credentials import Credential
from msg_node.kernel.runtime_address import is_pattern
from msg_node.kernel.service import ConnectorName
from protofly.address import domain_of
from protofly.errors import Code, PeerError

KINDS: Final = ("agent", "consumer", "service", "device")
ENROLLING: Final = "enrolling"
"""The only role of a session that was opened with a code."""
ENROL_SECONDS: Final = 900.0
ENROL_MOST_SECONDS: Final = 7 * 86_400.0
CLIENTS: Final = 10_000
ROLES: Final = 32
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


class LocalClient(msgspec.Struct, frozen=True, kw_only=True):
    """One client. Times are seconds since the Unix epoch.

    Attributes:
        name: Of the client.
        kind: One of `KINDS`.
        runtime: The runtime address that it may open, or a pattern.
        roles: Besides its kind.
        digest: Of its token, "" without one.
        ends_at: When the token ends; None: never.
        is_disabled: It opens no session.
        code: Digest of its enrolment code, "" without one.
        code_ends_at: When that ends, 0.0 without one.
        token_seconds: How long the token counts that it gets for the code; None: for ever.
        changed_at: When it was changed last.
    """

    name: str
    kind: str
    runtime: str
    roles: tuple[str, ...] = ()
    digest: str = ""
    ends_at: float | None = None
    is_disabled: bool = False
    code: str = ""
    code_ends_at: float = 0.0
    token_seconds: float | None = None
    changed_at: float = 0.0

    def credentials(self) -> Iterator[Credential]:
        """The credentials that open its sessions."""
        if self.is_disabled:
            return
        if self.digest:
            yield Credential(self.digest, self.runtime, frozenset({self.kind, *self.roles}), self.ends_at)
        if self.code:
            yield Credential(self.code, self.runtime, frozenset({ENROLLING}), self.code_ends_at)

    def enrolled(self, digest: str, now: float) -> LocalClient:
        """The client with the token that it gets for its code, which counts no longer."""
        ends_at = None if self.token_seconds is None else now + self.token_seconds
        return msgspec.structs.replace(self, digest=digest, ends_at=ends_at, code="", code_ends_at=0.0, changed_at=now)

    def state(self, now: float) -> str:
        """A word for operators."""
        if self.is_disabled:
            return "disabled"
        if self.digest and (self.ends_at is None or now < self.ends_at):
            return "enabled"
        if now < self.code_ends_at:
            return "to be enrolled"
        return "expired"


class EnrolQuestion(msgspec.Struct, frozen=True):
    """The session of that number, which a code has opened, wants its token."""

    session: int


class Enrolled(msgspec.Struct, frozen=True):
    """The secrets that a device gets in exchange for its code."""

    token: str
    client: LocalClient

    def __repr__(self) -> str:
        return f"Enrolled({self.client.name!r})"  # it may come into a log


ENROLMENT: ConnectorName[EnrolQuestion, Enrolled] = ConnectorName("enrolment")
"""Exchanges the code of a session for a token."""


def read_roles(text: str) -> tuple[str, ...]:
    """Read roles with commas between them.

    Raises:
        PeerError: BAD_BODY.
    """
    roles = tuple(dict.fromkeys(one for part in text.split(",") if (one := part.strip())))
    wrong = [one for one in roles if _ROLE.fullmatch(one) is None or one == ENROLLING]
    if wrong or len(roles) > ROLES:
        detail = f"`roles` are at most {ROLES} words with commas; not one of them is {wrong[0][:64]!r}" if wrong else ""
        raise PeerError(Code.BAD_BODY, detail or f"`roles` are at most {ROLES}")
    return roles


def new_client(name: str, kind: str, runtime: str, roles: tuple[str, ...], domains: Iterable[str]) -> LocalClient:
    """A client without a token.

    Args:
        name: Lower-case letters, digits, and `.`, `_`, `-` inside.
        kind: One of `KINDS`.
        runtime: An address or a pattern.
        roles: Besides its kind.
        domains: Ours.

    Raises:
        PeerError: BAD_BODY.
    """
    if _NAME.fullmatch(name) is None:
        raise PeerError(Code.BAD_BODY, "`name` has lower-case letters and digits, and `.`, `_`, `-` inside")
    if not is_pattern(runtime) or runtime == "*" or domain_of(runtime) not in domains:
        detail = "`runtime` is an address of our domain, runtime://<domain>/<id>, with or without a final `*`"
        raise PeerError(Code.BAD_BODY, detail)
    return LocalClient(name=name, kind=kind, runtime=runtime, roles=roles)
