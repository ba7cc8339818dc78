"""Client certificates of a trustme authority, with the names that runtimes use: SAN URIs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier


@dataclass(frozen=True)
class ClientCertificate:
    """A certificate with its key."""

    pem: bytes
    key_pem: bytes

    @property
    def sha256(self) -> str:
        """Fingerprint as openssl prints it."""
        raw = x509.load_pem_x509_certificate(self.pem).fingerprint(hashes.SHA256())
        return raw.hex(":").upper()

    def configure(self, context: ssl.SSLContext, folder: Path) -> ssl.SSLContext:
        """Have a client present it."""
        path = folder / f"{self.sha256[:11].replace(':', '')}.pem"
        path.write_bytes(self.key_pem + self.pem)
        context.load_cert_chain(path)
        return context


def client_certificate(
    authority: trustme.CA,
    *uris: str,
    name: str = "ana",
    purpose: ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
    days: int = 1,
) -> ClientCertificate:
    """A certificate whose SAN holds these URIs; with negative `days` it has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    end = datetime.now(UTC) + timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Alpha"),
                    x509.NameAttribute(NameOID.COMMON_NAME, name),
                ]
            )
        )
        .issuer_name(x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=2))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ClientCertificate(certificate.public_bytes(serialization.Encoding.PEM), key_pem)
