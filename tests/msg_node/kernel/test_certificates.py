"""What is read in a certificate that TLS has verified, and what cannot be read."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

from msg_node.kernel.certificates import read_certificate

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
END = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
ANA = "runtime://a.example/ana"


def a_certificate(*extensions: x509.ExtensionType) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ana")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, START, END)
    for one in extensions:
        builder = builder.add_extension(one, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_subject_end_and_the_runtimes_that_are_named_are_read() -> None:
    names = (ANA, "https://a.example/x")
    der = a_certificate(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(one) for one in names]))
    read = read_certificate(der)
    assert read is not None
    assert (read.subject, set(read.runtimes), read.expires_at) == ("CN=ana", {ANA}, END.timestamp())
    plain = read_certificate(a_certificate())
    assert plain is not None
    assert plain.runtimes == frozenset()


@pytest.mark.parametrize("der", [b"", b"nonsense", b"0\x03\x02\x01\x01"])
def test_what_is_no_certificate_is_none(der: bytes) -> None:
    assert read_certificate(der) is None
    assert read_certificate(a_certificate()[:-9]) is None


def test_a_certificate_with_an_extension_twice_is_none() -> None:
    one, other = ObjectIdentifier("1.3.6.1.4.1.99999.1"), ObjectIdentifier("1.3.6.1.4.1.99999.2")
    der = a_certificate(x509.UnrecognizedExtension(one, b"x"), x509.UnrecognizedExtension(other, b"x"))
    assert read_certificate(der) is not None
    twice = der.replace(bytes.fromhex("2b0601040186 8d1f02".replace(" ", "")), bytes.fromhex("2b06010401868d1f01"))
    assert twice != der
    assert read_certificate(twice) is None
