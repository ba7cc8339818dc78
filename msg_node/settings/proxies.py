"""Settings of proxies in front of a listener, and checks of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from protofly.errors import SettingsError
from wire.core.network import parse_networks

if TYPE_CHECKING:
    from msg_node.settings.model import Settings

ClientAddressFrom = Literal["x-forwarded-for", "forwarded", "proxy-protocol"]
Problem = tuple[tuple[str | int, ...], str]
"""Where in the settings, and what is wrong."""


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


def proxy_problems(settings: Settings) -> Iterator[Problem]:
    """Check the proxies of each listener."""
    for name, table in (("listen", settings.listen), ("site", settings.site)):
        if table is None:
            continue
        try:
            networks = parse_networks(table.trusted_proxies)
        except SettingsError as exc:
            yield (name, "trusted_proxies"), exc.detail
            continue
        if any(network.prefixlen == 0 for network in networks):
            yield (name, "trusted_proxies"), "everybody would be believed: name the addresses of your proxies"
        if table.client_address_from != "x-forwarded-for" and not networks:
            yield (name, "client_address_from"), "goes with `trusted_proxies`"
    listen = settings.listen
    if listen.proxy_certificates and (listen.certificate is not None or not listen.trusted_proxies):
        text = "only where TLS ends at `trusted_proxies`: with `insecure_plaintext` and without `certificate`"
        yield ("listen", "proxy_certificates"), text
