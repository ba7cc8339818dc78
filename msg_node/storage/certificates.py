"""The contents of a TLS certificate file of ours: how long, for which names, with which public key.

Source: RFC 9525 (names); trust and hosts, sections 2.4 and 3.4 (which names other domains ask for).
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from msg_node.kernel.expiry import Term, TermKind
from msg_node.storage.file_checks import FileError, check_key_place, read_file, read_private
from protofly.documents import base64url


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """A chain, its own certificate first. `begins_at` and `ends_at` are of that one, Unix seconds.

    `chain_ends_at` is when the first of the others ends, infinity when there is none. Clients that know another way to
    an authority do not mind, so it is worth a warning only.
    """

    path: Path
    names: tuple[str, ...]
    """DNS names and IP addresses of the first certificate."""
    spki_sha256: str
    """Base64url SHA-256 of its public key, as `endpoint_spki` pins it."""
    begins_at: float
    ends_at: float
    chain_ends_at: float

    def term(self, name: str) -> Term:
        """Its life, called `name`."""
        return Term(TermKind.CERTIFICATE, name, self.begins_at, self.ends_at, str(self.path))

    def covers(self, host: str) -> bool:
        """True if clients that connect to `host`, a name or an address, take it."""
        return any(_matches(name, host) for name in self.names)


def read_certificate(path: Path) -> CertificateFile:
    """Read a PEM file with a chain. Raises FileError."""
    try:
        chain = x509.load_pem_x509_certificates(read_file(path))
    except ValueError as exc:
        raise FileError("certificate-malformed", path, "holds no certificate in PEM form") from exc
    first = chain[0]
    spki = first.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return CertificateFile(
        path,
        _names(first),
        base64url(hashlib.sha256(spki).digest()),
        first.not_valid_before_utc.timestamp(),
        first.not_valid_after_utc.timestamp(),
        min((one.not_valid_after_utc.timestamp() for one in chain[1:]), default=math.inf),
    )


def check_key_of(certificate: Path, key: Path) -> None:
    """Refuse a private key that others may read or replace, or that is not the certificate's. Raises FileError."""
    read_private(key)
    check_key_place(key)
    read_file(certificate)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as exc:
        raise FileError("key-mismatch", certificate, f"and {key} do not fit together: {exc.reason or exc}") from exc


def check_names(certificate: CertificateFile, hosts: Sequence[str], *, asked_by: str) -> None:
    """Refuse a certificate that is not for all of `hosts`. Raises FileError: `certificate-foreign`."""
    missing = [host for host in dict.fromkeys(hosts) if not certificate.covers(host)]
    if missing:
        raise FileError(
            "certificate-foreign",
            certificate.path,
            f"is for {', '.join(certificate.names) or 'no name'}, not for {', '.join(missing)}",
            f"{asked_by} ask for that name: get a certificate that has it",
        )


def _no_password() -> bytes:
    """A key with a password would make OpenSSL ask the terminal."""
    return b""


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Names of the extension; the common name counts only where there are none, as OpenSSL does it."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return tuple(str(one.value) for one in common)
    except ValueError:
        return ()
    addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _matches(name: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    if _is_address(name) or _is_address(host):
        return False
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    if name.startswith("*."):
        label, _, rest = host.partition(".")
        return bool(label) and rest == name[2:]
    return name == host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
