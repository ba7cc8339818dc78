"""What an opener offers to prove who he is, and what came of it. Source: message specification, section 5.1."""

from __future__ import annotations

from dataclasses import dataclass

from msg_node.kernel.certificates import PeerCertificate


@dataclass(frozen=True, slots=True)
class Offered:
    """What somebody offers as proof: a bearer token, "" without one, and the certificate of his connection."""

    token: str = ""
    certificate: PeerCertificate | None = None


@dataclass(frozen=True, slots=True)
class Proven:
    """Who somebody is for one runtime.

    Attributes:
        credential: What is stored of it, "" for somebody anonymous.
        roles: What policies see as `session.roles`.
        expires_at: When the proof ends, in seconds since the Unix epoch; None: never.
        is_in_full: It names this runtime itself and not only a pattern that covers it.
        login: The login at our identity manager that it comes from, and with which it ends; "" for none.
    """

    credential: str = ""
    roles: frozenset[str] = frozenset()
    expires_at: float | None = None
    is_in_full: bool = False
    login: str = ""


ANONYMOUS = Proven()
