"""Settings of connectors as stubs: `[[connector]]`. Source: docs/connectors.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class ConnectorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service address of our domain that sandboxed code of yours answers. See `docs/connectors.md`."""

    service: Annotated[
        Literal["registry", "idm", "qos", "discovery"],
        Meta(description="It answers `domain://<service>.<our domain>`."),
    ]
    stub: Annotated[
        Path,
        Meta(description="A `.wasm` file of the kind `connector`; its digest is pinned when it is used first."),
    ]
    endpoint: Annotated[str, Meta(description="URL of the only place that it may connect to, as endpoint `mn`.")]
    configuration: Annotated[dict[str, Any], Meta(description="Table of settings for the connector; no secrets.")] = {}
    allow_addresses: Annotated[
        tuple[str, ...],
        Meta(description="Internal ranges that the endpoint may resolve to, for example `10.7.0.0/16`."),
    ] = ()
    insecure_plaintext: Annotated[bool, Meta(description="Accept `ws://` and `http://` for its endpoint.")] = False
    serves_domains: Annotated[
        bool, Meta(description="Other domains and their guests may ask it too; off: 403 `policy`.")
    ] = False
