"""The options of one run of `publish`: those given, completed with those that are published already.

The published documents remember the options: one that is not given again keeps its value, so that a later run removes
nothing by omission. `reset` names options that return to their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from federation.stubs.shipped_files import shipped_file
from msg_node.site.publication import WELL_KNOWN, Publication, PublishedStub, SiteFolder
from msg_node.storage.file_checks import read_file
from protofly.address import valid_domain
from protofly.documents import (
    REVOKED_MODULES,
    EndpointName,
    Manifest,
    Needs,
    decode_envelope,
    decode_manifest,
    decode_root,
)
from protofly.errors import SettingsError
from sandbox.core.module_check import inspect_module
from stubkit.keys import KeyRing
from trapezoid.publish_request import PublishRequest

OPTIONS: Final = {
    "url": "url",
    "description": "description",
    "alias": "aliases",
    "endpoint": "endpoints",
    "range": "ranges",
    "auth": "needs_auth",
    "memory-kib": "memory_kib",
    "call-ms": "call_ms",
    "for-domain": "for_domains",
    "module": "module",
    "threshold": "threshold",
}
"""Options that are remembered: their names on the command line and in `--reset`, and in a request."""
_SELECTOR: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSite:
    """The site folder to publish into, its domain, the keys that sign, and the time of signing."""

    domain: str
    keys: KeyRing
    path: Path
    now: float
    """Seconds since the Unix epoch."""

    @property
    def folder(self) -> SiteFolder:
        """The files of the site."""
        return SiteFolder(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """The options in force for one run; the names are those of `PublishRequest`."""

    module: Path
    url: str
    description: str
    aliases: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ("mn",)
    ranges: tuple[str, ...] = ()
    needs_auth: bool = True
    memory_kib: int = 0
    call_ms: int = 0
    for_domains: tuple[str, ...] = ("*",)
    threshold: int = 1
    kept: tuple[str, ...] = ()
    """Names of options that were not given and differ from the defaults: taken from the published documents."""

    @property
    def needs(self) -> Needs:
        """The permissions that the manifest asks hosts for."""
        return Needs(memory_bytes=self.memory_kib << 10, call_ms=self.call_ms)

    def facts(self) -> dict[str, object]:
        """Options and values, named as on the command line."""
        return {name: getattr(self, attribute) for name, attribute in OPTIONS.items()}


def default_module() -> Path:
    """Path of the built-in link stub, in a checkout or an installation. Raises SettingsError."""
    path = shipped_file("stubs", "trapezoid_link", "link.wasm")
    if path.is_file():
        return path
    raise SettingsError("the built-in link stub is not installed; name a module")


def complete(site: SigningSite, request: PublishRequest, index: Publication | None) -> PublishOptions:
    """Complete the options given with those published in this index, and with the defaults.

    Raises:
        SettingsError: An option to reset does not exist or is given as well, or a file cannot be read.
        PeerError: A published document is malformed, or a domain that may run the stub is no domain name.
    """
    given: dict[str, Any] = {}
    for name in OPTIONS.values():
        value = getattr(request, name)
        if value is not None and value != []:
            given[name] = tuple(value) if isinstance(value, list) else value
    named = frozenset(request.reset or ())
    for name in sorted(named - {"all"}):
        if name not in OPTIONS:
            raise SettingsError(f"--reset {name}: expected one of {', '.join(OPTIONS)}, all")
        if OPTIONS[name] in given:
            raise SettingsError(f"--reset {name} and --{name} contradict each other")
    for name in given.get("endpoints", ()):
        _check_endpoint_name(name)
    for name in given.get("for_domains", ()):
        if name != "*":
            valid_domain(name)
    defaults = PublishOptions(
        module=default_module(),
        url=f"https://{site.domain}",
        description=f"connects a messaging node to {site.domain}",
    )
    reset = set(OPTIONS.values()) if "all" in named else {OPTIONS[name] for name in named}
    published = {name: value for name, value in _published(site, request.selector, index).items() if name not in reset}
    chosen = {**published, **given}
    kept = [option for option, name in OPTIONS.items() if name not in given and name in published]
    options = replace(defaults, **chosen)
    return replace(
        options,
        url=(options.url or defaults.url).rstrip("/"),
        description=options.description or defaults.description,
        needs_auth=options.needs_auth and not options.ranges,  # a legacy service cannot prove a node
        kept=tuple(name for name in kept if getattr(options, OPTIONS[name]) != getattr(defaults, OPTIONS[name])),
    )


def checked_selector(selector: str) -> str:
    """Raise SettingsError if this cannot be the name of a stub in the live document."""
    if not _SELECTOR.fullmatch(selector):
        raise SettingsError(
            f"--selector {selector}: expected at most 64 letters, digits, `-`, `_` and `.`; nodes try `default`, "
            "and names that begin with `default-`"
        )
    return selector


def revoked_modules(before: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The digests of all revoked modules, with those that are asked for. Raises SettingsError if one is no digest."""
    for digest in asked:
        if not _SHA256.fullmatch(digest):
            raise SettingsError(
                f"--revoke {digest}: expected the SHA-256 of a module, 64 hexadecimal digits; "
                "`trapezoid publish list --site DIR` shows that of each published one"
            )
    modules = sorted({*before, *(digest.lower() for digest in asked)})
    if len(modules) > REVOKED_MODULES:
        raise SettingsError(f"{len(modules)} revoked modules; a live document holds {REVOKED_MODULES}")
    return modules


def _check_endpoint_name(name: str) -> None:
    """Raise SettingsError if this cannot be the name of an endpoint: its address, for example."""
    try:
        msgspec.convert(name, EndpointName)
    except msgspec.ValidationError:
        raise SettingsError(
            f"--endpoint {name}: expected the name of an endpoint, for example mn; "
            "its address is `endpoint_url` under [publish] of the node's settings"
        ) from None


def _published(site: SigningSite, selector: str, index: Publication | None) -> dict[str, Any]:
    """The options that the documents of the site state; empty without an index."""
    if index is None:
        return {}
    folder, domain = site.folder, site.domain
    root = decode_root(decode_envelope(read_file(folder.root(index.root_version))).payload, domain=domain)
    found: dict[str, Any] = {"aliases": tuple(root.aliases), "threshold": root.roles.root.threshold}
    same = index.stubs.get(selector)
    stub = same or next(iter(index.stubs.values()), None)
    if stub is None:
        return found
    manifest = _manifest(folder, stub.reference.name, domain)
    found["url"] = manifest.module.urls[0].partition(WELL_KNOWN)[0]  # every stub of the site has it
    if same is None:
        return found
    found |= {
        "endpoints": tuple(manifest.permissions.connect),
        "ranges": tuple(manifest.permissions.ranges),
        "needs_auth": manifest.permissions.auth or bool(manifest.permissions.ranges),
        "memory_kib": manifest.needs.memory_bytes >> 10,
        "call_ms": manifest.needs.call_ms,
        "for_domains": tuple(manifest.for_domains),
    }
    descriptor = folder.read_object(folder.descriptor(stub.reference.name)) or {}
    if "description" in descriptor:
        found["description"] = msgspec.json.decode(descriptor["description"], type=str)
    if not _is_built_in(same):
        found["module"] = folder.module(manifest.module.sha256)
    return found


def _is_built_in(stub: PublishedStub) -> bool:
    """Return True if a stub is the built-in one, which is replaced when the program is."""
    if stub.is_built_in is not None:
        return stub.is_built_in
    return stub.reference.name == inspect_module(read_file(default_module())).name


def _manifest(folder: SiteFolder, name: str, domain: str) -> Manifest:
    return decode_manifest(decode_envelope(read_file(folder.manifest(name))).payload, domain=domain)
