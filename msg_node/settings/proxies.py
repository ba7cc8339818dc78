"""Settings of proxies in front of a listener, and checks of them."""

from __future__ import annotations

from collections.abc import Iterator

from msg_node.settings.model import Settings
from msg_node.settings.problem import Problem
from protofly.errors import SettingsError
from wire.core.network import parse_networks


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
