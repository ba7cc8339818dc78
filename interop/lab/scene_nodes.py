"""The nodes of a scene that are processes: ours, of this version or another, and any other node by its command line."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST, NodePlace
from interop.lab.core.scene import Domain
from interop.laboratory import LaboratoryNode
from interop.participant import AccessPoint
from interop.patience import Patience
from interop.processes import READY_SECONDS, Child
from protofly.errors import Code, SettingsError, TransportError

_LOOK_SECONDS: Final = 0.05
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


def filled(text: str, names: Mapping[str, str], source: str) -> str:
    """A text with its placeholders `{name}` replaced. Raises SettingsError for a name that is not there."""

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in names:
            raise SettingsError(f"{source}: there is no {found[0]}; there are {', '.join(sorted(names))}")
        return names[found[1]]

    return _PLACEHOLDER.sub(value_of, text)


class SceneNode(LaboratoryNode):
    """One node of ours. `command` runs another version of it; else `serve` is the module, with arguments."""

    def __init__(self, domain: str, place: NodePlace, authority: DevelopmentAuthority, serve: Sequence[str]) -> None:
        super().__init__(domain, place.ports, place.folder, authority)
        self.name = place.name
        self.command: tuple[str, ...] = ()
        self._serve = tuple(serve)

    async def begin(self) -> None:
        """Start the process and wait until it is ready. Raises TransportError if it does not become ready."""
        if not self.command:
            await self.start(self._serve, {})
            return
        self._child = child = Child(self.command[1:], log_file=self.folder.log, program=self.command[:1])
        await _started(child, self.domain, self.command)
        self.listen_url = str((await child.wait_ready())["listen"])

    def signal(self, which: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.pid:
            os.kill(self.pid, which)


class OtherNode(SceneNode):
    """A node of another make. It is ready when `runtimes` accepts connections; what it prints goes to its log."""

    def __init__(self, domain: Domain, place: NodePlace, authority: DevelopmentAuthority, names: Mapping[str, str]):
        """Raises SettingsError for a placeholder that is not there."""
        super().__init__(domain.name, place, authority, ())
        source = f"domain {domain.name}"
        self.command = tuple(filled(part, names, source) for part in domain.command)
        self.listen_url = filled(domain.runtimes, names, source)

    @property
    def access_point(self) -> AccessPoint:
        """See `LaboratoryNode`."""
        return AccessPoint(url=self.listen_url, ssl_context=self._context if self.listen_url[:3] == "wss" else None)

    async def begin(self) -> None:
        """See `SceneNode`."""
        self._child = child = Child(
            self.command[1:], log_file=self.folder.log, program=self.command[:1], output_to_log=True
        )
        await _started(child, self.domain, self.command)
        parts = urlsplit(self.listen_url)
        patience = Patience(READY_SECONDS)
        while child.is_running and not patience.is_over():
            try:
                await (await trio.open_tcp_stream(parts.hostname or HOST, parts.port or 443)).aclose()
            except OSError:
                await trio.sleep(_LOOK_SECONDS)
            else:
                return
        why = f"domain {self.domain}: nothing accepts connections at {self.listen_url}: {child.obituary()}"
        raise TransportError(Code.NOT_CONNECTED, why, phase="connect")


async def _started(child: Child, domain: str, command: Sequence[str]) -> None:
    try:
        await child.start()
    except OSError as exc:
        raise SettingsError(f"domain {domain}: {command[0]}: {exc.strerror}") from exc


def names_for(domain: str, place: NodePlace, certificate: tuple[Path, Path], more: Mapping[str, str]) -> dict[str, str]:
    """The values of the placeholders of a command."""
    names = {
        "domain": domain,
        "folder": str(place.folder.path),
        "settings": str(place.folder.settings),
        "listen": str(place.ports.listen),
        "site": str(place.ports.site),
        "certificate": str(certificate[0]),
        "key": str(certificate[1]),
    }
    return names | dict(more)
