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
from pathlib import Path
from typing import Literal

from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate
from protofly.errors import SettingsError
from protofly.records import PolicyEvent, Record

logger = logging.getLogger("msg_node")

DETAIL_CHARS = 256


class PolicyDeployment:
    """The policies of one node.

    Args:
        gate: Has those of the start already.
        files: As the settings name them.
        record: Takes the events.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        files: Sequence[Path],
        mode: Literal["enforce", "report"],
        record: Callable[[Record], None],
    ) -> None:
        self._gate = gate
        self._files = tuple(files)
        self._mode: Literal["enforce", "report"] = mode
        self._record = record
        self._actor = _user()

    def record_start(self) -> None:
        """The node is up, with the policies that it read."""
        self._record(self._deployed("start", None, self._gate.policies))

    def refused(self, error: SettingsError) -> None:
        """Settings or policies that were to come cannot be used; those in force stay."""
        event = self._event("refused", "reload", self._gate.policies)
        event.code, event.detail = error.code.word, error.detail[:DETAIL_CHARS]
        self._record(event)

    def deploy(self, policies: CompiledPolicies, files: Sequence[Path], mode: Literal["enforce", "report"]) -> None:
        """Put policies in force that were read from these files."""
        before = self._gate.policies
        self._files, self._mode = tuple(files), mode
        self._gate.replace(policies)
        self._record(self._deployed("reload", before, policies))
        logger.info("policies of revision %s are in force", policies.revision)

    def _deployed(
        self, cause: Literal["start", "reload"], before: CompiledPolicies | None, after: CompiledPolicies
    ) -> PolicyEvent:
        event = self._event("deployed", cause, before)
        event.after = after.revision
        event.diff_sha256 = change_sha256(before, after)
        event.rules = sum(len(policy.rules) for policy_set in after.sets for policy in policy_set.policies)
        event.reads = tuple(sorted(after.facts_read))
        return event

    def _event(
        self,
        event: Literal["deployed", "refused"],
        cause: Literal["start", "reload"],
        before: CompiledPolicies | None,
    ) -> PolicyEvent:
        return PolicyEvent(
            ts_us=time.time_ns() // 1000,
            event=event,
            cause=cause,
            actor=self._actor,
            mode=self._mode,
            files=tuple(map(str, self._files)),
            before=None if before is None else before.revision,
        )


def change_sha256(before: CompiledPolicies | None, after: CompiledPolicies) -> str:
    """Names one change of policies: SHA-256 over the canonical source of the old, a line feed, that of the new."""
    old = b"" if before is None else before.canonical
    return hashlib.sha256(old + b"\n" + after.canonical).hexdigest()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a user without a name, as in many containers
        return str(os.geteuid())
