"""A throw-away certificate authority for laboratories: made once per state folder, believed by nobody else."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import trustme

_CA_FILE: Final = "development-ca.pem"
_CA_KEY_FILE: Final = "development-ca.key.pem"


class DevelopmentAuthority:
    """Issues certificates for the domains of a laboratory and keeps them in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret = folder / _CA_KEY_FILE
        if self.ca_file.exists() and secret.exists():
            self.authority = trustme.CA.from_pem(self.ca_file.read_bytes(), secret.read_bytes())
        else:
            self.authority = trustme.CA(organization_name="Trapezoid development")
            _write_secret(secret, self.authority.private_key_pem.bytes())
            self.authority.cert_pem.write_to_path(str(self.ca_file))

    @property
    def ca_file(self) -> Path:
        """The certificate that clients of the laboratory believe."""
        return self._folder / _CA_FILE

    def certificate_for(self, domain: str) -> tuple[Path, Path]:
        """Certificate chain and private key of `domain`, its host `mn.domain` and loopback; made when missing."""
        certificate, key = self._folder / f"{domain}.pem", self._folder / f"{domain}.key.pem"
        if not (certificate.exists() and key.exists()):
            leaf = self.authority.issue_cert(domain, f"mn.{domain}", "localhost", "127.0.0.1", common_name=domain)
            _write_secret(key, leaf.private_key_pem.bytes())
            certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        return certificate, key

    def client_context(self) -> ssl.SSLContext:
        """A context for clients that believe this authority and no other."""
        return ssl.create_default_context(cafile=str(self.ca_file))


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
