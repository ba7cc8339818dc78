"""The contact of one running stub with the node of its domain: live or not, and what that node has proved.

                    the stub says `live` (the manifest asks for no proof, or there is one)
        not live ────────────────────────────────────────────────────────────────────────▶ live
            ▲                                                                                │
            └───────── the stub says another state, or the line of the proof is gone ────────┘

A proof is of one line. It is gone with that line, and when the stub is live no more; so nothing that came over one line
counts for another. Each change is returned, for the link. Source: trust and hosts, section 2.7; docs/abi.md.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from federation.core.auth import Claims
from federation.core.stub_lifecycle import StubState
from protofly.errors import Code, StubFaultError


class ContactChange(Enum):
    """A change of which the link is notified."""

    UP = "up"
    PROVED = "proved"
    DOWN = "down"


class StubContact:
    """The contact of one stub instance; it begins without a proof, and not live.

    Args:
        domain: Whose stub it is.
        needs_proof: The manifest asks for authentication: the stub is not live without a proof.

    Attributes:
        is_live: Messages may go and come.
        claims: What the far end has proved and what counts now; None for nothing.
    """

    def __init__(self, domain: str, *, needs_proof: bool) -> None:
        self.is_live = False
        self.claims: Claims | None = None
        self._domain = domain
        self._needs_proof = needs_proof
        self._channel: int | None = None

    @property
    def node(self) -> str:
        """Address of the node that has proved itself, or ""."""
        return "" if self.claims is None else self.claims.node

    @property
    def domains(self) -> frozenset[str]:
        """The domains for which it has proved itself."""
        return frozenset() if self.claims is None else frozenset(self.claims.doms)

    def reported(self, state: StubState) -> ContactChange | None:
        """The stub says that it is in a state.

        Raises:
            StubFaultError: STUB_FAILED: it says `live` without the proof that its manifest asks for.
        """
        if state is StubState.LIVE and self._needs_proof and not self.node:
            detail = "the stub said live before the peer was verified"
            raise StubFaultError(Code.STUB_FAILED, detail, domain=self._domain)
        was_live, self.is_live = self.is_live, state is StubState.LIVE
        if self.is_live == was_live:
            return None
        if self.is_live:
            return ContactChange.UP
        self._forget_proof()
        return ContactChange.DOWN

    def proved(self, channel: int, claims: Claims) -> ContactChange | None:
        """The far end has proved itself on a channel; what was proved before counts no more."""
        self._channel, self.claims = channel, claims
        return ContactChange.PROVED if self.is_live else None

    def renewed(self, claims: Claims, domains: frozenset[str]) -> Claims | None:
        """Have a proof count for these domains from now on, besides the main one.

        Returns:
            The claims in their place, None when these count no more.
        """
        if self.claims is not claims:
            return None
        self.claims = msgspec.structs.replace(claims, doms=[claims.iss, *sorted(domains - {claims.iss})])
        return self.claims

    def channel_closed(self, channel: int) -> ContactChange | None:
        """A channel is gone, and the proof with it if it was made there."""
        if channel != self._channel:
            return None
        self._forget_proof()
        was_live, self.is_live = self.is_live, False
        return ContactChange.DOWN if was_live else None

    def _forget_proof(self) -> None:
        self._channel, self.claims = None, None
