"""Settings of the place where state is kept: `[storage]`.

Source: design, section 6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct


class StorageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Storage of the node's state. Without `engine`: in files of `data_dir`; see `docs/cluster.md`."""

    engine: Annotated[
        str,
        Meta(
            description="PostgreSQL that the nodes of this domain share: `postgresql://user@host[:port]/database`, "
            "several hosts with commas, or `postgresql://user@/database?host=/folder` for a Unix socket."
        ),
    ] = ""
    password_file: Annotated[
        Path | None, Meta(description="File with its password, mode 0600; absent: `PGPASSWORD` of the environment.")
    ] = None
    tls: Annotated[
        Literal["verify-full", "verify-ca", "off"],
        Meta(
            description="`verify-ca`: the certificate may have any name; `off`: only on one machine, or a closed net."
        ),
    ] = "verify-full"
    ca_file: Annotated[Path | None, Meta(description="PEM file with the authorities of its certificate.")] = None
    certificate: Annotated[Path | None, Meta(description="PEM file with our client certificate.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with its private key, mode 0600.")] = None
    key_file: Annotated[
        Path | None,
        Meta(
            description="File of `trapezoid keys state`, mode 0600, outside `data_dir`: its first key encrypts "
            "`state.sqlite`, all of them open it. Not with `engine`."
        ),
    ] = None
