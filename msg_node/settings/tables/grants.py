"""Settings of what the stub of one domain may do and spend at most. Source: trust and hosts, section 3.4."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from federation.core.stub_grant import StubGrant
from protofly.limits import CPU_BACKSTOP_SECONDS, MEMORY_BYTES


class GrantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upper bounds for the stub of this domain. What its manifest asks for beyond them is withheld."""

    endpoints: Annotated[
        tuple[str, ...] | None,
        Meta(description="Names of the endpoints that it may open; absent: all that its documents give it."),
    ] = None
    auth: Annotated[bool, Meta(description="It may ask for tokens that prove this node to its far end.")] = True
    http: Annotated[bool, Meta(description="It may open channels of the kind `http`.")] = True
    memory_bytes: Annotated[
        Annotated[int, Meta(ge=65_536, le=MEMORY_BYTES)] | None,
        Meta(description="Its largest memory; absent: `sandbox.memory_bytes`. A stub that needs more is refused."),
    ] = None
    call_ms: Annotated[
        Annotated[int, Meta(ge=1, le=int(CPU_BACKSTOP_SECONDS * 1000))] | None,
        Meta(
            description="CPU milliseconds of one call, besides 0.1 for each KiB of its input; absent: the node's. "
            "A stub that needs more is refused."
        ),
    ] = None

    cpu_share: Annotated[
        Annotated[float, Meta(gt=0.0, le=1.0)] | None,
        Meta(description="What its calls may take of a core over time; absent: `sandbox.cpu_share`."),
    ] = None

    def grant(self) -> StubGrant:
        """The bounds as links use them."""
        return StubGrant(
            endpoints=None if self.endpoints is None else frozenset(self.endpoints),
            auth=self.auth,
            http=self.http,
            memory_bytes=self.memory_bytes,
            call_ms=self.call_ms,
            cpu_share=self.cpu_share,
        )
