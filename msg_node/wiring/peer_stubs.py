"""Which stubs the settings choose for single domains, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from federation.stubs.catalogue_scripts import CatalogueScript
from federation.stubs.chosen_stubs import StubChoice, read_choice
from federation.stubs.shipped_files import shipped_file
from msg_node.settings.model import Settings
from msg_node.settings.peer_stubs import plain_values, script_place
from msg_node.settings.tables.peers import PeerSettings
from msg_node.site.publication import SiteFolder
from protofly.errors import PeerError, SettingsError


def stub_choices(settings: Settings) -> list[StubChoice]:
    """Return what the entries of single domains, and of connectors, say about their stubs.

    Raises:
        SettingsError: A stub is in no file and in no catalogue.
    """
    peers = [stub_choice(settings, peer) for peer in settings.peer if not peer.domain.startswith("*.")]
    connectors = [
        StubChoice(
            domain=f"{one.service}.{settings.node.domain}",
            kind="connector",
            file=one.stub,
            endpoint=one.endpoint,
            configuration=plain_values(one.configuration),
        )
        for one in settings.connector
    ]
    return peers + connectors


def stub_choice(settings: Settings, peer: PeerSettings) -> StubChoice:
    """Return the choice of one entry for the stub of its domain.

    Raises:
        SettingsError: The stub is in no file and in no catalogue.
    """
    return StubChoice(
        domain=peer.domain,
        file=None if peer.stub is None else stub_file(settings, peer.stub),
        script=_script(peer),
        endpoint=peer.endpoint,
        configuration=plain_values(peer.configuration),
        grant=peer.grant.grant(),
    )


def check_modules(choices: Iterable[StubChoice]) -> None:
    """Read the modules that the operator chose. Blocks. Raises SettingsError for one that cannot run."""
    for one in choices:
        if one.file is not None:
            try:
                read_choice(one)
            except PeerError as exc:
                raise SettingsError(f"the stub of {one.domain}: {exc}") from exc


def _script(peer: PeerSettings) -> CatalogueScript | None:
    place = script_place(peer.unsigned_stub)
    return None if place is None else CatalogueScript(authority=place[0], name=place[1], sha256=peer.sha256)


def stub_file(settings: Settings, stub: Path) -> Path:
    """The module that an entry names: a file, a stub of our own catalogue, or one that comes with the program.

    Raises:
        SettingsError: There is none of that name.
    """
    if stub.suffix == ".wasm":
        return stub
    if settings.publish is not None:
        folder = SiteFolder(settings.publish.site_dir)
        try:
            stubs = folder.load().stubs
        except SettingsError:
            stubs = {}
        for selector, one in stubs.items():
            if stub.name in {selector, one.reference.name}:
                return folder.module(one.module_sha256)
    shipped = shipped_file("stubs", stub.name, f"{stub.name}.wasm")
    if shipped.is_file():
        return shipped
    raise SettingsError(
        f"{stub.name}: no `.wasm` file, and neither our catalogue nor this program has a stub of that name; name a file"
    )
