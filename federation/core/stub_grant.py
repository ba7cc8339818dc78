"""What the operator grants to the stub of one domain: an upper bound of what its manifest asks for and needs.

What a manifest asks for beyond that is withheld: the stub runs without it, and each attempt is denied and counted. What
it *needs* beyond that is refused before its code is compiled, since it would only fail later and less clearly.
Source: trust and hosts, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from protofly.documents import Manifest
from protofly.errors import Code, PeerError
from protofly.limits import CPU_BACKSTOP_SECONDS, MEMORY_BYTES
from protofly.stub import VerifiedStub
from sandbox.core.budget import MILLISECONDS_PER_SECOND, Budget
from sandbox.core.grants import Grants


@dataclass(frozen=True, slots=True, kw_only=True)
class StubGrant:
    """Bounds for the stub of one domain.

    Attributes:
        endpoints: Names of the endpoints that it may open; None: all that its documents give it.
        auth: It may ask for tokens that prove this node.
        http: It may open channels of kind `http`.
        memory_bytes: Memory that it may have; None: what the node allows any stub.
        call_ms: CPU time of one call; None: the same.
        cpu_share: What its calls may take of a core over time, more or less than other stubs; None: as they.
    """

    endpoints: frozenset[str] | None = None
    auth: bool = True
    http: bool = True
    memory_bytes: int | None = None
    call_ms: int | None = None
    cpu_share: float | None = None

    def budget(self, manifest: Manifest, node: Budget) -> Budget:
        """Return what an instance may spend: what its manifest needs, within this grant and what the node allows.

        Raises:
            PeerError: STUB_NEEDS_MORE; the detail says which bound to raise, if one can be raised.
        """
        most, needs = node.lowered_to(memory_bytes=self.memory_bytes, call_ms=self.call_ms), manifest.needs
        if needs.memory_bytes > most.memory_bytes:
            bound = "grant.memory_bytes" if most.memory_bytes < node.memory_bytes else "sandbox.memory_bytes"
            text = f"{needs.memory_bytes:,} bytes of memory, and may have {most.memory_bytes:,}"
            raise _needs_more(manifest, text, bound if needs.memory_bytes <= MEMORY_BYTES else "")
        if needs.call_ms > most.cpu_milliseconds:
            text = f"{needs.call_ms} ms of CPU for one call, and may have {most.cpu_milliseconds}"
            raisable = needs.call_ms <= CPU_BACKSTOP_SECONDS * MILLISECONDS_PER_SECOND
            raise _needs_more(manifest, text, "grant.call_ms" if raisable else "")
        budget = most.lowered_to(memory_bytes=needs.memory_bytes or None, call_ms=needs.call_ms)
        return replace(budget, cpu_share=self.cpu_share or node.cpu_share)

    def permissions(self, stub: VerifiedStub) -> Grants:
        """The permissions of an instance: those that its manifest asks for and this grant does not withhold."""
        named = frozenset(stub.endpoints)
        return Grants(
            named if self.endpoints is None else named & self.endpoints,
            auth=self.auth and stub.manifest.permissions.auth,
            http=self.http,
        )

    def withheld(self, stub: VerifiedStub) -> list[str]:
        """Name what the manifest asks for and does not get, for operators."""
        return list(self._withheld(stub))

    def _withheld(self, stub: VerifiedStub) -> Iterator[str]:
        given = self.permissions(stub)
        yield from (f"endpoint {name}" for name in sorted(stub.endpoints) if name not in given.endpoints)
        if stub.manifest.permissions.auth and not given.auth:
            yield "auth"
        if not given.http:
            yield "http"


WHOLE_GRANT: Final = StubGrant()
"""Withholds nothing."""


def _needs_more(manifest: Manifest, text: str, bound: str) -> PeerError:
    remedy = f"raise `{bound}`, or ask its author for less" if bound else "no node gives that: ask its author for less"
    return PeerError(Code.STUB_NEEDS_MORE, f"{manifest.name} needs {text}; {remedy}", domain=manifest.domain)
