"""Settings of the admin site: `[admin]`, where operators see and change the running node over HTTPS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class AdminSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin site: the admin service over HTTPS, and the console. Nothing of it is served without its token."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)], Meta(description="TCP port; 0 lets the system choose one.")
    ] = 8445
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS; only on a loopback address, for clients of this machine.")
    ] = False
    behind_proxy: Annotated[
        bool, Meta(description="Serve requests that a proxy has passed on too; without this they are refused.")
    ] = False
    token_file: Annotated[
        Path | None,
        Meta(
            description="File with the token, mode 0600; absent: `admin-token` in the data folder, made at the first "
            "start. A new content counts at once."
        ),
    ] = None
    requests_per_second: Annotated[
        Annotated[float, Meta(gt=0.0)],
        Meta(description="Requests of one address, five seconds' worth at once; further ones get 429."),
    ] = 20.0
