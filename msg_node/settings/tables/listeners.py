"""Tables of what the node listens on: `[listen]` and `[site]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from msg_node.settings.tables.proxies import ListenProxiedSettings, ProxiedSettings
from msg_node.settings.tables.values import Port, PositiveInt, Rate
from protofly import limits


class ListenSettings(ListenProxiedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Listener for runtimes (`/ws`, `/socket.io/`, `/stub/connect`, `/messages`) and other nodes' stubs (`/link`)."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="TCP port; 0 lets the system choose one.")] = 8443
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS. Only for laboratories: then no certificate and key may be given.")
    ] = False
    client_ca: Annotated[
        Path | None,
        Meta(description="PEM file with the authorities whose client certificates prove runtimes; absent: none do."),
    ] = None
    client_certificate: Annotated[
        Literal["optional", "required"],
        Meta(description="`required`: no runtime opens a session without one. Links of other domains need none."),
    ] = "optional"
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web origins whose pages may connect as runtimes, such as `https://app.a.example`; `*` is any."
        ),
    ] = ("*",)
    unopened_per_second: Annotated[
        Rate,
        Meta(
            description="Connections of one address, or of one /64 of IPv6, that open no session and prove no domain; "
            "further ones are closed at once. Behind a proxy that is not in `trusted_proxies`, all have its address."
        ),
    ] = limits.UNOPENED_PER_SECOND


class SiteSettings(ProxiedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's own HTTP site: `.well-known`, catalogue, health and status."""

    host: Annotated[str, Meta(description="Address to bind.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="TCP port; 0 lets the system choose one.")] = 8444
    certificate: Annotated[Path | None, Meta(description="PEM file with the certificate chain.")] = None
    key: Annotated[Path | None, Meta(description="PEM file with the private key, mode 0600.")] = None
    insecure_plaintext: Annotated[
        bool, Meta(description="Serve without TLS, for example behind a proxy that ends it.")
    ] = False
    public_url: Annotated[
        str,
        Meta(description="How others reach this site; absent: `https://` and the domain. Never taken from a request."),
    ] = ""
    status_token_sha256: Annotated[
        str,
        Meta(
            description="Hex SHA-256 of the bearer token that opens `/status`; absent: loopback clients over TLS only, "
            "and none behind a proxy."
        ),
    ] = ""
    reverse_check: Annotated[
        bool,
        Meta(
            description="Answer another domain that proves itself whether a link of it would be admitted, and by which "
            "code not; nobody learns anything about others. With `[publish]` only."
        ),
    ] = True
    connections: Annotated[PositiveInt, Meta(description="Maximum number of connections.")] = limits.WEB_CONNECTIONS
    connections_per_address: Annotated[
        PositiveInt,
        Meta(description="Connections of one address, or of one /64 of IPv6; those of proxies count in all only."),
    ] = limits.WEB_CONNECTIONS_PER_ADDRESS
    requests_per_second: Annotated[
        Rate, Meta(description="Requests of one address, five seconds' worth at once; further ones get 429.")
    ] = limits.WEB_REQUESTS_PER_SECOND
