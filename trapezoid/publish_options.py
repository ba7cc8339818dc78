"""What one run of `publish` works with: what was asked for, and for the rest what is published already.

The published documents are the memory: an option that is not repeated stays as they say, so that a later run takes
nothing away by leaving something out. `reset` names options that go back to their defaults.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from msg_node.site.publication import WELL_KNOWN, Publication, PublishedStub, SiteFolder
from msg_node.storage.file_checks import read_file
from protofly.documents import Manifest, decode_envelope, decode_manifest, decode_root
from protofly.errors import SettingsError
from sandbox.core.module_check import inspect_module
from stubkit.keys import KeyRing

LINK_STUB: Final = Path("stubs") / "trapezoid_link" / "link.wasm"
OPTIONS: Final = {
    "url": "url",
    "description": "description",
    "alias": "aliases",
    "endpoint": "endpoints",
    "range": "ranges",
    "auth": "needs_auth",
    "module": "module",
    "threshold": "threshold",
}
"""Options that are remembered, as the command line and `--reset` name them, and as a request does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """What to publish. None stands for what is published already, or else the default.

    `url` is how others reach the site, `selector` the name under which `live` lists the stub.
    """

    domain: str
    keys: KeyRing
    site: Path
    now: float
    selector: str = "default"
    module: Path | None = None
    url: str | None = None
    description: str | None = None
    aliases: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    ranges: tuple[str, ...] | None = None
    """Legacy addresses of an interworking stub, such as `sip://legacy.example`."""
    needs_auth: bool | None = None
    """Whether the stub's protocol proves both nodes; it may not say `live` before. Interworking stubs never need to."""
    threshold: int | None = None
    serial: int = 0
    """0 = one more than published."""
    revoke: tuple[str, ...] = ()
    """SHA-256 of modules to take back."""
    reset: frozenset[str] = frozenset()
    """Names of options that go back to their defaults; `all` are those that are not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """All options of one run; the names are those of `PublishRequest`."""

    module: Path
    url: str
    description: str
    aliases: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ("mn",)
    ranges: tuple[str, ...] = ()
    needs_auth: bool = True
    threshold: int = 1
    kept: tuple[str, ...] = ()
    """Options that were not given and are no defaults: the documents that were published before say them."""

    def facts(self) -> dict[str, object]:
        """For people and programs, as the command line names them."""
        return {name: getattr(self, attribute) for name, attribute in OPTIONS.items()}


def default_module() -> Path:
    """Our own link stub: in a checkout, or where an installation puts its data. Raises SettingsError."""
    checkout = Path(__file__).resolve().parent.parent / "examples" / LINK_STUB
    installed = Path(sys.prefix) / "share" / "trapezoid" / LINK_STUB
    for path in (checkout, installed):
        if path.is_file():
            return path
    raise SettingsError("the link stub is not installed here; name a module")


def complete(request: PublishRequest, index: Publication | None) -> PublishOptions:
    """The options of a run over a site folder with this index.

    Raises:
        SettingsError: An option to reset does not exist or is given as well, or a file cannot be read.
        PeerError: A published document is malformed.
    """
    given = {name: value for name in OPTIONS.values() if (value := getattr(request, name)) is not None}
    for name in sorted(request.reset - {"all"}):
        if name not in OPTIONS:
            raise SettingsError(f"--reset {name}: there are {', '.join(OPTIONS)}, all")
        if OPTIONS[name] in given:
            raise SettingsError(f"--reset {name} and --{name} contradict each other")
    defaults = PublishOptions(
        module=default_module(),
        url=f"https://{request.domain}",
        description=f"connects a messaging node to {request.domain}",
    )
    reset = set(OPTIONS.values()) if "all" in request.reset else {OPTIONS[name] for name in request.reset}
    published = {name: value for name, value in _published(request, index).items() if name not in reset}
    chosen = {**published, **given}
    kept = [option for option, name in OPTIONS.items() if name not in given and name in published]
    options = replace(defaults, **chosen)
    return replace(
        options,
        url=(options.url or defaults.url).rstrip("/"),
        description=options.description or defaults.description,
        needs_auth=options.needs_auth and not options.ranges,  # a legacy has no proof of ours to ask for
        kept=tuple(name for name in kept if getattr(options, OPTIONS[name]) != getattr(defaults, OPTIONS[name])),
    )


def _published(request: PublishRequest, index: Publication | None) -> dict[str, Any]:
    """What the documents of the site say about the options, as far as there are any."""
    if index is None:
        return {}
    folder, domain = SiteFolder(request.site), request.domain
    root = decode_root(decode_envelope(read_file(folder.root(index.root_version))).payload, domain=domain)
    found: dict[str, Any] = {"aliases": tuple(root.aliases), "threshold": root.roles.root.threshold}
    same = index.stubs.get(request.selector)
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
    }
    descriptor = folder.read_object(folder.descriptor(stub.reference.name)) or {}
    if "description" in descriptor:
        found["description"] = msgspec.json.decode(descriptor["description"], type=str)
    if not _is_built_in(same):
        found["module"] = folder.module(manifest.module.sha256)
    return found


def _is_built_in(stub: PublishedStub) -> bool:
    """Whether a stub is the one of this program, and so goes on with the program's versions."""
    if stub.is_built_in is not None:
        return stub.is_built_in
    return stub.reference.name == inspect_module(read_file(default_module())).name


def _manifest(folder: SiteFolder, name: str, domain: str) -> Manifest:
    return decode_manifest(decode_envelope(read_file(folder.manifest(name))).payload, domain=domain)
