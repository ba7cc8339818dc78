"""Digests of the stubs that the operator chose for foreign domains, pinned when each was used first.

One small file per domain, in a folder that cleaning the stubs cache never touches. Each carries a MAC under the node's
secret: a pin that somebody else changed is noticed, and not believed.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from protofly.errors import Code, HostError, PeerError
from stubs_cache.store import write_whole


class StubPins:
    """Durable digests by domain. `secret` (32 bytes) is this node's own. All calls block for the time of one file."""

    def __init__(self, folder: Path, *, secret: bytes) -> None:
        self._folder = folder
        self._key = hashlib.sha256(b"trapezoid stub pins\0" + secret).digest()

    def read(self, domain: str) -> str:
        """The digest that is pinned for a domain, "" if none is.

        Raises:
            PeerError: CACHE_TAMPERED: this node did not write it.
            HostError: STORAGE.
        """
        try:
            sha256, _, mac = (self._folder / domain).read_text(encoding="ascii").strip().partition(" ")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as exc:
            raise HostError(Code.STORAGE, f"pinned stubs: {exc}") from exc
        if not hmac.compare_digest(mac, self._mac(domain, sha256)):
            raise PeerError(Code.CACHE_TAMPERED, "the pinned digest was changed by someone else", domain=domain)
        return sha256

    def write(self, domain: str, sha256: str) -> None:
        """Pin a digest; on disk when this returns.

        Raises:
            HostError: STORAGE.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._folder / domain, f"{sha256} {self._mac(domain, sha256)}\n".encode())
        except OSError as exc:
            raise HostError(Code.STORAGE, f"pinned stubs: {exc}") from exc

    def forget(self, domain: str) -> bool:
        """Remove the pin of a domain; returns whether there was one.

        Raises:
            HostError: STORAGE.
        """
        path = self._folder / domain
        try:
            had_one = path.exists()
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise HostError(Code.STORAGE, f"pinned stubs: {exc}") from exc
        return had_one

    def domains(self) -> list[str]:
        """Domains with a pin, sorted."""
        return sorted(path.name for path in self._folder.glob("[a-z0-9]*")) if self._folder.is_dir() else []

    def _mac(self, domain: str, sha256: str) -> str:
        return hmac.digest(self._key, f"{domain}\0{sha256}".encode(), "sha256").hex()
