"""Small signed files for a partner: three lines, a name of the format, JSON, and the signature of its author.

    trapezoid-usage/1 ⏎
    <JSON, one line> ⏎
    <Ed25519 signature over both lines, base64url> ⏎

Such a file may contain anything: nothing of it is decoded before its size and its signature hold.
"""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from protofly.errors import SettingsError
from protofly.signatures import KeyRecord, SigningKey, base64url, verify_signature


class PartnerContent(Protocol):
    """Content that one domain writes for another: `domain` is the author, `peer` the reader."""

    @property
    def domain(self) -> str:
        """The author."""

    @property
    def peer(self) -> str:
        """The reader."""


_Content = TypeVar("_Content", bound=PartnerContent)
_SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class SignedLine(Generic[_Content]):
    """A format of such files.

    Attributes:
        magic: The first line, with its end.
        kind: Type of what the second line says.
        name: What it is, for people.
        max_bytes: Larger files are hostile.
    """

    magic: bytes
    kind: type[_Content]
    name: str
    max_bytes: int

    def encode(self, content: _Content, key: SigningKey) -> bytes:
        """The signed file."""
        signed = self.magic + msgspec.json.encode(content) + b"\n"
        return signed + base64url(key.sign(signed)).encode() + b"\n"

    def read(self, path: Path, *, peer_key: KeyRecord, domain: str, peer: str) -> _Content:
        """Read and verify content that a partner has signed for us.

        Args:
            path: The file.
            peer_key: The partner's public key.
            domain: We, its reader.
            peer: The partner, its author.

        Raises:
            SettingsError: It cannot be read, is too large, malformed, not signed by this key, or between other domains.
        """
        try:
            # A pipe would be waited for; a link is followed, since the operator has named it.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                content = file.read(self.max_bytes + 1) or b""
        except OSError as exc:
            raise SettingsError(f"{path}: {exc.strerror}") from exc
        if len(content) > self.max_bytes:
            raise SettingsError(f"{path}: too-large: more than a {self.name} may have; take it as hostile")
        lines = content.split(b"\n")
        if len(lines) != 4 or lines[0] + b"\n" != self.magic or lines[3]:
            raise SettingsError(f"{path}: malformed: no {self.name}; ask {peer} for it anew")
        if not verify_signature(peer_key, _signature(lines[2]), self.magic + lines[1] + b"\n"):
            raise SettingsError(f"{path}: bad-signature: not signed by the key that was given for {peer}")
        try:
            found = msgspec.json.decode(lines[1], type=self.kind)
        except (ValueError, RecursionError) as exc:
            raise SettingsError(f"{path}: malformed: {exc}; ask {peer} for it anew") from exc
        if (found.domain, found.peer) != (peer, domain):
            about = f"of {found.domain} for {found.peer}, not of {peer} for {domain}"
            raise SettingsError(f"{path}: wrong-domain: {about}")
        return found


def _signature(text: bytes) -> bytes:
    """The bytes of a signature; empty for what is none."""
    try:
        found = urlsafe_b64decode(text + b"==")
    except (binascii.Error, ValueError):
        return b""
    return found if len(found) == _SIGNATURE_BYTES and base64url(found).encode() == text else b""
