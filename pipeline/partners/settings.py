"""Settings of the exchange with partners: who we are for them, who they are, and what each is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pipeline.core.tolerance import Tolerance, read_tolerance
from protofly.address import valid_domain
from protofly.errors import PeerError, SettingsError
from protofly.signatures import KeyRecord, is_usable

PARTNERS_MAX: Final = 1_000
_HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_Text = Annotated[str, Meta(min_length=1)]


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Our identity and folders for the exchange with partners.

    `key` is the file of our private Ed25519 key. Partners hand files in below `inbox`, where our node puts them; what
    waits for them, and what was sent and taken, is below `folder`. Days are exchanged for `days` days after their end.
    """

    domain: _Text
    key: _Text
    folder: _Text = "exchange"
    inbox: str = ""
    days: Annotated[int, Meta(ge=1, le=60)] = 7


class UsageReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partner learns which of its senders with so many messages, or bytes unless that is 0, in so many hours."""

    hours: Annotated[float, Meta(gt=0, le=744)] = 4.0
    messages: Annotated[int, Meta(ge=1)] = 1_000
    bytes: Annotated[int, Meta(ge=0)] = 0


class Partner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partner: its public keys, its site, and what is agreed with it."""

    domain: _Text
    keys: Annotated[tuple[_Text, ...], Meta(min_length=1, max_length=4)]
    url: _Text
    ca_file: str = ""
    extracts: bool = True
    tolerate: dict[str, Annotated[int, Meta(ge=0)]] = {}
    usage: UsageReports | None = None

    @property
    def records(self) -> list[KeyRecord]:
        """The keys, as signatures are checked by them."""
        return [KeyRecord(alg="ed25519", pub=pub) for pub in self.keys]

    @property
    def tolerance(self) -> Tolerance:
        """Tolerated cases by class, as agreed with the partner. Raises SettingsError."""
        return read_tolerance(0, [f"{word}={count}" for word, count in self.tolerate.items()])


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The block list that we publish: its file, and who is on it; see `block-list`."""

    out: _Text
    days: Annotated[int, Meta(ge=1, le=366)] = 7
    alerts: Annotated[int, Meta(ge=1)] = 3
    hours: Annotated[float, Meta(gt=0, le=168)] = 24.0


def check_partners(exchange: Exchange | None, partners: Sequence[Partner], listing: Listing | None) -> None:
    """See that they can be meant. Raises ValueError or SettingsError."""
    if exchange is None:
        if partners or listing is not None:
            raise ValueError("exchange: say who you are: `domain` and `key`")
        return
    seen = {exchange.domain}
    for one in (exchange.domain, *(partner.domain for partner in partners)):
        try:
            valid_domain(one)
        except PeerError as exc:
            raise ValueError(f"partner: {one!r} is not a domain name: {exc.detail}") from exc
    for partner in partners:
        if partner.domain in seen:
            raise ValueError(f"partner: {partner.domain} is there twice, or is yours")
        seen.add(partner.domain)
        if not all(is_usable(key) for key in partner.records):
            raise ValueError(f"partner {partner.domain}: a key is malformed or weak; it has 43 characters of base64url")
        parts = urlsplit(partner.url)
        is_local = parts.scheme == "http" and parts.hostname in _HERE
        if not parts.hostname or parts.username or parts.query or (parts.scheme != "https" and not is_local):
            raise ValueError(f"partner {partner.domain}: url is the site of its node, https://HOST[:PORT]")
        try:
            partner.tolerance  # noqa: B018 - for what it raises
        except SettingsError as exc:
            raise ValueError(f"partner {partner.domain}: {exc.detail}") from exc


def placed(folder: Path, exchange: Exchange) -> Exchange:
    """The same with absolute paths."""
    inside = folder / exchange.folder
    inbox = folder / exchange.inbox if exchange.inbox else inside / "in"
    return msgspec.structs.replace(exchange, key=str(folder / exchange.key), folder=str(inside), inbox=str(inbox))
