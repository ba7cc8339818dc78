"""Settings of the place where state is kept: `[storage]`.

Source: design, section 6.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from msg_node.settings.model import Settings
from msg_node.settings.tables.storage import StorageSettings
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.file_checks import FileError, read_private
from msg_node.storage.sealing import StateKeys, read_state_keys

DEFAULT_PORT = 5432
SCHEMES = frozenset({"postgresql", "postgres"})


def storage_problems(storage: StorageSettings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check the fields of `[storage]` against each other."""
    if not storage.engine:
        given = [name for name in ("password_file", "ca_file", "certificate", "key") if getattr(storage, name)]
        if given or storage.tls != "verify-full":
            yield ("storage", (given or ["tls"])[0]), "goes with `engine`"
        return
    if storage.key_file is not None:
        yield ("storage", "key_file"), "encrypts the state file; an engine encrypts its own (docs/cluster.md)"
    yield from _engine_problems(storage.engine)
    if (storage.certificate is None) != (storage.key is None):
        yield ("storage",), "`certificate` and `key` come together"
    if storage.tls == "off" and (storage.ca_file is not None or storage.certificate is not None):
        yield ("storage", "tls"), '"off" contradicts `ca_file` and `certificate`'
    if storage.tls == "verify-ca" and storage.ca_file is None:
        yield ("storage", "tls"), '"verify-ca" needs `ca_file`: any public authority would do otherwise'


def _engine_problems(engine: str) -> Iterator[tuple[tuple[str | int, ...], str]]:
    place = ("storage", "engine")
    try:
        parts = urlsplit(engine)
        hosts = _hosts(engine)
    except ValueError:
        yield place, "not `postgresql://user@host[:port]/database`"
        return
    if parts.scheme not in SCHEMES or parts.fragment:
        yield place, "not `postgresql://user@host[:port]/database`"
    elif parts.password is not None:
        yield place, "a password here can be read by many; use `password_file`, or PGPASSWORD in the environment"
    elif not unquote(engine).isprintable():
        yield place, "has characters that no name can have"
    elif not parts.username or len(parts.path) < 2:
        yield place, "needs a user and a database: `postgresql://user@host/database`"
    elif not hosts:
        yield place, "needs a host, or `?host=/folder` of a Unix socket; nothing else may stand behind `?`"


def _hosts(engine: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of a URL; none when it names none, or has a query that is not ours."""
    parts = urlsplit(engine)
    named = parts.netloc.rpartition("@")[2]
    query = parse_qsl(parts.query, keep_blank_values=True)
    if query:
        is_socket = [name for name, _ in query] == ["host"] and query[0][1].startswith("/") and not named
        return ((query[0][1], DEFAULT_PORT),) if is_socket else ()
    return tuple(_host(one) for one in named.split(",")) if named else ()


def _host(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or DEFAULT_PORT


def engine_options(settings: Settings) -> EngineOptions | None:
    """Build the options for connecting to the engine; None for a node that keeps its state itself.

    Raises:
        SettingsError: The file with the password cannot be read, or is open to others.
    """
    storage = settings.storage
    if not storage.engine:
        return None
    parts = urlsplit(storage.engine)
    password = None if storage.password_file is None else _password(storage.password_file)
    return EngineOptions(
        hosts=_hosts(storage.engine),
        user=unquote(parts.username or ""),
        database=unquote(parts.path[1:]),
        domain=settings.node.domain,
        application=f"trapezoid {settings.node_id}",
        password=password,
        tls=storage.tls,
        ca_file=storage.ca_file,
        certificate=storage.certificate,
        key=storage.key,
    )


def state_keys(settings: Settings) -> StateKeys | None:
    """The keys that encrypt the state file; None for plain text.

    Raises:
        FileError: The file with the keys cannot be used.
    """
    path = settings.storage.key_file
    return None if path is None else read_state_keys(path)


def _password(path: Path) -> str:
    text = read_private(path)
    try:
        password = text.decode().strip()
    except UnicodeDecodeError as exc:
        raise FileError("password-malformed", path, "is not UTF-8 text") from exc
    if not password or not password.isprintable():
        raise FileError("password-malformed", path, "holds no password", "one line of text, nothing else")
    return password


def is_beyond_machine(storage: StorageSettings) -> bool:
    """True if the engine is on another machine than the node, as far as its name says."""
    return any(not _is_local(host) for host, _ in _hosts(storage.engine)) if storage.engine else False


def _is_local(host: str) -> bool:
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
