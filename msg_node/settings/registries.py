"""Settings of services elsewhere that the node asks: `[registry]`, `[qos]`, `[catalogue]`.

Source: message specification, sections 10 and 14; data formats, sections 2 and 5.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from msg_node.settings.problem import Problem
from msg_node.settings.tables.registries import BackendSettings
from msg_node.storage.tls_files import believe, show


def backend_problems(table: str, backend: BackendSettings | None) -> Iterator[Problem]:
    """Check the fields of a back-end against each other; `table` is its name as it is written, with dots."""
    if backend is None:
        return
    yield from problems_at(tuple(table.split(".")), backend)


def problems_at(path: tuple[str | int, ...], backend: BackendSettings) -> Iterator[Problem]:
    """Check the fields of a back-end against each other; `path` is where it is in the settings."""
    for key, text in _problems(backend):
        yield (*path, key), text


def _problems(backend: BackendSettings) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(backend.url)
        is_url = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or parts.scheme not in {"https", "http"} or "@" in parts.netloc or parts.query or parts.fragment:
        yield "url", f"{backend.url!r} is not https://host[:port][/path]"
    elif parts.scheme == "http" and not backend.insecure_plaintext:
        yield "url", "needs https://, or `insecure_plaintext = true` in a laboratory"
    elif parts.scheme == "https" and backend.insecure_plaintext:
        yield "insecure_plaintext", "contradicts the https:// of `url`"
    if (backend.certificate is None) != (backend.key is None):
        yield "certificate", "`certificate` and `key` come together"


def backend_context(table: str, backend: BackendSettings) -> ssl.SSLContext:
    """TLS towards a server of the settings: its certificate is checked, ours is shown.

    Raises:
        SettingsError: A file cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    if backend.ca_file is not None:
        believe(context, backend.ca_file, f"{table}.ca_file")
    if backend.certificate is not None:
        show(context, backend.certificate, backend.key, table)
    return context
