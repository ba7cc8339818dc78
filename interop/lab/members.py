"""Who takes part in a scene: the nodes of each domain, and the lines on which they reach each other."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from interop.domain_files import HOST, NodePlace, PeerEntry
from interop.domain_folders import DomainFolders
from interop.foreign.link_speaker import LinkSpeaker
from interop.foreign.nodejs import NodejsNode
from interop.foreign.nomatrix import NomatrixNode
from interop.foreign.simulator import ForeignNode
from interop.foreign.vertx import VertxNode
from interop.free_ports import free_ports
from interop.lab.core.scene import CLOCK_FAULTS, DOCUMENT_FAULTS, SIMULATED, Domain, Fault, LabScene
from interop.lab.line_proxy import Line
from interop.lab.link_peer import LinkPeer
from interop.lab.scene_nodes import OtherNode, SceneNode, filled, names_for
from interop.lab.shifted_clock import set_clock
from interop.name_server import NameServer
from protofly.signatures import SigningKey

_LINE_NETWORK: Final = "127.42"
_SIMULATORS: Final[dict[str, Callable[[str], ForeignNode]]] = {
    "vertx": VertxNode,
    "nodejs": NodejsNode,
    "nomatrix": NomatrixNode,
}
_SIMULATED_PATHS: Final = {"vertx": "/ws", "nodejs": "/", "nomatrix": "/stub/connect"}


class Members:
    """Everybody in a scene, not yet running.

    Attributes:
        nodes: The nodes of each domain that are processes; of hostile domains and link speakers, the one that serves
            their documents.
        foreign: Nodes in this process: simulators and link speakers.
        link_ports: Where hostile domains and link speakers have their link endpoint.
        impostor_ports: Where flawed documents of a domain say that it has its endpoint.
        names: The name server that each domain asks.
        lines: The way from one domain to another.
        buses: For each domain with several nodes, the ways on which the others reach each of them.
    """

    def __init__(self, scene: LabScene, folders: DomainFolders, serve: Sequence[str]) -> None:
        """Raises SettingsError if there are no ports, or a file of the program is missing."""
        self.scene = scene
        self.folders = folders
        self._serve = serve
        speaking = [one.name for one in scene.domain if one.kind in {"link", "hostile"}]
        simulated = scene.of_kinds(*SIMULATED)
        ports = free_ports(len(speaking) + len(simulated))
        self.link_ports = dict(zip((*speaking, *simulated), ports, strict=True))
        impersonated = sorted({one.domain or "" for one in scene.fault if one.does in DOCUMENT_FAULTS})
        self.impostor_ports = dict(zip(impersonated, free_ports(len(impersonated)), strict=True))
        self.names: dict[str, NameServer] = {}
        self.lines = self._make_lines()
        self.buses = {
            domain: [
                Line(place.shared.advertise.rpartition(":")[0], [folders.bus_port(domain, number)])
                for number, place in enumerate(folders.places[domain], 1)
                if place.shared is not None
            ]
            for domain in folders.clustered
        }
        self.nodes: dict[str, list[SceneNode]] = {}
        self.foreign: dict[str, ForeignNode] = {}

    def _make_lines(self) -> dict[tuple[str, str], Line]:
        names = [one.name for one in self.scene.domain]
        lines = {}
        for near, source in enumerate(names, 1):
            for far, target in enumerate(names, 1):
                if source != target and source in self.folders.folders:
                    ports = [port for place in self.folders.places.get(target, ()) for port in _ports_of(place)]
                    ports += [some[target] for some in (self.link_ports, self.impostor_ports) if target in some]
                    lines[source, target] = Line(f"{_LINE_NETWORK}.{near}.{far}", ports)
        return lines

    @property
    def all_lines(self) -> list[Line]:
        """Every line that has to run."""
        return [*self.lines.values(), *(line for lines in self.buses.values() for line in lines)]

    def lines_of(self, fault: Fault) -> list[Line]:
        """The lines that a fault hits."""
        if fault.domain is not None:
            return self.buses[fault.domain]
        return [line for pair, line in self.lines.items() if set(pair) == set(fault.domains)]

    def view_of(self, domain: str) -> Callable[[str], str]:
        """At which address a domain reaches each other one."""
        return lambda target: HOST if target == domain else self.lines[domain, target].address

    def build(self, name_servers: Mapping[str, int]) -> None:
        """Write the settings of all nodes, and make the nodes; `name_servers` gives the port that each domain asks.

        Raises:
            SettingsError: A command has a placeholder that is not there.
        """
        names = {
            one.name: names_for(
                one.name,
                self.folders.places[one.name][0],
                self.folders.authority.certificate_for(one.name),
                {"ca_file": str(self.folders.authority.ca_file), "name_server": f"{HOST}:{name_servers[one.name]}"},
            )
            for one in self.scene.domain
            if one.kind not in SIMULATED
        }
        self.folders.write_settings(name_servers, {domain: self._plain_peers(domain, names) for domain in names})
        for one in self.scene.domain:
            if one.kind in SIMULATED:
                self.foreign[one.name] = node = _SIMULATORS[one.kind](one.name)
                node.port = self.link_ports[one.name]
            else:
                self.nodes[one.name] = self._processes(one, names[one.name])
                if one.kind == "link":
                    self.foreign[one.name] = self._speaker(one.name)

    def _plain_peers(self, domain: str, names: Mapping[str, Mapping[str, str]]) -> list[PeerEntry]:
        """The partners of a domain that publish nothing, each with the stub for it."""
        entries = []
        for one in self.scene.domain:
            if one.kind in SIMULATED:
                place = f"{self.lines[domain, one.name].address}:{self.link_ports[one.name]}"
                endpoint = f"ws://{place}{_SIMULATED_PATHS[one.kind]}"
                entries.append(PeerEntry(domain=one.name, stub=f"{one.kind}_peer", endpoint=endpoint))
            elif one.stub and one.name != domain:
                endpoint = filled(one.endpoint, names[one.name], f"domain {one.name}")
                entries.append(PeerEntry(domain=one.name, stub=one.stub, endpoint=endpoint))
        return entries

    def _processes(self, domain: Domain, names: Mapping[str, str]) -> list[SceneNode]:
        places, authority = self.folders.places[domain.name], self.folders.authority
        if domain.kind == "other":
            return [OtherNode(domain, places[0], authority, names)]
        is_shifted = any(one.does in CLOCK_FAULTS and one.domain == domain.name for one in self.scene.fault)
        nodes = []
        for place in places:
            serve = list(self._serve)
            if is_shifted:
                set_clock(clock_of(place), 0.0)
                serve = ["interop.lab.shifted_clock", str(clock_of(place)), *serve]
            nodes.append(SceneNode(domain.name, place, authority, serve))
        for node, place in zip(nodes, places, strict=True):
            own = {**names, "settings": str(place.folder.settings), "folder": str(place.folder.path)}
            node.command = tuple(filled(part, own, f"domain {domain.name}") for part in domain.command)
        if domain.name in self.link_ports:
            settings, genuine = places[0].folder.settings, f"wss://mn.{domain.name}:{places[0].ports.listen}/link"
            ours = f"wss://mn.{domain.name}:{self.link_ports[domain.name]}/link"
            settings.write_text(settings.read_text().replace(genuine, ours))
        return nodes

    def _speaker(self, domain: str) -> LinkSpeaker:
        """A node that speaks LINK/1 and nothing else, with the keys of its domain."""
        [file] = self.folders.folders[domain].keys.glob("node-*.pem")
        peer = LinkPeer(domain, SigningKey.from_pem(file.stem, file.read_bytes()))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(*self.folders.authority.certificate_for(domain))

        def reach(target: str) -> tuple[str, int]:
            return self.lines[domain, target].address, self.folders.ports[target].listen

        speaker = LinkSpeaker(peer, (server, self.folders.authority.client_context()), reach)
        speaker.port = self.link_ports[domain]
        return speaker


def clock_of(place: NodePlace) -> Path:
    """The file that says how far the clock of a node is ahead, where a fault of the scene sets it."""
    return place.folder.path / "clock"


def _ports_of(place: NodePlace) -> tuple[int, int]:
    return place.ports.listen, place.ports.site
