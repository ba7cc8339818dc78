"""How runtimes and devices in a network find the node: records of DNS-SD, as text for those who announce them. Pure.

A network that searches our domain for services finds the node by unicast records of the zone. A network without a zone
finds it by multicast: a responder that the system has already (Avahi, systemd-resolved) announces it from a file. The
node announces nothing itself: port 5353 belongs to that responder.
Source: RFC 6763, sections 4 to 7 and 11; feature row HV-55.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from msg_node.kernel.dialects import RUNTIME_PATH
from msg_node.settings.model import Settings
from protofly.address import valid_domain
from protofly.errors import PeerError, SettingsError

SERVICE_TYPE: Final = "_trapezoid._tcp"
TTL_SECONDS: Final = 3600
Form = Literal["zone", "avahi", "systemd"]
_INSTANCE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,61}[A-Za-z0-9])?")


class Service(NamedTuple):
    """The node as runtimes are to find it.

    Attributes:
        domain: That it serves.
        instance: Its name in lists that people see.
        host: Where it listens; its certificate is for the domain or for this name.
        port: There.
        texts: What a runtime needs besides, in order.
    """

    domain: str
    instance: str
    host: str
    port: int
    texts: Mapping[str, str]


def service_of(settings: Settings, *, instance: str = "", host: str = "", port: int = 0) -> Service:
    """The service that these settings offer; what is not given is read from `publish.endpoint_url`, else `listen`.

    Raises:
        SettingsError: A name that cannot be one, or a port that nobody can know.
    """
    domain, listen = settings.node.domain, settings.listen
    endpoint = urlsplit(settings.publish.endpoint_url if settings.publish is not None else "")
    try:
        found_port = endpoint.port or (443 if endpoint.scheme == "wss" else 0)
        found_host = host or endpoint.hostname or domain
        valid_domain(found_host)
    except (ValueError, PeerError) as exc:
        raise SettingsError(f"{host or endpoint.netloc}: no name of a host; give one with --host") from exc
    instance = instance or domain
    if not _INSTANCE.fullmatch(instance):
        raise SettingsError("--name has 1 to 63 letters, digits, spaces, and `.`, `_`, `-` inside")
    chosen_port = port or found_port or listen.port
    if not 0 < chosen_port < 65_536:
        raise SettingsError("listen.port is 0, so the system chooses one; say with --port where runtimes connect")
    is_tls = endpoint.scheme == "wss" or listen.certificate is not None
    texts = {"txtvers": "1", "domain": domain, "path": RUNTIME_PATH, "tls": "1" if is_tls else "0"}
    if settings.https.serve:
        texts["messages"] = "/messages"
    return Service(domain, instance, found_host, chosen_port, texts)


def text_of(service: Service, form: Form) -> str:
    """The announcement of a service, in the form that its announcer reads."""
    return {"zone": _zone, "avahi": _avahi, "systemd": _systemd}[form](service)


def _pairs(service: Service) -> list[str]:
    return [f"{name}={value}" for name, value in service.texts.items()]


def _zone(service: Service) -> str:
    """Records for the file of a zone, with all names in full."""
    domain = f"{service.domain}."
    type_ = f"{SERVICE_TYPE}.{domain}"
    label = re.sub(r"([^A-Za-z0-9_-])", lambda found: f"\\{ord(found[1]):03d}", service.instance)
    name = f"{label}.{type_}"
    texts = " ".join(f'"{pair}"' for pair in _pairs(service))
    rows = [
        (f"b._dns-sd._udp.{domain}", "PTR", domain),
        (f"lb._dns-sd._udp.{domain}", "PTR", domain),
        (f"_services._dns-sd._udp.{domain}", "PTR", type_),
        (type_, "PTR", name),
        (name, "SRV", f"0 0 {service.port} {service.host}."),
        (name, "TXT", texts),
    ]
    return "".join(f"{owner} {TTL_SECONDS} IN {kind} {data}\n" for owner, kind, data in rows)


def _avahi(service: Service) -> str:
    """A file for `/etc/avahi/services`."""
    texts = "".join(f"    <txt-record>{escape(pair)}</txt-record>\n" for pair in _pairs(service))
    return (
        '<?xml version="1.0" standalone="no"?>\n'
        '<!DOCTYPE service-group SYSTEM "avahi-service.dtd">\n'
        "<service-group>\n"
        f"  <name>{escape(service.instance)}</name>\n"
        "  <service>\n"
        f"    <type>{SERVICE_TYPE}</type>\n"
        f"    <port>{service.port}</port>\n"
        f"{texts}"
        "  </service>\n"
        "</service-group>\n"
    )


def _systemd(service: Service) -> str:
    """A file for `/etc/systemd/dnssd`."""
    return (
        "[Service]\n"
        f"Name={service.instance}\n"
        f"Type={SERVICE_TYPE}\n"
        f"Port={service.port}\n"
        f"TxtText={' '.join(_pairs(service))}\n"
    )
