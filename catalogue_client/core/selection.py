"""Which of the stubs that a domain offers fits this host.

A domain may offer several stubs that lead to it: `default`, and others whose entries begin with `default-`, such as
`default-tcp`. They are tried in the order of their entries until one can be run.

Source: trust and hosts, section 3.4 (`stubs`); data formats, section 2.5 (the caller states what it can run).
"""

from __future__ import annotations

from protofly.documents import Live, StubReference
from protofly.errors import Code, PeerError

DEFAULT = "default"
_ANOTHER = f"{DEFAULT}-"


def fitting_stubs(live: Live, wanted: str = DEFAULT) -> list[StubReference]:
    """List the stubs that may be tried, best first: the entry called `wanted`, and for `default` its alternatives.

    If none of these fits, the stub of that name, for `default` any other that fits. References that state an ABI which
    this node cannot run do not fit. Among several stubs of a name the highest serial wins, and the name decides a tie,
    so that the choice does not hang on the order of members.

    Raises:
        PeerError: SERVICE_DECLINED if the domain offers no such stub, ABI_UNSUPPORTED if none of them fits.
    """
    entries = sorted(name for name in live.stubs if wanted == DEFAULT and name.startswith(_ANOTHER))
    named = [live.stubs[name] for name in (wanted, *entries) if name in live.stubs]
    fitting = list({stub.manifest_sha256: stub for stub in named if _fits(stub)}.values())
    if fitting:
        return fitting
    others = [stub for stub in live.stubs.values() if wanted in {DEFAULT, stub.name}]
    fitting = [stub for stub in others if _fits(stub)]
    if fitting:
        return [max(fitting, key=lambda stub: (stub.serial, stub.name))]
    if named or others:
        raise PeerError(Code.ABI_UNSUPPORTED, f"no version of {wanted} fits", domain=live.domain)
    raise PeerError(Code.SERVICE_DECLINED, f"the domain offers no stub {wanted}", domain=live.domain)


def select_stub(live: Live, wanted: str = DEFAULT) -> StubReference:
    """Choose the best of the stubs that fit.

    Raises:
        PeerError: See `fitting_stubs`.
    """
    return fitting_stubs(live, wanted)[0]


def _fits(stub: StubReference) -> bool:
    return stub.abi is None or stub.abi.is_supported
