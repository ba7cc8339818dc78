"""Settings of proxies in front of a listener, and checks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

ClientAddressFrom = Literal["x-forwarded-for", "forwarded", "proxy-protocol"]


class ProxiedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proxies in front of a listener."""

    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(
            description="Proxies in front, as addresses or ranges. Each of their connections has to say who the client "
            "is; bounds and logs are by that client. Nobody else is believed."
        ),
    ] = ()
    client_address_from: Annotated[
        ClientAddressFrom,
        Meta(
            description="How they say it: in that header field, of which the rightmost address that is no proxy "
            "counts, or by the PROXY protocol, version 1 or 2, at the beginning of each connection."
        ),
    ] = "x-forwarded-for"


class ListenProxiedSettings(ProxiedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proxies in front of the listener of runtimes and links."""

    proxy_certificates: Annotated[
        tuple[Path, ...],
        Meta(
            description="PEM files with the certificates that these proxies show, where TLS ends at them: links of "
            "other domains are bound to what they see."
        ),
    ] = ()
