"""From `stub new` to an answer: the commands of the guide, and another domain that uses what they published."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from federation.core import auth
from interop.lab.link_peer import READ_BYTES, LinkPeer, Stream, facts_of
from protofly.documents import Endpoint
from stubkit.keys import load_keys
from stubkit.new import LANGUAGES
from tests.support.live_documents import sign_live
from wire.core.websocket import ServerWebSocket

from .foreign import WELL_KNOWN, ForeignDomain
from .frontier import running_frontier
from .systems import wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-stub.md"
_NONCE = b"n" * 32
ALSO = [pytest.param(language, marks=pytest.mark.endurance) for language in ("zig", "assemblyscript")]
"""What the kits have in common is tested for all in `tests/stubkit/test_new.py`, these commands included."""


class FarEnd:
    """A node that is not ours, behind the protocol of the templates; it grants every request."""

    def __init__(self, peer: LinkPeer, *, proves: bool) -> None:
        self._peer = peer
        self._proves = proves
        self.heard: list[dict[str, Any]] = []

    async def serve(self, stream: Stream) -> None:
        """Speak with one stub until its line ends."""
        line = ServerWebSocket(is_binary=False)
        while line.request_path is None:
            line.receive(bytes(await stream.receive_some(READ_BYTES)))
        line.accept(subprotocol="", is_binary=False)
        answer = self._prove if self._proves else self._answer_plain
        line.send([b"HELLO " + _NONCE] if self._proves else [])
        while line.is_open:
            await stream.send_all(line.data_to_send())
            data = bytes(await stream.receive_some(READ_BYTES))
            if not data:
                return
            line.send([frame for raw in line.receive(data) for frame in answer(bytes(raw))])

    def _prove(self, frame: bytes) -> list[bytes]:
        word, _, rest = frame.partition(b" ")
        if word == b"TOKEN":
            asked = facts_of(rest)
            assert asked["nonce"] == auth.nonce_text(_NONCE)
            proof = self._peer.prove(asked, nonce=asked["cnonce"], endpoint=asked["ep"], binding=asked["cb"])
            return [b"WELCOME " + proof.encode()]
        if word != b"MSG":
            return []
        number, _, message = rest.partition(b" ")
        return [b"OK " + number, *(b"MSG %d " % len(self.heard) + one for one in self._granted(message))]

    def _answer_plain(self, frame: bytes) -> list[bytes]:
        return self._granted(frame)

    def _granted(self, raw: bytes) -> list[bytes]:
        message = json.loads(raw)
        if message["type"] != "create":
            return []
        self.heard.append(message)
        body = {"code": 200, "value": message["body"]["value"]}
        answer = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"], "body": body}
        return [json.dumps(answer).encode()]


def commands_of_the_guide() -> list[list[str]]:
    """The commands of its first ten minutes."""
    block = re.search(r"## Ten minutes.*?```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return [shlex.split(line.partition("#")[0])[2:] for line in block[1].splitlines()]


async def write_and_publish(folder: Path, language: str, domain: str) -> None:
    """Follow the guide in another language and for another domain."""
    changes = {"c": language, "my-stub/my-stub.c": f"my-stub/my-stub{LANGUAGES[language]}", "b.example": domain}
    for words in commands_of_the_guide():
        command = [changes.get(word, word) for word in words]
        if command[0] == "publish" and language == "js":
            command.append("--no-auth")
        await trio.run_process([sys.executable, "-m", "trapezoid", *command], cwd=folder, capture_stdout=True)


def serve_published(foreign: ForeignDomain, folder: Path) -> None:
    """Serve the site folder as the domain's own web server would, with a `live` that names its endpoint."""
    keys = load_keys(folder / "keys")
    foreign.keys, foreign.peer.key = keys, keys.node[0]
    site = folder / "site"
    manifest = (site / "manifest" / "my-stub.json").read_bytes()
    live = sign_live(
        keys,
        root_envelope=(site / "root" / "1.json").read_bytes(),
        serial=1,
        endpoints=[Endpoint(name="mn", url=f"wss://mn.{foreign.domain}:{foreign.link_port}/link")],
        manifests={"default": manifest},
        now=time.time(),
    )
    foreign.files = {
        f"{WELL_KNOWN}/{path.relative_to(site).as_posix().removesuffix('.json')}": path.read_bytes()
        for path in site.rglob("*")
        if path.is_file()
    }
    foreign.files[WELL_KNOWN] = live


@pytest.mark.long
@pytest.mark.parametrize("language", ["c", "js", *ALSO])
async def test_stub_that_the_guide_makes_is_used_by_another_domain(tmp_path: Path, language: str) -> None:
    await write_and_publish(tmp_path, language, "author.foreign.example")
    async with running_frontier(tmp_path, "author") as frontier:
        foreign = await frontier.add("author")
        far_end = FarEnd(foreign.peer, proves=language != "js")
        foreign.behaviour = far_end.serve
        serve_published(foreign, tmp_path)
        answer = await wait_until(lambda: frontier.ask(foreign, 7), lambda one: one.is_ok)
        assert answer.value == 7
        assert {message["body"]["value"] for message in far_end.heard} == {7}
        await frontier.assert_unharmed()
