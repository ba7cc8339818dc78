"""Client certificates: which runtime one speaks for.

TLS has verified the chain before anything here runs; what is left is the name. A certificate names its runtime by a SAN
URI (`runtime://…`, or in the old spelling `hyperty-runtime://…`), or the settings name the certificate. The node asks
nobody about revocation: who withdraws an entry, or lets a short life end, is sure. Source: message specification,
section 5.1; RFC 5280, section 4.2.1.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from msg_node.kernel.runtime_address import covers, names_in_full
from protofly.address import canonical_key
from protofly.errors import PeerError

_NAMES = 64
"""SAN URIs that are looked at."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The names in a verified certificate.

    `sha256` is the hex digest of the whole certificate, `subject` its RFC 4514 text, `runtimes` the canonical keys of
    the runtimes that its SAN names, `expires_at` the end of its life in seconds since the Unix epoch.
    """

    sha256: str
    subject: str
    runtimes: frozenset[str]
    expires_at: float


@dataclass(frozen=True, slots=True)
class CertificateEntry:
    """A certificate that the settings name, by `sha256` or by `subject`, and what it is for.

    `runtime` is an address or a pattern.
    """

    runtime: str
    sha256: str = ""
    subject: str = ""
    roles: frozenset[str] = frozenset()

    @property
    def credential(self) -> str:
        """The credential of sessions that it opened: the same for a renewed certificate of the same subject."""
        return f"certificate sha256 {self.sha256}" if self.sha256 else f"certificate subject {self.subject}"

    def names(self, certificate: PeerCertificate) -> bool:
        """True if it is about that certificate."""
        if self.sha256:
            return self.sha256 == certificate.sha256
        return bool(self.subject) and self.subject == certificate.subject

    def is_for(self, runtime_key: str) -> bool:
        """True if it may open the runtime with that canonical key."""
        return covers(self.runtime, runtime_key)

    def is_in_full_for(self, runtime_key: str) -> bool:
        """True if it is for that runtime and no other."""
        return names_in_full(self.runtime, runtime_key)


@lru_cache(maxsize=1024)
def read_certificate(der: bytes) -> PeerCertificate | None:
    """Read a certificate that TLS has verified; None when it cannot be read."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = certificate.subject.rfc4514_string()
        expires_at = certificate.not_valid_after_utc.timestamp()
        runtimes = _runtimes_of(certificate)
    except (ValueError, TypeError, x509.DuplicateExtension):
        return None
    return PeerCertificate(certificate.fingerprint(hashes.SHA256()).hex(), subject, runtimes, expires_at)


def _runtimes_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    keys = set()
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier)[:_NAMES]:
        try:
            key = canonical_key(uri)
        except PeerError:
            continue
        if key.startswith("runtime://"):
            keys.add(key)
    return frozenset(keys)
