"""Which newer version of a stub may follow the one that was accepted, and the way back from one that failed here.

A version that was accepted is on trial until it has proved itself at this node. Its predecessor is remembered, and goes
on once the newer module is marked as failed. The mark is of the module: the same module under a higher serial is
refused as well. Marks say nothing about other nodes, and only the operator or another module lifts their effect.

Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from catalogue_client.core.state import FailedModule, StubMark, TrustState
from protofly.documents import Manifest
from protofly.errors import Code, PeerError

FAILED_MODULES_KEPT = 16
"""Of one domain; the oldest is forgotten. Serials only go up, so its domain cannot offer that one again unsigned."""
UpdateMode = Literal["auto", "hold", "pinned"]


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """The operator's rule for newer versions of the stubs of one domain.

    Attributes:
        mode: `auto`: they run once they are verified. `hold`: each waits for the operator. `pinned`: only `modules`.
        modules: SHA-256 of modules that the operator has approved beforehand.
    """

    mode: UpdateMode = "auto"
    modules: frozenset[str] = frozenset()


AUTOMATIC: Final = UpdateRule()


def check_module_may_run(state: TrustState, manifest: Manifest, rule: UpdateRule) -> None:
    """Check that a module has not failed here, and is none that the operator excludes.

    Raises:
        PeerError: STUB_ROLLED_BACK, DIGEST_NOT_APPROVED.
    """
    sha256 = manifest.module.sha256
    failed = state.failed_modules.get(sha256)
    if failed is not None:
        detail = (
            f"{manifest.name} {manifest.version} failed here ({failed.code} {failed.detail}), sha256 {sha256}; it is "
            f"tried again after `trapezoid node stub approve {manifest.domain}`"
        )
        raise PeerError(Code.STUB_ROLLED_BACK, detail, domain=manifest.domain)
    if rule.mode == "pinned" and sha256 not in rule.modules:
        detail = f"{manifest.name} {manifest.version}: sha256 {sha256} is not among the `modules` of its [[peer]]"
        raise PeerError(Code.DIGEST_NOT_APPROVED, detail, domain=manifest.domain)


def held_update(mark: StubMark | None, manifest: Manifest, rule: UpdateRule) -> list[str]:
    """Say what the operator is to approve about another version than the accepted one; empty: nothing."""
    if rule.mode != "hold" or mark is None or not mark.serial or manifest.serial == mark.serial:
        return []
    return [] if manifest.module.sha256 in rule.modules else [f"to be version {manifest.version}"]


def following_mark(state: TrustState, manifest: Manifest, manifest_sha256: str) -> StubMark:
    """The mark of a manifest that is accepted now; what was accepted before and did not fail is its predecessor."""
    mark = state.stubs.get(manifest.name)
    following = StubMark(
        serial=manifest.serial,
        manifest_sha256=manifest_sha256,
        permissions=manifest.permissions,
        module_sha256=manifest.module.sha256,
        approved=mark.approved if mark is not None else [],
    )
    if mark is None or not mark.serial:
        return following
    if mark.manifest_sha256 == manifest_sha256:
        return msgspec.structs.replace(following, previous_sha256=mark.previous_sha256, is_proved=mark.is_proved)
    previous = may_go_on(state, manifest.name)
    return msgspec.structs.replace(following, previous_sha256=previous, is_proved=not previous)


def may_go_on(state: TrustState, name: str) -> str:
    """Digest of the manifest that may go on without being the newest; "" for none.

    It is the accepted one; its predecessor once it has failed here, and for no other reason.
    """
    mark = state.stubs.get(name)
    if mark is None:
        return ""
    return mark.previous_sha256 if mark.module_sha256 in state.failed_modules else mark.manifest_sha256


def predecessor(state: TrustState, name: str) -> str:
    """Digest of the manifest before that of a version on trial; "" when the accepted one is proved or has failed."""
    mark = state.stubs.get(name)
    if mark is None or mark.is_proved or mark.module_sha256 in state.failed_modules:
        return ""
    return mark.previous_sha256


def failed(state: TrustState, name: str, manifest_sha256: str, why: FailedModule) -> TrustState:
    """Mark the module of the accepted version of `name` as failed here; the same state if another one is accepted."""
    mark = state.stubs.get(name)
    if mark is None or mark.manifest_sha256 != manifest_sha256 or not (mark.previous_sha256 and mark.module_sha256):
        return state
    kept = {key: one for key, one in state.failed_modules.items() if key != mark.module_sha256}
    kept = dict([*kept.items(), (mark.module_sha256, why)][-FAILED_MODULES_KEPT:])
    stubs = {**state.stubs, name: msgspec.structs.replace(mark, is_proved=False)}
    return msgspec.structs.replace(state, failed_modules=kept, stubs=stubs)


def proved(state: TrustState, name: str, manifest_sha256: str) -> TrustState:
    """A version has proved itself here; the same state if another one is accepted by now."""
    mark = state.stubs.get(name)
    if mark is None or mark.manifest_sha256 != manifest_sha256 or mark.is_proved:
        return state
    return msgspec.structs.replace(state, stubs={**state.stubs, name: msgspec.structs.replace(mark, is_proved=True)})


def readmitted(state: TrustState) -> TrustState:
    """Let the modules of a domain run again that failed here."""
    return msgspec.structs.replace(state, failed_modules={})
