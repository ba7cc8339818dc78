"""Settings of what partners hand in at the site for our pipeline: `[exchange]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.block_lists import PublicKey
from msg_node.settings.registries import Problem
from protofly.address import valid_domain
from protofly.errors import PeerError
from protofly.partner_files import FILE_BYTES_MAX
from protofly.signatures import KeyRecord, is_usable


class ExchangePartner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A domain whose files are taken."""

    domain: Annotated[str, Meta(description="Domain of the partner.")]
    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(min_length=1, max_length=4, description="Its public Ed25519 keys, base64url, from another channel."),
    ]


class ExchangeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of partners (extracts, reports) that the site takes for our pipeline. See `docs/settlement.md`."""

    folder: Annotated[
        Path | None, Meta(description="Folder with one for each partner; absent: `exchange/in` in `data_dir`.")
    ] = None
    file_bytes: Annotated[
        Annotated[int, Meta(ge=4_096, le=FILE_BYTES_MAX)], Meta(description="Largest file of a partner.")
    ] = 64 << 20
    waiting_files: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)],
        Meta(description="Files of one partner that wait for the pipeline; further ones get 429."),
    ] = 256
    waiting_bytes: Annotated[
        Annotated[int, Meta(ge=4_096)], Meta(description="Bytes of one partner that wait for the pipeline, likewise.")
    ] = 1 << 30
    hourly_files: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)], Meta(description="Requests of one partner in an hour, likewise.")
    ] = 600
    partner: Annotated[tuple[ExchangePartner, ...], Meta(max_length=1_000)] = ()


def exchange_problems(exchange: ExchangeSettings | None) -> Iterator[Problem]:
    """Check names and keys."""
    seen: set[str] = set()
    for index, one in enumerate(exchange.partner if exchange else ()):
        path = ("exchange", "partner", index)
        try:
            valid_domain(one.domain)
        except PeerError as exc:
            yield (*path, "domain"), f"{one.domain!r} is not a domain name: {exc.detail}"
        if one.domain in seen:
            yield (*path, "domain"), f"a second entry for {one.domain}"
        seen.add(one.domain)
        if not all(is_usable(KeyRecord(alg="ed25519", pub=pub)) for pub in one.keys):
            yield (*path, "keys"), "a key is malformed or weak"
