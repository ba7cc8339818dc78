"""What a partner and the node under test have to know of each other, as one file: `partner.toml`.

Everything is on loopback. The folder holds the certificate authority that both trust.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from interop.domain_files import Ports
from protofly.errors import SettingsError
from protofly.toml_lines import read_toml

TERMS_FILE: Final = "partner.toml"
PARENT: Final = "partner.example"
"""Parent of all domains that the partner plays: each case has one of its own, named after it."""
BARRED: Final = f"barred.{PARENT}"
"""The domain that the node under test must not talk with."""


class NodeTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node under test.

    Attributes:
        domain: Its domain.
        runtimes: URL at which its runtimes connect, dialect A.
        link: URL of its link endpoint, as it publishes it.
        site_port: Port of its published documents.
        command: How to start it, relative to the folder; empty: it runs already.
        data: Folder of its data, below the folder of this file: emptied before `command`.
        refresh_seconds: How long after a change a partner's documents are fetched again at the latest, when a token
            is signed by a key that they did not name before.
    """

    domain: str
    runtimes: str
    link: str
    site_port: int
    command: tuple[str, ...] = ()
    data: str = ""
    refresh_seconds: float = 61.0


class PartnerTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. `authority` is the folder of the certificate authority."""

    node: NodeTerms
    name_server_port: int
    site_port: int
    link_port: int
    authority: str = "authority"

    @property
    def ports(self) -> Ports:
        """Ports of the partner's site and link endpoint."""
        return Ports(listen=self.link_port, site=self.site_port)


def load_terms(folder: Path) -> PartnerTerms:
    """Read the file. Raises SettingsError."""
    file = folder / TERMS_FILE
    try:
        text = file.read_bytes()
    except OSError as exc:
        detail = f"{file}: {exc.strerror}; make the folder with `trapezoid lab init {folder} --partner`"
        raise SettingsError(detail) from exc
    return read_toml(text, PartnerTerms, str(file))[0]


def case_domain(case_id: str) -> str:
    """The domain that a case is played with."""
    return f"{case_id}.{PARENT}"
