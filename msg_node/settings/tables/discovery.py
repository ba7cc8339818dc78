"""The table `[discovery]`: how other domains are found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class DiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Discovery of other domains."""

    nameservers: Annotated[
        tuple[str, ...], Meta(description="Resolvers as `address:port`; empty: those of the operating system.")
    ] = ()
    ca_file: Annotated[Path | None, Meta(description="PEM file with additional certificate authorities to trust.")] = (
        None
    )
    trust_ad_bit: Annotated[
        bool,
        Meta(description="Believe the DNSSEC verdict (AD bit) of the name servers above; only on a protected path."),
    ] = False
