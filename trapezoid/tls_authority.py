"""Certificates for TLS: an authority of one's own for laboratories and devices, and requests for a real one.

A folder holds `ca.pem` and `ca.key.pem`, the authority; `cert.pem` and `key.pem`, the server's; and a pair for each
client. The authority is constrained to the names that it was made for: who trusts it for one domain gives nothing else
away. Keys have mode 0600. Source: RFC 5280, sections 4.2.1.6 and 4.2.1.10; message specification, section 5.1.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protofly.address import valid_domain
from protofly.errors import SettingsError
from stubkit.files import PRIVATE_FILE_MODE, replace_file
from stubkit.keys import SECRET_FOLDER_MODE

AUTHORITY_DAYS: Final = 1825
_SKEW: Final = timedelta(hours=1)
"""Clocks of others may be late by this."""
_LOOPBACK: Final = ("127.0.0.0/8", "::1/128")
_T = TypeVar("_T")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a server for its certificate: DNS names and addresses."""

    hosts: tuple[str, ...]
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str]) -> Names:
        """Sort names and addresses apart.

        Raises:
            PeerError: NAME_INVALID, one is neither.
        """
        hosts: list[str] = []
        addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []
        for name in dict.fromkeys(names):
            try:
                addresses.append(ipaddress.ip_address(name))
            except ValueError:
                hosts.append(name if name == "localhost" else valid_domain(name))
        return cls(tuple(hosts), tuple(addresses))

    @property
    def texts(self) -> list[str]:
        """All of them, for people."""
        return [*self.hosts, *map(str, self.addresses)]

    @property
    def alternatives(self) -> x509.SubjectAlternativeName:
        """The extension of a certificate."""
        return x509.SubjectAlternativeName(
            [*map(x509.DNSName, self.hosts), *(x509.IPAddress(one) for one in self.addresses)]
        )


def server_names(domain: str, further: Sequence[str]) -> Names:
    """The names of a node: its domain, `mn.<domain>`, the further ones, and loopback.

    Raises:
        PeerError: NAME_INVALID, one is no name and no address.
    """
    return Names.of([valid_domain(domain), f"mn.{domain}", *further, "localhost", "127.0.0.1", "::1"])


def make_authority(folder: Path, names: Names, *, now: datetime) -> None:
    """Make an authority for the servers of these names and for clients with URIs of these hosts.

    Raises:
        SettingsError: there is one already, or the folder cannot be written.
    """
    if (folder / "ca.pem").exists() or (folder / "ca.key.pem").exists():
        raise SettingsError(f"{folder}/ca.pem exists: `trapezoid keys tls renew` issues from it again")
    _make_folder(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{names.hosts[0]} laboratory authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(subject, key.public_key(), now, AUTHORITY_DAYS)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_constraints(names), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / "ca.key.pem", key)
    _write_certificates(folder / "ca.pem", certificate)


def issue_server(folder: Path, names: Names, *, days: int, now: datetime) -> Path:
    """Issue `cert.pem` for a server; the key of `key.pem` is kept, so that pins of it stay true, or made.

    Raises:
        SettingsError: there is no authority, or it is not for one of the names.
    """
    authority = _authority(folder)
    authority.check_allowed(names)
    key = _own_key(folder).public_key()
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = _builder(_name(names.hosts[0]), key, now, days).add_extension(usage, critical=False)
    certificate = authority.certify(builder, names.alternatives)
    _write_certificates(folder / "cert.pem", certificate, authority.certificate)
    return folder / "cert.pem"


def issued_names(folder: Path) -> Names:
    """The names in `cert.pem`.

    Raises:
        SettingsError: there is no such certificate.
        PeerError: NAME_INVALID, it has other names than those of a node.
    """
    certificate = _certificate(folder / "cert.pem", "make one with `trapezoid keys tls init`")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return Names.of([*names.get_values_for_type(x509.DNSName), *addresses])


def issue_client(folder: Path, runtime: str, *, file_name: str, days: int, now: datetime) -> tuple[Path, Path]:
    """Issue a certificate by which a client proves that it is `runtime`, with a key of its own.

    Returns:
        Paths of certificate and key.

    Raises:
        SettingsError: there is no authority, the runtime is none of its domain, or the file name is no plain one.
    """
    authority = _authority(folder)
    scheme, _, rest = runtime.partition("://")
    host, _, path = rest.partition("/")
    if scheme != "runtime" or not path:
        raise SettingsError(f"{runtime} is no address of a runtime, such as runtime://{host or 'a.example'}/rt-ana")
    authority.check_allowed(Names((valid_domain(host),)))
    if not _FILE_NAME.fullmatch(file_name) or file_name in ("ca", "cert", "key", "ca.key"):
        raise SettingsError(f"{file_name!r} is no name for a file here: give another with --file")
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = _builder(_name(file_name), key.public_key(), now, days).add_extension(usage, critical=False)
    certificate = authority.certify(builder, x509.SubjectAlternativeName([x509.UniformResourceIdentifier(runtime)]))
    paths = folder / f"{file_name}.pem", folder / f"{file_name}.key.pem"
    for one in paths:
        if one.exists():
            raise SettingsError(f"{one} exists; give another name with --file, or remove it first")
    _write_key(paths[1], key)
    _write_certificates(paths[0], certificate, authority.certificate)
    return paths


def make_request(folder: Path, names: Names) -> Path:
    """Write `request.csr`, which a certificate authority turns into a certificate for the key in `key.pem`.

    Raises:
        SettingsError: the folder cannot be written.
    """
    _make_folder(folder)
    key = _own_key(folder)
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name(names.hosts[0]))
        .add_extension(names.alternatives, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "request.csr"
    replace_file(path, request.public_bytes(serialization.Encoding.PEM))
    return path


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    folder: Path

    def certify(self, builder: x509.CertificateBuilder, names: x509.SubjectAlternativeName) -> x509.Certificate:
        """Sign what is no authority itself."""
        identifier = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return (
            builder.issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
            .add_extension(names, critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def check_allowed(self, names: Names) -> None:
        """Refuse names that it may not vouch for: nobody would believe the certificate."""
        extension = self.certificate.extensions.get_extension_for_class(x509.NameConstraints)
        permitted = extension.value.permitted_subtrees or []
        hosts = [one.value for one in permitted if isinstance(one, x509.DNSName)]
        networks = [one.value for one in permitted if isinstance(one, x509.IPAddress)]
        strange = [host for host in names.hosts if not any(host == one or host.endswith(f".{one}") for one in hosts)]
        strange += [str(one) for one in names.addresses if not any(_is_in(one, network) for network in networks)]
        if strange:
            raise SettingsError(
                f"{self.folder}/ca.pem is not for {', '.join(strange)}: make an authority that is, in its own folder"
            )


def _is_in(address: object, network: object) -> bool:
    if isinstance(network, ipaddress.IPv4Network) and isinstance(address, ipaddress.IPv4Address):
        return address in network
    if isinstance(network, ipaddress.IPv6Network) and isinstance(address, ipaddress.IPv6Address):
        return address in network
    return False


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _constraints(names: Names) -> x509.NameConstraints:
    networks = [ipaddress.ip_network(text) for text in _LOOPBACK]
    networks += [ipaddress.ip_network(one) for one in names.addresses if not one.is_loopback]
    hosts = [x509.DNSName(host) for host in names.hosts]
    uris = [x509.UniformResourceIdentifier(host) for host in names.hosts if host != "localhost"]
    return x509.NameConstraints([*hosts, *map(x509.IPAddress, networks), *uris], None)


def _authority(folder: Path) -> _Authority:
    hint = "make an authority with `trapezoid keys tls init`"
    return _Authority(_certificate(folder / "ca.pem", hint), _key(folder / "ca.key.pem", hint), folder)


def _own_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    path = folder / "key.pem"
    if path.exists():
        return _key(path, "remove it, and it is made anew")
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(path, key)
    return key


def _certificate(path: Path, hint: str) -> x509.Certificate:
    return _parsed(path, x509.load_pem_x509_certificate, hint)


def _key(path: Path, hint: str) -> ec.EllipticCurvePrivateKey:
    key = _parsed(path, lambda pem: serialization.load_pem_private_key(pem, None), hint)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"{path}: is no key on an elliptic curve; {hint}")
    return key


def _parsed(path: Path, parse: Callable[[bytes], _T], hint: str) -> _T:
    try:
        return parse(path.read_bytes())
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}; {hint}") from exc
    except (ValueError, TypeError) as exc:
        raise SettingsError(f"{path}: is not what its name says; {hint}") from exc


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=SECRET_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingsError(f"{folder}: cannot be made: {exc.strerror}") from exc


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    replace_file(path, pem, mode=PRIVATE_FILE_MODE)


def _write_certificates(path: Path, *chain: x509.Certificate) -> None:
    replace_file(path, b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain))


def now_utc() -> datetime:
    """The time at which certificates are issued."""
    return datetime.now(UTC)
