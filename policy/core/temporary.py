"""Gates for a time: what one domain sends to another passes, or does not, until they end.

They stand above rules, and below rates and lists. Of several that fit a message, the one that was set last decides.
Who sets them ends them: nothing here has a clock. Source: message specification, section 15.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from policy.core.attributes import ATTRIBUTES, TYPE_ALIASES
from policy.core.model import Facts
from policy.core.patterns import parse_domain_pattern
from protofly.errors import SettingsError
from protofly.limits import GATE_KNOWN_DOMAINS

RULE_PREFIX: Final = "gate: "
"""Begins what a verdict names as its rule when such a gate decides."""

_TYPE: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,31}")


class TemporaryGate(msgspec.Struct, frozen=True):
    """One gate for a time.

    Attributes:
        source: Domain of the sender's address, `*.` and a domain, or `*`.
        target: Domain of the recipient's address, likewise.
        effect: Whether messages pass.
        type: Only messages of this type, "" for all.
        scheme: Only to addresses of this scheme, "" for all.
    """

    source: str
    target: str
    effect: Literal["permit", "deny"]
    type: str = ""
    scheme: str = ""

    @property
    def name(self) -> str:
        """Its domains and filters as text, for operators and for `temporary_gate`; without its effect."""
        words = [f"{self.source} > {self.target}"]
        words += [f"{key}={value}" for key, value in (("type", self.type), ("scheme", self.scheme)) if value]
        return " ".join(words)

    @property
    def rule_id(self) -> str:
        """The id of the rule that verdicts name."""
        return f"{RULE_PREFIX}{self.effect} {self.name}"

    def fits(self, source: str, target: str, type_: str, scheme: str) -> bool:
        """True if it decides about messages with these domains, this type and this scheme of the recipient."""
        return (
            self.type in ("", type_)
            and self.scheme in ("", scheme)
            and _is_in(source, self.source)
            and _is_in(target, self.target)
        )


def make_gate(
    source: str, target: str, effect: Literal["permit", "deny"], *, type_: str = "", scheme: str = ""
) -> TemporaryGate:
    """A gate with its names in the form that is compared.

    Raises:
        SettingsError: A name that is no domain pattern, or no type or scheme.
    """
    if type_ and not _TYPE.fullmatch(type_):
        raise SettingsError(f"{type_[:64]!r} is no type of a message")
    if scheme and not _SCHEME.fullmatch(scheme):
        raise SettingsError(f"{scheme[:64]!r} is no scheme of an address")
    return TemporaryGate(
        str(parse_domain_pattern(source)),
        str(parse_domain_pattern(target)),
        effect,
        TYPE_ALIASES.get(type_, type_),
        scheme,
    )


def temporary_gate(name: str, effect: str) -> TemporaryGate:
    """A gate from its name.

    Raises:
        SettingsError: It is no name of a gate.
    """
    source, arrow, rest = name.partition(" > ")
    target, *words = rest.split(" ")
    pairs = dict(word.partition("=")[::2] for word in words)
    if not arrow or effect not in ("permit", "deny") or not pairs.keys() <= {"type", "scheme"}:
        raise SettingsError(f"{name[:64]!r} with effect {effect[:64]!r} is no gate")
    chosen: Literal["permit", "deny"] = "permit" if effect == "permit" else "deny"
    return make_gate(source, target, chosen, type_=pairs.get("type", ""), scheme=pairs.get("scheme", ""))


class TemporaryGates:
    """All gates for a time.

    Args:
        gates: The one that was set last first.
    """

    def __init__(self, gates: Sequence[TemporaryGate] = ()) -> None:
        self._gates = tuple(gates)
        self._found: dict[tuple[str, str, str, str], TemporaryGate | None] = {}

    def __bool__(self) -> bool:
        return bool(self._gates)

    def find(self, facts: Facts) -> TemporaryGate | None:
        """The gate that decides about a message, if there is one."""
        type_ = facts.message.type
        scheme = ATTRIBUTES["dstScheme"].read(facts)
        key = facts.from_domain, facts.to_domain, TYPE_ALIASES.get(type_, type_), str(scheme or "")
        try:
            return self._found[key]
        except KeyError:
            if len(self._found) >= GATE_KNOWN_DOMAINS:
                self._found.clear()
            found = self._found[key] = next((gate for gate in self._gates if gate.fits(*key)), None)
            return found


def _is_in(domain: str, pattern: str) -> bool:
    return pattern in ("*", domain) or (pattern.startswith("*.") and domain.endswith(pattern[1:]))
