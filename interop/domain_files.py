"""The files of one laboratory domain: its settings, ports and DNS records. Pure text; `laboratory` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
LOOPBACK_RANGE: Final = "127.0.0.0/8"
SITE_REQUESTS_PER_SECOND: Final = 500
DRAIN_SECONDS: Final = 3.0
"""In a laboratory everybody asks from one address: the partner, watchers, and those who read the status."""
Value = str | int | float | bool | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """TCP ports of one domain on loopback."""

    listen: int
    site: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainFolder:
    """Where one domain keeps its things."""

    path: Path

    @property
    def keys(self) -> Path:
        """Keys of the domain."""
        return self.path / "keys"

    @property
    def site(self) -> Path:
        """What it publishes."""
        return self.path / "site"

    @property
    def data(self) -> Path:
        """State, trust marks, stubs cache and records of its node."""
        return self.path / "data"

    @property
    def policy(self) -> Path:
        """Its policy."""
        return self.path / "policy.toml"

    @property
    def settings(self) -> Path:
        """Settings of its node."""
        return self.path / "node.toml"

    @property
    def log(self) -> Path:
        """Standard error of its node."""
        return self.path / "node.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEntry:
    """What one domain says about the other; with a fingerprint it is pinned, else the web's trust is enough."""

    domain: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """Certificates of one domain. `listens_in_plaintext`: runtimes and links go without TLS, the site never does."""

    certificate: Path
    key: Path
    ca_file: Path
    listens_in_plaintext: bool = False


def zone(domain: str, ports: Ports, fingerprint: str) -> dict[str, list[str]]:
    """DNS records of a domain: its hosts, and where its messaging node publishes itself."""
    return {
        domain: [f"A {HOST}"],
        f"mn.{domain}": [f"A {HOST}"],
        f"_rethink-mn.{domain}": [
            f'TXT "v=rmn1; id=1; k={fingerprint}; mode=enforce"',
            f"SVCB 1 {domain}. port={ports.site}",
        ],
        f"_rethink-mn._tcp.{domain}": [f"SRV 0 0 {ports.site} {domain}."],
    }


def node_settings(
    domain: str,
    *,
    folder: DomainFolder,
    ports: Ports,
    name_server_port: int,
    encryption: Encryption,
    peer: PeerEntry,
) -> str:
    """The text of `node.toml`."""
    is_plain = encryption.listens_in_plaintext
    identity: dict[str, Value] = {"certificate": str(encryption.certificate), "key": str(encryption.key)}
    tables: dict[str, dict[str, Value]] = {
        "node": {"domain": domain, "name": "mn-1", "data_dir": str(folder.data), "drain_seconds": DRAIN_SECONDS},
        "listen": {"host": HOST, "port": ports.listen, **({"insecure_plaintext": True} if is_plain else identity)},
        "site": {
            "host": HOST,
            "port": ports.site,
            "public_url": f"https://{domain}:{ports.site}",
            "requests_per_second": SITE_REQUESTS_PER_SECOND,
            **identity,
        },
        "publish": {
            "keys_dir": str(folder.keys),
            "site_dir": str(folder.site),
            "endpoint_url": f"{'ws' if is_plain else 'wss'}://mn.{domain}:{ports.listen}/link",
        },
        "discovery": {"nameservers": [f"{HOST}:{name_server_port}"], "ca_file": str(encryption.ca_file)},
        "policy": {"files": [str(folder.policy)]},
        "log": {"level": "info"},
    }
    trust: dict[str, Value] = {"trust": "pinned", "fingerprint": peer.fingerprint} if peer.fingerprint else {}
    entry: dict[str, Value] = {"domain": peer.domain, "default": "deny", "allow_addresses": [LOOPBACK_RANGE], **trust}
    if is_plain:
        entry["insecure_plaintext"] = True
    blocks = [_table(f"[{name}]", members) for name, members in tables.items() if members]
    return "\n".join([*blocks, _table("[[peer]]", entry)])


def _table(title: str, members: Mapping[str, Value]) -> str:
    """One TOML table; JSON's strings, numbers, booleans and lists of strings are TOML's, too."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in members.items()]
    return "\n".join([title, *lines, ""])
