"""Settings files to `Settings`: read, merge `conf.d`, check, and say what is wrong with file, line and a suggestion.

All problems of a file set are collected and raised as one `SettingsError`, one line each. Relative paths are relative
to the folder of the main file. `conf.d/*.toml` beside it is read in order of name: tables add up, `[[…]]` entries
append, and a key that is given twice is an error that names both places. Variables of the environment come last, over
what the files say: `msg_node.settings.environment`.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from msg_node.settings.addresses import address_problems, twin_problems
from msg_node.settings.admin import admin_problems
from msg_node.settings.block_lists import block_list_problems
from msg_node.settings.cluster import cluster_problems
from msg_node.settings.connectors import connector_problems
from msg_node.settings.environment import (
    Variable,
    settings_of,
    struct_of,
    type_of_settings,
)
from msg_node.settings.exchange import exchange_problems
from msg_node.settings.identity import identity_problems
from msg_node.settings.interworking import interworking_problems
from msg_node.settings.middleware import middleware_problems
from msg_node.settings.model import Settings
from msg_node.settings.mqtt import mqtt_problems
from msg_node.settings.peer_stubs import peer_stub_problems
from msg_node.settings.profiles import apply_profile
from msg_node.settings.proxies import proxy_problems
from msg_node.settings.publish import endpoint_problems
from msg_node.settings.push import push_problems
from msg_node.settings.rates import quota_problems, rate_problems
from msg_node.settings.registries import backend_problems
from msg_node.settings.retired import retired_hint
from msg_node.settings.sessions import session_problems
from msg_node.settings.storage import storage_problems
from msg_node.settings.tables.peers import PeerSettings
from msg_node.settings.traces import traces_problems
from protofly.address import valid_domain
from protofly.documents import is_fingerprint
from protofly.errors import PeerError, SettingsError
from protofly.plain_words import without_types
from protofly.signatures import KeyRecord, is_usable
from protofly.toml_lines import KeyPath, locate_keys

_ERROR_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_PATH_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?")


class Position(NamedTuple):
    """A line of a file, counted from 1."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class _Source:
    """The merged text of all files, and where each key stands; `file` is the first of them."""

    file: Path
    values: dict[str, Any] = field(default_factory=dict)
    positions: dict[KeyPath, Position | Variable] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def complain(self, path: KeyPath, text: str) -> None:
        """Note a problem with the key at `path`, or with the nearest one above it that has a place."""
        place = f"{self.file}: "
        for length in range(len(path), 0, -1):
            position = self.positions.get(path[:length])
            if position is not None:
                place = f"{position}: "
                break
        self.problems.append(f"{place}{_dotted(path)}: {text}" if path else f"{place}{text}")


def load_settings(path: Path, *, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a settings file and its `conf.d`, and the settings in the environment.

    Raises:
        SettingsError: Everything that is wrong, one line per problem.
    """
    source = _read_all(path, environment)
    if not source.problems:
        apply_profile(source.values)
        settings = _convert(source, path.parent.absolute())
        if settings is None:
            _explain_unknown_keys(source)
        else:
            _check_together(settings, source)
            if not source.problems:
                return settings
    raise SettingsError("\n".join(source.problems))


def data_dir_of(path: Path, *, environment: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """Read the data folder from a settings file, even if the rest is wrong; also returns that problem, or "".

    Who edits the settings of a running node still reaches it.

    Raises:
        SettingsError: The file says nothing that can be read about it.
    """
    try:
        return load_settings(path, environment=environment).node.data_dir, ""
    except SettingsError as exc:
        node = _read_all(path, environment).values.get("node")
        named = node.get("data_dir") if isinstance(node, dict) else None
        if not isinstance(named, str) or not named:
            raise
        return path.parent.absolute() / named, exc.detail


def places_of_settings(path: Path, *, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Find the place of each given setting: the line of a file, or the name of a variable. Defaults are left out.

    Raises:
        SettingsError: A file cannot be read, or what is given contradicts itself.
    """
    source = _read_all(path, environment)
    if source.problems:
        raise SettingsError("\n".join(source.problems))
    return {_dotted(place): str(position) for place, position in source.positions.items()}


def settings_as_json(settings: Settings) -> str:
    """The settings in force, defaults included, for operators."""
    encoded = msgspec.json.encode(settings, enc_hook=str)
    return msgspec.json.format(encoded, indent=2).decode()


def _read_all(path: Path, environment: Mapping[str, str]) -> _Source:
    source = _Source(path)
    for file in (path, *sorted((path.parent / "conf.d").glob("*.toml"))):
        _read(file, source)
    for place, value, variable, problem in settings_of(environment):
        source.positions[place] = variable
        if problem:
            source.complain(place, problem)
        else:
            _set(source, place, value)
    return source


def _set(source: _Source, place: tuple[str, ...], value: object) -> None:
    """Put a value where it belongs, over what files say."""
    table: object = source.values
    for key in place[:-1]:
        table = table.setdefault(key, {}) if isinstance(table, dict) else None
    if isinstance(table, dict):
        table[place[-1]] = value
    else:
        source.complain(place, f"{'.'.join(place[:-1])} is no table in the files")


def _read(file: Path, source: _Source) -> None:
    try:
        text = file.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except OSError as exc:
        source.problems.append(f"{file}: {exc.strerror}")
    except UnicodeDecodeError:
        source.problems.append(f"{file}: not UTF-8 text")
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        source.problems.append(f"{file}: {exc}")
    else:
        offsets: dict[KeyPath, int] = {}
        _merge(values, source.values, (), source, file, offsets)
        for keys, line in locate_keys(text).items():
            source.positions.setdefault(_shifted(keys, offsets), Position(file, line))


def _shifted(keys: KeyPath, offsets: dict[KeyPath, int]) -> KeyPath:
    """Entries of a later file come behind those of an earlier one."""
    shifted: list[str | int] = []
    for index, key in enumerate(keys):
        shifted.append(key + offsets.get(keys[:index], 0) if isinstance(key, int) else key)
    return tuple(shifted)


def _merge(
    values: dict[str, Any],
    into: dict[str, Any],
    path: KeyPath,
    source: _Source,
    file: Path,
    offsets: dict[KeyPath, int],
) -> None:
    for key, value in values.items():
        present = into.get(key)
        if key not in into:
            into[key] = value
        elif isinstance(value, dict) and isinstance(present, dict):
            _merge(value, present, (*path, key), source, file, offsets)
        elif isinstance(present, list) and _is_tables(value) and _is_tables(present):
            offsets[(*path, key)] = len(present)
            present.extend(value)
        else:
            source.complain((*path, key), f"given again in {file}")


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _explain_unknown_keys(source: _Source) -> None:
    """Replace the problem that stopped the conversion by all unknown keys with their hints, if there are any.

    Not done before a conversion: it refuses unknown keys as well, and what they could have been takes a start 45 ms.
    """
    first, source.problems = source.problems, []
    homes: dict[str, list[str]] = {}
    for section, member in _members(type_of_settings()):
        homes.setdefault(member, []).append(section)
    _compare(source.values, type_of_settings(), (), source, homes)
    source.problems = source.problems or first


def _members(info: inspect.Type, section: str = "") -> Iterator[tuple[str, str]]:
    struct = struct_of(info)
    if struct is not None:
        for member in struct.fields:
            yield section, member.encode_name
            inner = f"{section}.{member.encode_name}" if section else member.encode_name
            yield from _members(member.type, inner)


def _compare(value: object, info: inspect.Type, path: KeyPath, source: _Source, homes: dict[str, list[str]]) -> None:
    struct = struct_of(info)
    if struct is None:
        return
    if isinstance(value, list):
        for index, entry in enumerate(value):
            _compare(entry, info, (*path, index), source, homes)
    elif isinstance(value, dict):
        known = {member.encode_name: member.type for member in struct.fields}
        for key, inner in value.items():
            if key in known:
                _compare(inner, known[key], (*path, key), source, homes)
            else:
                hint = retired_hint((*path, key))
                source.complain((*path, key), hint or f"unknown setting{_suggestion(key, list(known), homes)}")


def _suggestion(key: str, known: list[str], homes: dict[str, list[str]]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"; did you mean `{close[0]}`?"
    if key in homes:
        return "; it belongs into " + " or ".join(f"[{home}]" if home else "the top level" for home in homes[key])
    close = difflib.get_close_matches(key, list(homes), n=1)
    if close:
        return f"; did you mean `{close[0]}` in [{homes[close[0]][0]}]?"
    return f"; known here: {', '.join(sorted(known))}"


def _convert(source: _Source, folder: Path) -> Settings | None:
    def resolve(kind: type, value: object) -> object:
        if kind is Path and isinstance(value, str) and value:
            return folder / value
        raise ValueError("Expected a path")

    try:
        return msgspec.convert(source.values, Settings, dec_hook=resolve)
    except msgspec.ValidationError as exc:
        text = str(exc)
        match = _ERROR_PATH.search(text)
        path: KeyPath = ()
        if match is not None:
            text = text[: match.start()]
            path = tuple(name or int(index) for name, index in _PATH_STEP.findall(match["path"]))
        source.complain(path, without_types(text))
        return None


def _check_together(settings: Settings, source: _Source) -> None:
    """Check fields against each other."""
    for path, domain in (
        (("node", "domain"), settings.node.domain),
        *((("node", "aliases"), alias) for alias in settings.node.aliases),
    ):
        _check_domain(path, domain, source)
    _check_tls(
        ("listen",), settings.listen.certificate, settings.listen.key, settings.listen.insecure_plaintext, source
    )
    for origin in settings.listen.origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            source.complain(("listen", "origins"), f"{origin!r} is not an origin: `https://host[:port]`, in lower case")
    if settings.site is not None:
        site = settings.site
        _check_tls(("site",), site.certificate, site.key, site.insecure_plaintext, source)
        if site.public_url and urlsplit(site.public_url).scheme not in {"https", "http"}:
            source.complain(("site", "public_url"), "not an https:// URL")
    if settings.admin is not None:
        admin = settings.admin
        _check_tls(("admin",), admin.certificate, admin.key, admin.insecure_plaintext, source)
    if settings.publish is not None:
        _check_publish(settings, source)
    for place, text in (
        *session_problems(settings),
        *admin_problems(settings),
        *traces_problems(settings),
        *address_problems(settings),
        *twin_problems(settings),
        *middleware_problems(settings),
        *proxy_problems(settings),
        *mqtt_problems(settings),
        *storage_problems(settings.storage),
        *cluster_problems(settings),
        *interworking_problems(settings),
        *peer_stub_problems(settings),
        *connector_problems(settings),
        *endpoint_problems(settings),
        *_problems_elsewhere(settings),
    ):
        source.complain(place, text)
    for server in settings.discovery.nameservers:
        _check_nameserver(server, source)
    seen: set[str] = set()
    for index, peer in enumerate(settings.peer):
        if peer.domain in seen:
            source.complain(("peer", index, "domain"), f"a second entry for {peer.domain}")
        seen.add(peer.domain)
        _check_peer(peer, ("peer", index), settings, source)


def _problems_elsewhere(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Check the servers that the settings name."""
    yield from backend_problems("registry", settings.registry)
    yield from backend_problems("qos", settings.qos)
    yield from backend_problems("catalogue.own", settings.catalogue.own)
    yield from backend_problems("global_registry", settings.global_registry)
    yield from backend_problems("alarms.webhook", settings.alarms.webhook)
    yield from block_list_problems(settings.block_list, settings.policy.lists_agree)
    if not all(is_usable(KeyRecord(alg="ed25519", pub=pub)) for pub in settings.policy.keys):
        yield ("policy", "keys"), "a key is malformed or weak"
    yield from exchange_problems(settings.exchange)
    if settings.exchange is not None and settings.site is None:
        yield ("exchange",), "files are handed in at the site: add a `[site]`"
    yield from push_problems(settings.push)
    yield from identity_problems(settings.identity)


def _check_domain(path: KeyPath, domain: str, source: _Source) -> None:
    try:
        valid_domain(domain)
    except PeerError as exc:
        source.complain(path, f"{domain!r} is not a domain name: {exc.detail}")


def _check_tls(
    path: KeyPath,
    certificate: Path | None,
    key: Path | None,
    is_plaintext: bool,
    source: _Source,
) -> None:
    if (certificate is None) != (key is None):
        source.complain(path, "`certificate` and `key` come together")
    elif certificate is None and not is_plaintext:
        source.complain(path, "needs `certificate` and `key`, or `insecure_plaintext = true` in a laboratory")
    elif certificate is not None and is_plaintext:
        source.complain(path, "`insecure_plaintext` contradicts `certificate`")


def _check_publish(settings: Settings, source: _Source) -> None:
    assert settings.publish is not None
    if settings.site is None:
        source.complain(("publish",), "nothing can be published without a [site]")
    parts = urlsplit(settings.publish.endpoint_url)
    is_plaintext = settings.listen.insecure_plaintext
    if parts.scheme not in ({"ws", "wss"} if is_plaintext else {"wss"}) or not parts.hostname:
        source.complain(("publish", "endpoint_url"), "not a wss:// URL")


def _check_nameserver(server: str, source: _Source) -> None:
    host, _, port = server.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        if not 1 <= int(port) <= 65_535:
            raise ValueError
    except ValueError:
        source.complain(("discovery", "nameservers"), f"{server!r} is not `address:port`")


def _check_peer(peer: PeerSettings, path: KeyPath, settings: Settings, source: _Source) -> None:
    is_wildcard = peer.domain.startswith("*.")
    _check_domain((*path, "domain"), peer.domain.removeprefix("*."), source)
    if peer.domain in settings.own_domains:
        source.complain((*path, "domain"), f"{peer.domain} is our own domain")
    if is_wildcard and peer.allow_addresses:
        source.complain((*path, "allow_addresses"), "only for a domain that is named in full")
    if peer.trust == "pinned" and (is_wildcard or not peer.fingerprint):
        source.complain((*path, "trust"), "`pinned` needs one domain and its `fingerprint`")
    if peer.fingerprint and not is_fingerprint(peer.fingerprint):
        source.complain((*path, "fingerprint"), "43 characters of base64url, as `trapezoid keys fingerprint` prints it")
    for text in peer.allow_addresses:
        try:
            ipaddress.ip_network(text)
        except ValueError as exc:
            source.complain((*path, "allow_addresses"), str(exc))
    for place, text in (*rate_problems(peer.rate, (*path, "rate")), *quota_problems(peer.quota, (*path, "quota"))):
        source.complain(place, text)
    _check_aliases(peer, (*path, "aliases"), settings, source)
    if peer.connect and not peer.well_known_url:
        source.complain((*path, "connect"), "goes with `well_known_url`")


def _check_aliases(peer: PeerSettings, path: KeyPath, settings: Settings, source: _Source) -> None:
    """An alias is one name, of one peer, that nothing else is said about."""
    if peer.aliases and peer.domain.startswith("*."):
        source.complain(path, "only for a domain that is named in full")
    others = [name for one in settings.peer if one is not peer for name in one.aliases]
    for name in peer.aliases:
        _check_domain(path, name, source)
        if name in settings.own_domains:
            source.complain(path, f"{name} is our own domain")
        if name in {one.domain for one in settings.peer} | {one.domain for one in settings.interworking}:
            source.complain(path, f"{name} has an entry of its own, so it is nobody's alias")
        if name in others:
            source.complain(path, f"{name} is listed for another peer as well")
        if name in settings.policy.deny:
            source.complain(path, f"policy.deny bars {name}")


def _dotted(path: KeyPath) -> str:
    text = ""
    for key in path:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".")
