"""Proofs of identity: what an opener offers, and what was proven. Source: message specification, section 5.1."""

from __future__ import annotations

from dataclasses import dataclass

from msg_node.kernel.certificates import PeerCertificate


@dataclass(frozen=True, slots=True)
class Offered:
    """Proofs that a connection offers, and the network it comes from.

    Attributes:
        token: A bearer token, "" without one.
        certificate: Of the connection.
        network: Whom it counts for; see `wire.core.address_group`. A broker counts for all of its clients.
    """

    token: str = ""
    certificate: PeerCertificate | None = None
    network: str = ""


NOTHING_OFFERED = Offered()


@dataclass(frozen=True, slots=True)
class Proven:
    """The proven facts about the client of one runtime.

    Attributes:
        credential: What is stored of it, "" for an anonymous client.
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
