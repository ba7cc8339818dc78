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

import trio

from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate
from policy.core.model import Mode
from policy.files import read_policies
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
        self._mode = mode
        self._record = record
        self._actor = _user()

    def record_start(self) -> None:
        """The node is up, with the policies that it read."""
        self._record(self._deployed("start", None, self._gate.policies))

    async def reload(self) -> None:
        """Read the files again, all or none; what is wrong with them is logged, and the old ones stay in force."""
        before = self._gate.policies
        try:
            policies = await trio.to_thread.run_sync(self._read)
        except SettingsError as exc:
            logger.error("the policies stay as they are: %s", exc.detail)
            event = self._event("refused", "reload", before)
            event.code, event.detail = exc.code.word, exc.detail[:DETAIL_CHARS]
            self._record(event)
            return
        self._gate.replace(policies)
        self._record(self._deployed("reload", before, policies))
        logger.info("policies of revision %s are in force", policies.revision)

    def _read(self) -> CompiledPolicies:
        return read_policies(self._files, mode=Mode(self._mode))

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
