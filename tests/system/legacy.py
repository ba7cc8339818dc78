"""An old chat service inside the test, and the domain that publishes the interworking stub for it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from interop.authority import DevelopmentAuthority
from interop.lab.link_peer import READ_BYTES, Stream
from protofly.documents import Endpoint

from .foreign import ForeignDomain
from .frontier import Frontier, running_frontier

CHAT_STUB = Path(__file__).parents[2] / "examples" / "stubs" / "legacy_chat" / "legacy_chat.wasm"
HOST = "foreign.example"
STUB_DOMAIN = f"chat.{HOST}"
RANGE = f"chat://{HOST}"
BO = f"chat://bo@{HOST}"
ADMITTED = f"""
[[interworking]]
domain = "{STUB_DOMAIN}"
"""


class LegacyChat(ForeignDomain):
    """Its users are in `users`; what they heard is in `said`, as the words of each line."""

    def __init__(self, authority: DevelopmentAuthority, domain: str = STUB_DOMAIN) -> None:
        super().__init__(domain, authority)
        self.behaviour = self._converse
        self.users = ["bo"]
        self.said: list[list[str]] = []
        self.moved = trio.lowlevel.ParkingLot()
        self.heads: list[str] = []
        self.offers: dict[str, object] = {}
        self._lines: Stream | None = None
        self._roster = b""
        self.who_asked = 0

    def publish(self, **changes: object) -> None:
        """Sign and serve everything; `changes` are remembered for the next time."""
        self.offers |= changes
        offers = {"module": CHAT_STUB.read_bytes(), "ranges": [RANGE], **self.offers}
        endpoints = [
            Endpoint(name="lines", url=f"tls://mn.{self.domain}:{self.link_port}"),
            Endpoint(name="api", url=f"https://{self.domain}:{self.site_port}"),
        ]
        super().publish(connect=["lines", "api"], endpoints=endpoints, **offers)  # type: ignore[arg-type]

    def serve_roster(self, *lines: str) -> None:
        """From now on the service's API says so who is there."""
        self._roster = "\n".join(lines).encode()

    def page(self, path: str, head: str) -> tuple[str, bytes]:
        self.heads.append(head)
        return ("200 OK", self._roster) if path == "/who" else super().page(path, head)

    async def _converse(self, stream: Stream) -> None:
        self._lines, text = stream, b""
        self.moved.unpark_all()
        while data := await stream.receive_some(READ_BYTES):
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                await self._answer(line.decode().split(" ", 5))

    async def _answer(self, words: list[str]) -> None:
        if words == ["WHO"]:
            self.who_asked += 1
            await self.say(*(f"HERE {user}" for user in self.users))
        elif words[0] == "SAY":
            self.said.append(words[1:])
            self.moved.unpark_all()
            await self.say(f"{'OK' if words[1] in self.users else 'NO'} {words[2]}")

    async def say(self, *lines: str) -> None:
        """Send lines to the stub; the line is there."""
        assert self._lines is not None
        await self._lines.send_all("".join(f"{line}\n" for line in lines).encode())

    async def hang_up(self) -> None:
        """The service goes away for a moment."""
        assert self._lines is not None
        await self._lines.transport_stream.aclose()


@asynccontextmanager
async def running_legacy(
    path: Path, settings: str = ADMITTED, *more: str
) -> AsyncIterator[tuple[Frontier, LegacyChat]]:
    """The node among its neighbours, started again with `settings` once the legacy is there; `more` are neighbours."""
    async with running_frontier(path, "chat", *more) as frontier:
        legacy = LegacyChat(frontier.authority)
        await frontier.nursery.start(legacy.run)
        frontier.announce(legacy.records)
        await use_settings(frontier, settings)
        yield frontier, legacy


async def use_settings(frontier: Frontier, settings: str, *, forget_stubs: bool = False) -> None:
    """Run the node again with further settings, and with an empty stubs cache if it is to forget."""
    file = frontier.node.folder.settings
    await frontier.node.stop()
    if forget_stubs:
        shutil.rmtree(frontier.node.folder.data / "stubs")
    file.write_text(file.read_text() + settings)
    frontier.good.connections = 0
    await frontier.start()
    assert (await frontier.ask(frontier.good)).is_ok
