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
    """Folder of one domain: keys, site and data."""

    path: Path

    @property
    def keys(self) -> Path:
        """Keys of the domain."""
        return self.path / "keys"

    @property
    def site(self) -> Path:
        """The folder of the documents that it publishes."""
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
class SharedState:
    """Engine and bus that the nodes of one domain share.

    `listen` and `advertise` are this node's end of the bus, as host and port; the key proves its nodes to each other.
    """

    engine: str
    password_file: Path
    listen: str
    advertise: str
    key_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """One node of a domain: its name, its own folder and ports, and what it shares if the domain has several."""

    folder: DomainFolder
    ports: Ports
    name: str = "mn-1"
    shared: SharedState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEntry:
    """Settings of one domain about another; with a fingerprint it is pinned, else the web's trust is enough.

    With `stub` and `endpoint`, our operator chose the stub, for a peer that publishes nothing and is of class `plain`.
    """

    domain: str
    fingerprint: str = ""
    stub: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """Certificates of one domain. `listens_in_plaintext`: runtimes and links go without TLS, the site never does."""

    certificate: Path
    key: Path
    ca_file: Path
    listens_in_plaintext: bool = False


def zone(domain: str, ports: Ports, fingerprint: str, *, host: str = HOST) -> dict[str, list[str]]:
    """DNS records of a domain: its hosts, and where its messaging node publishes itself."""
    return {
        domain: [f"A {host}"],
        f"mn.{domain}": [f"A {host}"],
        f"_rethink-mn.{domain}": [
            f'TXT "v=rmn1; id=1; k={fingerprint}; mode=enforce"',
            f"SVCB 1 {domain}. port={ports.site}",
        ],
        f"_rethink-mn._tcp.{domain}": [f"SRV 0 0 {ports.site} {domain}."],
    }


def node_settings(
    domain: str,
    *,
    place: NodePlace,
    published: DomainFolder,
    name_server_port: int,
    encryption: Encryption,
    peers: Sequence[PeerEntry],
) -> str:
    """The text of `node.toml` of the node in `place`; keys, documents and policy of the domain are in `published`."""
    folder, ports = place.folder, place.ports
    is_plain = encryption.listens_in_plaintext
    identity: dict[str, Value] = {"certificate": str(encryption.certificate), "key": str(encryption.key)}
    tables: dict[str, dict[str, Value]] = {
        "node": {"domain": domain, "name": place.name, "data_dir": str(folder.data), "drain_seconds": DRAIN_SECONDS},
        "listen": {"host": HOST, "port": ports.listen, **({"insecure_plaintext": True} if is_plain else identity)},
        "site": {
            "host": HOST,
            "port": ports.site,
            "public_url": f"https://{domain}:{ports.site}",
            "requests_per_second": SITE_REQUESTS_PER_SECOND,
            **identity,
        },
        "publish": {
            "keys_dir": str(published.keys),
            "site_dir": str(published.site),
            "endpoint_url": f"{'ws' if is_plain else 'wss'}://mn.{domain}:{ports.listen}/link",
        },
        "discovery": {"nameservers": [f"{HOST}:{name_server_port}"], "ca_file": str(encryption.ca_file)},
        "policy": {"files": [str(published.policy)]},
        "log": {"level": "info"},
        **_shared_tables(place.shared),
    }
    blocks = [_table(f"[{name}]", members) for name, members in tables.items() if members]
    blocks += [_table("[[peer]]", _peer_members(peer, is_plain=is_plain)) for peer in peers]
    return "\n".join(blocks)


def _shared_tables(shared: SharedState | None) -> dict[str, dict[str, Value]]:
    if shared is None:
        return {}
    bus: dict[str, Value] = {"listen": shared.listen, "key_file": str(shared.key_file)}
    if shared.advertise != shared.listen:
        bus["advertise"] = shared.advertise
    return {
        "storage": {"engine": shared.engine, "password_file": str(shared.password_file), "tls": "off"},
        "cluster": bus,
    }


def _peer_members(peer: PeerEntry, *, is_plain: bool) -> dict[str, Value]:
    members: dict[str, Value] = {"domain": peer.domain, "default": "deny", "allow_addresses": [LOOPBACK_RANGE]}
    if peer.fingerprint:
        members |= {"trust": "pinned", "fingerprint": peer.fingerprint}
    if peer.stub:
        members |= {"stub": peer.stub, "endpoint": peer.endpoint, "class": "plain", "stay_connected": True}
        members["insecure_plaintext"] = True
    elif is_plain:
        members["insecure_plaintext"] = True
    return members


def policy_between(domain: str, partners: Sequence[str]) -> str:
    """A policy that lets the partners talk with the domain, except that they cannot write into its registry."""
    tests = "".join(_POLICY_TESTS.format(domain=domain, partner=partner) for partner in partners)
    return _POLICY.format(id=domain.replace(".", "-"), partners=json.dumps(list(partners))) + tests


_POLICY: Final = """# Settings say `default = "deny"` for each peer: what no rule permits does not pass.

id = "{id}"
version = "1"
target = {{ hook = {{ in = ["peer", "out", "in"] }} }}
rule_combining_algorithm = "first-applicable"

[lists]
partners = {partners}
spoken = ["hyperty", "runtime", "comm", "thing", "user-guid", "domain"]

[[rules]]
id = "registry-is-read-only"
effect = "deny"
condition = {{ hook = {{ equals = "in" }}, msgTo = {{ like = "domain://registry.*" }}, actionType = {{ in = ["create", "update", "delete"] }} }}

[[rules]]
id = "partners-may-talk"
effect = "permit"
condition = {{ linkDomain = {{ in = "@partners" }}, dstScheme = {{ in = "@spoken" }} }}
"""  # noqa: E501 - an inline table of TOML is one line
_POLICY_TESTS: Final = """
[[tests]]
name = "{partner} may talk"
hook = "in"
from = "hyperty://{partner}/h-1"
to = "hyperty://{domain}/h-1"
type = "read"
expect = "permit"

[[tests]]
name = "{partner} cannot write into our registry"
hook = "in"
from = "hyperty://{partner}/h-1"
to = "domain://registry.{domain}"
type = "create"
expect = "deny"
"""


def _table(title: str, members: Mapping[str, Value]) -> str:
    """One TOML table; JSON's strings, numbers, booleans and lists of strings are TOML's, too."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in members.items()]
    return "\n".join([title, *lines, ""])
