"""Settings of what partners hand in at the site for our pipeline: `[exchange]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.block_lists import PublicKey
from protofly.partner_files import FILE_BYTES_MAX


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
