"""What gates decide by, read from the files that nodes read: policy files, or the settings of a node.

Only `[policy]` and `[[peer]]` of the settings matter here, and of a peer only its default, its rates and what it may
receive; the node itself checks all the rest. Relative paths are relative to the settings file, as they are for the
node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pipeline.columns.replaying import GateSettings
from pipeline.partners.toml_file import read_toml_file
from policy.core.gate import PeerRule
from policy.core.model import Mode
from policy.core.rates import UNLIMITED, RateLimit, TypeRate
from policy.files import read_policies

SETTINGS_BYTES = 1 << 20
BURST_SECONDS = 2.0
"""What the node takes when an entry does not say it."""


class _Policy(msgspec.Struct, frozen=True):
    files: tuple[str, ...] = ()
    mode: Literal["enforce", "report"] = "enforce"
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class _Rate(msgspec.Struct, frozen=True, kw_only=True):
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: float = BURST_SECONDS

    def limit(self) -> RateLimit:
        """The same for a bucket."""
        if self.messages_per_second is None and self.bytes_per_second is None:
            return UNLIMITED
        return RateLimit(
            messages_per_second=self.messages_per_second,
            bytes_per_second=self.bytes_per_second,
            burst_seconds=self.burst_seconds,
        )


class _TypeRate(_Rate, frozen=True, kw_only=True):
    types: tuple[str, ...]


class _Peer(_Rate, frozen=True, kw_only=True):
    domain: str
    default: Literal["permit", "deny"] = "permit"
    p2p: bool = True
    rate: tuple[_TypeRate, ...] = ()
    may_receive: tuple[str, ...] = ()

    def rule(self) -> PeerRule:
        """The rule of the gate that it stands for."""
        rates = tuple(TypeRate(types=one.types, limit=one.limit()) for one in self.rate)
        received = frozenset(self.may_receive)
        return PeerRule(default=self.default, rate=self.limit(), rates=rates, p2p=self.p2p, may_receive=received)


class _Settings(msgspec.Struct, frozen=True):
    policy: _Policy = _Policy()
    peer: tuple[_Peer, ...] = ()


def from_policy_files(files: Sequence[Path], *, like: GateSettings | None = None) -> GateSettings:
    """Policies from files; peers and lists as in `like`, none without it.

    Raises:
        SettingsError: Whatever is wrong with a file.
    """
    canonical = read_policies(files).canonical
    return GateSettings(canonical=canonical) if like is None else dataclasses.replace(like, canonical=canonical)


def from_node_settings(file: Path) -> GateSettings:
    """Read the settings of a node's gates from its settings file.

    Raises:
        SettingsError: The file or a policy file that it names is missing or wrong.
    """
    settings = read_toml_file(file, _Settings, SETTINGS_BYTES)
    policies = read_policies([file.parent / name for name in settings.policy.files], mode=Mode(settings.policy.mode))
    return GateSettings(
        canonical=policies.canonical,
        peers={peer.domain: peer.rule() for peer in settings.peer},
        allow=settings.policy.allow,
        deny=settings.policy.deny,
    )
