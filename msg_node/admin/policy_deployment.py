"""Puts policies in force, and writes down that it did: when, as whom, what changed, or why they were refused.

Source: pipeline study, section 8.1 (policy events).
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from msg_node.settings.tables.policy import PolicySettings
from msg_node.storage.policy_store import FILES_OF_SETTINGS, ActivePolicies, Groups, PolicyStore, compile_files
from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate
from policy.core.model import Mode
from policy.core.quotas import Counted
from policy.core.signed_bundle import check_signature
from policy.core.temporary import TemporaryGate
from policy.files import read_policies
from protofly.errors import SettingsError
from protofly.records import PolicyEvent, Record

logger = logging.getLogger("msg_node")

DETAIL_CHARS = 256


Cause = Literal["start", "reload", "activation", "roll-back", "groups"]


@dataclass(frozen=True, slots=True)
class Policies:
    """Policies that are, or can be, in force.

    Attributes:
        compiled: They themselves.
        active: Which bundle they are of, and which were before it.
        files: Names of their files.
        mode: As the settings say: what the rules decide is enforced, or only reported.
    """

    compiled: CompiledPolicies
    active: ActivePolicies
    files: tuple[str, ...]
    mode: Literal["enforce", "report"]

    @property
    def place(self) -> str:
        """Origin of the policies in force, for people."""
        return f"bundle {self.active.bundle}" if self.active.bundle else "the files of the settings"


def policies_of(
    settings: PolicySettings, domain: str, store: PolicyStore, active: ActivePolicies, groups: Groups | None = None
) -> Policies:
    """Read, test and compile policies: a bundle, or the files of the settings. Blocks.

    Args:
        settings: Their mode, the files, and whose signatures count.
        domain: Ours.
        store: Has the bundles.
        active: What is, or is to be, in force.
        groups: Lists that rules may refer to; None: those that the store has.

    Raises:
        SettingsError: Something cannot be read or used.
        PeerError: POLICY_INVALID: a bundle that could be used when it was added cannot be any more; POLICY_UNSIGNED.
    """
    mode = Mode(settings.mode)
    groups = store.groups() if groups is None else groups
    if not active.bundle:
        return Policies(
            read_policies(settings.files, mode=mode, groups=groups),
            active,
            tuple(map(str, settings.files)),
            settings.mode,
        )
    bundle = store.read(active.bundle)
    files = bundle.files
    if settings.keys:
        signature = bundle.signature.encode()
        check_signature(signature, keys=settings.keys, domain=domain, digest=active.bundle)
    names = tuple(f"{active.bundle}/{name}" for name in files)
    return Policies(compile_files(files, mode, groups), active, names, settings.mode)


class PolicyDeployment:
    """The policies of one node.

    Args:
        gate: Has those of the start already.
        policies: These.
        record: Takes the events.

    Attributes:
        in_force: Those in force.
        on_deployed: Called when others are, or other gates for a time.
    """

    def __init__(self, gate: Gate, policies: Policies, record: Callable[[Record], None]) -> None:
        self._gate = gate
        self.in_force = policies
        self._record = record
        self._user = _user()
        self.on_deployed: Callable[[], None] = lambda: None

    def record_start(self) -> None:
        """The node is up, with the policies that it read."""
        self._record(self._deployed("start", None, self._user))

    def refused(self, error: SettingsError) -> None:
        """Settings or policies that were to come cannot be used; those in force stay."""
        event = self._event("refused", "reload", self._gate.policies, self._user)
        event.code, event.detail = error.code.word, error.detail[:DETAIL_CHARS]
        self._record(event)

    def used_up(self, name: str, more: int, counted: Counted) -> None:
        """A quota, or a limit of a rule, is used up until its period ends; with `more` others at the same moment."""
        until = datetime.fromtimestamp(counted.until, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        others = f"; and {more:,} others" if more else ""
        detail = f"{name} until {until}: {counted.messages:,} messages, {counted.bytes:,} bytes{others}"
        event = self._event("used-up", "quota", self._gate.policies, "the node")
        event.detail = detail
        self._record(event)
        logger.warning("the quota is used up: %s", detail)

    def deploy(self, policies: Policies, cause: Cause = "reload", by: str = "") -> None:
        """Put policies in force; `by` is who asked for it, the user of this process without it."""
        before = self._gate.policies
        self.in_force = policies
        self._gate.replace(policies.compiled)
        self.on_deployed()
        self._record(self._deployed(cause, before, by or self._user))
        logger.info("policies of revision %s are in force, from %s", policies.compiled.revision, policies.place)

    def set_gates(self, gates: Sequence[TemporaryGate]) -> None:
        """Put these gates for a time in force, and no others; the one that was set last is first."""
        self._gate.set_temporary(gates)
        self.on_deployed()

    def facts(self) -> dict[str, object]:
        """The bundle in force, and since when, for operators."""
        active = self.in_force.active
        newest = active.activations[-1] if active.activations else None
        return {
            "revision": self.in_force.compiled.revision,
            "source": "bundle" if active.bundle else "settings",
            "bundle": active.bundle,
            "mode": self.in_force.mode,
            "files": list(self.in_force.files),
            "by": "" if newest is None else newest.by,
            "since": None if newest is None else newest.at,
            "roll_back_to": None if active.before is None else active.before or FILES_OF_SETTINGS,
        }

    def _deployed(self, cause: Cause, before: CompiledPolicies | None, actor: str) -> PolicyEvent:
        after = self.in_force.compiled
        event = self._event("deployed", cause, before, actor)
        event.after = after.revision
        event.diff_sha256 = change_sha256(before, after)
        event.rules = count_rules(after)
        event.reads = tuple(sorted(after.facts_read))
        return event

    def _event(
        self,
        event: Literal["deployed", "refused", "used-up"],
        cause: Cause | Literal["quota"],
        before: CompiledPolicies | None,
        actor: str,
    ) -> PolicyEvent:
        return PolicyEvent(
            ts_us=time.time_ns() // 1000,
            event=event,
            cause=cause,
            actor=actor,
            mode=self.in_force.mode,
            files=self.in_force.files,
            before=None if before is None else before.revision,
        )


def count_rules(policies: CompiledPolicies) -> int:
    """Count the rules of all sets."""
    return sum(len(policy.rules) for policy_set in policies.sets for policy in policy_set.policies)


def change_sha256(before: CompiledPolicies | None, after: CompiledPolicies) -> str:
    """Names one change of policies: SHA-256 over the canonical source of the old, a line feed, that of the new."""
    old = b"" if before is None else before.canonical
    return hashlib.sha256(old + b"\n" + after.canonical).hexdigest()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user without a name, as in many containers
        return str(os.geteuid())
