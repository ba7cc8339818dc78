"""The list of what a hostile domain does to its partners. Each can be switched on and off while the domain runs.

A `lie` is a message in the name of somebody else: a runtime that gets one as genuine has been deceived. `noise` goes
over a connection that was proved; what it is for, nobody may hear. A `connection` is a new one, without a proof.
`cases` of `trapezoid conformance --partner` test the same one step at a time.

Source: trust and hosts, sections 2.7 and 7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Way = Literal["lie", "noise", "connection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Misdeed:
    """One kind of misbehaviour. `does` ends the sentence "The domain …"."""

    name: str
    way: Way
    does: str
    rule: str
    cases: tuple[str, ...] = ()


MISDEEDS: Final[dict[str, Misdeed]] = {
    one.name: one
    for one in (
        Misdeed(
            name="forge-ours",
            way="lie",
            does="writes to runtimes of a partner in the name of other runtimes of that partner",
            rule="2.7, step 6",
            cases=("sender-of-the-node-s-domain", "sender-of-the-receiver"),
        ),
        Misdeed(
            name="forge-third",
            way="lie",
            does="writes to runtimes of a partner in the name of runtimes of a third domain",
            rule="2.7, step 6",
            cases=("sender-of-a-third",),
        ),
        Misdeed(
            name="forge-services",
            way="lie",
            does="writes to runtimes of a partner in the name of that partner's node and its services",
            rule="2.7, step 6",
            cases=("sender-of-the-node", "sender-of-its-services", "sender-of-its-registry"),
        ),
        Misdeed(
            name="forge-look-alikes",
            way="lie",
            does="writes in names that look like its own: with a prefix, suffix, subdomain, port or user",
            rule="2.7, step 6",
            cases=("sender-of-a-subdomain", "sender-of-a-prefix", "sender-of-a-suffix", "sender-with-a-port"),
        ),
        Misdeed(
            name="garbage",
            way="noise",
            does="sends WebSocket messages of random bytes",
            rule="docs/link.md",
        ),
        Misdeed(
            name="broken-frames",
            way="noise",
            does="sends frames of unknown kinds, with wrong lengths, and cut short",
            rule="docs/link.md",
        ),
        Misdeed(
            name="deep-json",
            way="noise",
            does="sends a message whose body is nested 40,000 deep",
            rule="message-specification.md, 18.4",
        ),
        Misdeed(
            name="huge-message",
            way="noise",
            does="sends a message of 3 MiB",
            rule="message-specification.md, 18.4",
        ),
        Misdeed(
            name="repeat-numbers",
            way="noise",
            does="gives many messages the same number",
            rule="docs/link.md",
            cases=("inbound-repeated-number",),
        ),
        Misdeed(
            name="flood",
            way="noise",
            does="sends 500 messages at once to an address that nobody has",
            rule="2.7, step 6",
        ),
        Misdeed(
            name="forged-token",
            way="connection",
            does="connects and proves itself with a key that it never published",
            rule="2.7, step 4",
            cases=("token-forged",),
        ),
        Misdeed(
            name="half-open",
            way="connection",
            does="opens connections to the link endpoint and never says a word",
            rule="2.7",
        ),
    )
}
_NOBODY: Final = "nobody"
_DEEP: Final = 40_000
_HUGE_BYTES: Final = 3 << 20
_FLOOD: Final = 500
_NUMBERS: Final = 50


def unknown(names: Sequence[str]) -> list[str]:
    """Those names that are no misdeeds."""
    return [name for name in names if name not in MISDEEDS]


def lie(name: str, us: str, target: str, addresses: Mapping[str, str], chance: int) -> bytes | None:
    """A message to a runtime of the target in the name of somebody else; None if there is nobody to lie to.

    Args:
        name: A misdeed whose way is `lie`.
        us: The hostile domain.
        target: The domain that is lied to.
        addresses: Names of the runtimes of the scene, by address.
        chance: A random number; it chooses among the lies that are possible.
    """
    here = [one for one in addresses if one.split("/")[2] == target]
    there = [one for one in addresses if one.split("/")[2] not in {target, us}]
    liars = {
        "forge-ours": here,
        "forge-third": there,
        "forge-services": [
            f"domain://msg-node.{target}/sm",
            f"runtime://{target}/mn-1",
            f"domain://registry.{target}/",
        ],
        "forge-look-alikes": [
            f"hyperty://sub.{us}/eve",
            f"hyperty://evil-{us}/eve",
            f"hyperty://{us}.evil.example/eve",
            f"hyperty://{us}:443/eve",
            f"hyperty://{target}@{us}/eve",
            f"hyperty://{us}@{target}/eve",
        ],
    }[name]
    if not here or not liars:
        return None
    to, from_ = here[chance % len(here)], liars[chance // len(here) % len(liars)]
    key = [addresses.get(from_, _NOBODY), addresses[to], chance % _NUMBERS + 1]
    return _message(from_, to, {"key": key, "pad": "forged"})


def noise_messages(name: str, us: str, target: str) -> list[tuple[int, bytes]]:
    """The numbered messages of a misdeed, for an address that nobody has; none if it is no matter of messages.

    A number of 0 stands for the next one.
    """
    from_, to = f"hyperty://{us}/eve", f"hyperty://{target}/{_NOBODY}"
    match name:
        case "deep-json":
            head = json.dumps({"type": "create", "from": from_, "to": to})[:-1]
            return [(0, f'{head},"body":{"[" * _DEEP}{"]" * _DEEP}}}'.encode())]
        case "huge-message":
            return [(0, _message(from_, to, "x" * _HUGE_BYTES))]
        case "repeat-numbers":
            return [(1, _message(from_, to, number)) for number in range(10)]
        case "flood":
            return [(0, _message(from_, to, number)) for number in range(_FLOOD)]
    return []


def noise_frames(name: str, entropy: bytes) -> list[bytes]:
    """The frames of a misdeed; none if it is no matter of frames. `entropy` has 64 random bytes."""
    match name:
        case "garbage":
            return [entropy]
        case "broken-frames":
            return [b"\x63" + entropy[:11], b"\x05\0\0\0\x01\0\0\0\xff\xff\xff\x7f{}", b"\x05\0\0"]
    return []


def _message(from_: str, to: str, value: object) -> bytes:
    body = {"value": value, "via": [f"runtime://{from_.split('/')[2]}/mn-1"]}
    return json.dumps({"type": "create", "from": from_, "to": to, "body": body}).encode()
