"""A verified stub: the only thing that a sandbox accepts.

A `VerifiedStub` cannot be constructed; `catalogue_client.core.verify` makes one after every check has passed. Code
that holds one need not ask again where it came from.

Source: trust and hosts, section 3.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from protofly.documents import Endpoint, Manifest, TrustLevel
from protofly.errors import MisuseError

_Made = TypeVar("_Made")


class NoPublicConstructor(type):
    """Metaclass of classes whose instances only their maker may construct, by `_create`."""

    def __call__(cls, *_arguments: object, **_members: object) -> NoReturn:
        """Refuse: `MisuseError`."""
        raise MisuseError(f"{cls.__name__} has no public constructor")

    def _create(cls: type[_Made], *arguments: object, **members: object) -> _Made:
        return type.__call__(cls, *arguments, **members)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedStub(metaclass=NoPublicConstructor):
    """One stub that passed all checks, with what the host has to know to run it."""

    domain: str
    name: str
    serial: int
    version: str
    module: bytes
    module_sha256: str
    manifest: Manifest
    manifest_sha256: str
    manifest_envelope: bytes
    """As received, for the cache."""
    level: TrustLevel
    expires: float
    """Unix seconds: end of manifest or live document, whichever is first; the operator's grace comes on top."""
    endpoints: Mapping[str, Endpoint]
    """Endpoints that the stub may name: those of the manifest's permissions that the live document knows."""

    def __repr__(self) -> str:
        return f"<VerifiedStub {self.name} {self.version} of {self.domain}, serial {self.serial}, {self.level.value}>"
