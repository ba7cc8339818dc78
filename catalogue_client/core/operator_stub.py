"""A stub that the operator chose for a domain that publishes nothing, or in place of what it publishes.

Nobody has signed anything: the operator answers for it, and its digest is pinned when it is used first. So there is no
end of validity and no serial, and it can prove nothing to the far end and about it: it may not ask for tokens.

Source: message specification, section 18.1; foreign nodes, section 3.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from catalogue_client.core.verify import check_module
from protofly.documents import (
    ABI_MAJOR,
    ABI_NAME,
    Abi,
    Endpoint,
    Manifest,
    ModuleReference,
    Permissions,
    TrustLevel,
)
from protofly.stub import VerifiedStub

_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleStatement:
    """Name, version, configuration and events in a module's custom section. Source: docs/abi.md, "The module"."""

    name: str
    version: str
    configuration: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[str] = ()


def make_operator_stub(
    domain: str,
    module: bytes,
    said: ModuleStatement,
    *endpoints: Endpoint,
    auth: bool = False,
    level: TrustLevel = TrustLevel.OPERATOR,
) -> VerifiedStub:
    """The stub of `domain` as the operator chose it: it may open `endpoints`, and nothing else is granted.

    Args:
        domain: The foreign domain.
        module: The bytes of the module; they have passed the structural check.
        said: What they say of themselves.
        endpoints: The only places that it may connect to.
        auth: It may ask for tokens. Only for an author who tries a stub without a node, see `stubkit/live_run.py`.
        level: Where it comes from.

    Raises:
        PeerError: MODULE_LIMITS or MODULE_MALFORMED.
    """
    digest = hashlib.sha256(module).hexdigest()
    manifest = Manifest(
        spec="rmn-stub/1",
        domain=domain,
        name=said.name,
        serial=1,
        version=said.version,
        released=_FIRST,
        expires=_NEVER,
        module=ModuleReference(sha256=digest, size=len(module), urls=[]),
        abi=Abi(name=ABI_NAME, version=str(ABI_MAJOR)),
        permissions=Permissions(connect=[one.name for one in endpoints], clock="wall", random=True, auth=auth),
        configuration=dict(said.configuration),
        events=list(said.events),
    )
    check_module(module, manifest)
    return VerifiedStub._create(  # noqa: SLF001 - besides `verify`, the one place that may
        domain=domain,
        name=said.name,
        serial=1,
        version=said.version,
        module=module,
        module_sha256=digest,
        manifest=manifest,
        manifest_sha256=digest,
        manifest_envelope=b"",
        level=level,
        expires=_NEVER.timestamp(),
        endpoints={one.name: one for one in endpoints},
    )
