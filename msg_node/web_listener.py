"""Where an HTTP site of ours listens, and how Hypercorn serves it there: the same for every site of a domain."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from hypercorn.config import Config

from protofly.errors import SettingsError

REQUEST_BYTES = 64 << 10
"""Of a request's head."""
REQUEST_SECONDS = 10
GRACEFUL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WebListener:
    """A bound address and what Hypercorn is to do with it. `url` ends without a slash."""

    url: str
    config: Config


def listen(
    host: str,
    port: int,
    *,
    certificate: Path | None,
    key: Path | None,
    request_seconds: int = REQUEST_SECONDS,
    named: str = "",
) -> WebListener:
    """Bind an address for a site.

    Args:
        host: Address to bind.
        port: 0 lets the system choose one.
        certificate: PEM file with the certificate chain; None serves without TLS.
        key: PEM file with its private key; None: it stands in the certificate's file.
        request_seconds: How long a request may take to come.
        named: The part of the settings that these are from, for the message of an error.

    Raises:
        SettingsError: Address or certificate cannot be used.
    """
    part = f"[{named}] " if named else ""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as exc:
        listener.close()
        raise SettingsError(f"{part}{host} port {port}: {exc.strerror}") from exc
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = GRACEFUL_SECONDS
    config.read_timeout = request_seconds
    config.h11_max_incomplete_size = REQUEST_BYTES
    if certificate is not None:
        config.certfile, config.keyfile = str(certificate), str(key or certificate)
        try:
            config.create_ssl_context()
        except (OSError, ssl.SSLError) as exc:
            listener.close()
            raise SettingsError(f"{part}{certificate}: {exc.strerror or exc}") from exc
    bound_host, bound_port = listener.getsockname()[:2]
    config.bind = [f"fd://{listener.detach()}"]
    shown = f"[{bound_host}]" if ":" in bound_host else bound_host
    return WebListener(f"{'http' if certificate is None else 'https'}://{shown}:{bound_port}", config)
