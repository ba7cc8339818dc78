"""Hand a file over to a partner: one signed POST to the site of its node; see `protofly.partner_files`."""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

import httpx

from pipeline.partners.bounded_post import post
from pipeline.partners.settings import Partner
from protofly.errors import SettingsError
from protofly.partner_files import HEADER, PATH, PartnerFile, header_of
from protofly.signatures import SigningKey

WHOLE_S: Final = 30.0
"""A file may take so long, whatever the partner's site does meanwhile, and a second more for each of these bytes."""
_BYTES_A_SECOND: Final = 1 << 20
_PIECE: Final = 1 << 20


class NotTakenError(Exception):
    """The partner did not take a file.

    Attributes:
        is_lasting: It never will, as the file is.
    """

    def __init__(self, why: str, *, is_lasting: bool = False) -> None:
        super().__init__(why)
        self.is_lasting = is_lasting


def hand_over(path: Path, partner: Partner, *, domain: str, key: SigningKey) -> None:
    """Hand one file over. It ends in bounded time, and keeps little of what is answered.

    Args:
        path: The file; its name goes along.
        partner: Who gets it.
        domain: We, its author.
        key: Ours, whose public half the partner has.

    Raises:
        NotTakenError: It is to be handed over again later.
        SettingsError: The file of certificate authorities cannot be used.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.seek(0, 2)
        file.seek(0)
        facts = PartnerFile(
            author=domain, reader=partner.domain, name=path.name, size=size, sha256=sha256, sent=time.time()
        )
        headers = {HEADER: header_of(facts, key), "content-length": str(size)}
        url = f"{partner.url.rstrip('/')}{PATH}/{domain}"
        limit_s = WHOLE_S + size / _BYTES_A_SECOND
        try:
            status, said = post(url, _pieces(file), headers, limit_s=limit_s, trusted=_trusted(partner))
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as exc:
            raise NotTakenError(f"{url}: {exc}") from exc
    if not 200 <= status < 300:
        raise NotTakenError(f"{url} answered {status} {said}", is_lasting=status == 413)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _trusted(partner: Partner) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if partner.ca_file:
        try:
            context.load_verify_locations(partner.ca_file)
        except (OSError, ssl.SSLError) as exc:
            raise SettingsError(f"{partner.ca_file}: no certificate authorities: {exc}") from exc
    return context
