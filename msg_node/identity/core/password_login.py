"""Log-ins of local users with a password: the question, its answer, and how users are named. Pure.

Source: feature row SC-14.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

import msgspec

from msg_node.identity.core.password_attempts import Pause
from msg_node.kernel.service import ConnectorName
from protofly.address import domain_of, parse
from protofly.errors import PeerError

PASSWORD_BYTES: Final = 1024
LEAST_BYTES: Final = 8
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class PasswordQuestion(msgspec.Struct, frozen=True):
    """Is this the password of that user?

    Attributes:
        user: "" for a name that nobody can have.
        password: As it was typed.
        session: Number of the session that asks.
        new_password: What it is to be from now on; "" to leave it.
    """

    user: str
    password: str
    session: int
    new_password: str = ""

    def __repr__(self) -> str:
        return f"PasswordQuestion({self.user!r})"  # it may come into a log


class PasswordVerdict(msgspec.Struct, frozen=True):
    """The verdict on a password. With a `pause` it was not looked at, since there were too many attempts.

    `began` is when the user was looked up, in seconds since the Unix epoch: a check takes its time, and who is disabled
    meanwhile, or gets another password, has not logged in after that.
    """

    is_right: bool
    roles: tuple[str, ...] = ()
    pause: Pause | None = None
    began: float = 0.0


PASSWORDS: ConnectorName[PasswordQuestion, PasswordVerdict] = ConnectorName("passwords")
"""Checks the password of a local user."""


def is_user_name(name: str) -> bool:
    """True for a name that a local user can have: lower-case letters, digits, and `.`, `_`, `-` inside."""
    return _NAME.fullmatch(name) is not None


def bytes_of_password(password: str) -> bytes:
    """A password as it is hashed: what looks the same is the same."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")


def is_acceptable(password: str) -> bool:
    """True for a password that users may choose: 8 to 1024 bytes."""
    return LEAST_BYTES <= len(bytes_of_password(password)) <= PASSWORD_BYTES


@dataclass(frozen=True, slots=True)
class LocalAccounts:
    """Naming of local users.

    Attributes:
        domain: Our domain, whose users they are.
        domains: With its aliases.
    """

    domain: str
    domains: frozenset[str]

    def address(self, name: str) -> str:
        """The address of a user."""
        return f"user://{self.domain}/{name}"

    def name_in(self, text: str) -> str:
        """The name in `ana`, `ana@a.example` or `user://a.example/ana`; "" when no local user can have it."""
        text = text.strip()
        if "://" in text:
            try:
                scheme, _, path = parse(text)
                is_ours = scheme == "user" and domain_of(text) in self.domains
            except PeerError:
                return ""
            name = path.strip("/") if is_ours else ""
        else:
            name, _, domain = text.partition("@")
            if domain and domain.lower() not in self.domains:
                return ""
        name = name.lower()
        return name if is_user_name(name) else ""
