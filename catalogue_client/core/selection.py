"""Which of the stubs that a domain offers fits this host.

Source: trust and hosts, section 3.4 (`stubs`); data formats, section 2.5 (the caller states what it can run).
"""

from __future__ import annotations

from protofly.documents import Live, StubReference
from protofly.errors import Code, PeerError


def select_stub(live: Live, wanted: str = "default") -> StubReference:
    """Choose a stub: the entry called `wanted`, else the stub of that name; for `default` any other that fits will do.

    References that state an ABI which this node cannot run do not fit. Among several the highest serial wins, and the
    name decides a tie, so that the choice does not hang on the order of members.

    Raises:
        PeerError: SERVICE_DECLINED if the domain offers no such stub, ABI_UNSUPPORTED if none of them fits.
    """
    named = live.stubs.get(wanted)
    if named is not None and _fits(named):
        return named
    others = [stub for stub in live.stubs.values() if wanted in {"default", stub.name}]
    fitting = [stub for stub in others if _fits(stub)]
    if fitting:
        return max(fitting, key=lambda stub: (stub.serial, stub.name))
    if named is not None or others:
        raise PeerError(Code.ABI_UNSUPPORTED, f"no version of {wanted} fits", domain=live.domain)
    raise PeerError(Code.SERVICE_DECLINED, f"the domain offers no stub {wanted}", domain=live.domain)


def _fits(stub: StubReference) -> bool:
    return stub.abi is None or stub.abi.is_supported
