"""JavaScript protostubs in the shapes of published ones, adapted and run against simulators of their nodes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from interop.foreign.nodejs import NodejsNode
from interop.foreign.nomatrix import NomatrixNode
from interop.foreign.simulator import ForeignNode
from interop.foreign.vertx import VertxNode
from sandbox.core.script_package import Script
from stubkit.adapt import packaged
from tests.support.runtime_rig import a_message

from .dialects import bruno_of
from .peer_stubs import OURS, THEIRS, PeerSystem, peering

SM = f"domain://msg-node.{THEIRS}/sm"
STAY = "stay_connected = true\n"
OLD_SUBSCRIPTIONS = '[peer.configuration.adapter]\nsubscriptions = "old"\n'
SCRIPTS = Path(__file__).parents[1] / "peers" / "protostubs"


TRICKS = """
const none = () => { throw new Error("none is left"); };
for (const one of [Object, Array, Map, Set, String, Promise, Function]) {
  for (const name of Object.getOwnPropertyNames(one.prototype)) {
    try { Object.defineProperty(one.prototype, name, {get: none, set: none}); } catch {}
  }
}
for (const name of ["JSON", "Reflect", "Map", "Set", "Promise", "Error", "Object"]) globalThis[name] = undefined;
function activate() { none(); }
"""


@dataclass(frozen=True)
class Shape:
    """A script, the make of nodes it is for, and what its operator writes."""

    script: str
    make: Callable[[str], ForeignNode]
    configuration: dict[str, object] = field(default_factory=dict)
    more: str = ""
    folder: Path = SCRIPTS


SHAPES = [
    Shape("sessions", VertxNode),
    Shape("registered", VertxNode, {"maxBuffer": 1_000_000}),
    Shape("promises", NomatrixNode),
    Shape("bundled", NodejsNode, more=OLD_SUBSCRIPTIONS),
]


PUBLISHED = [
    Shape("VertxProtoStub", VertxNode),
    Shape("MatrixProtoStub", NomatrixNode),
    Shape("default.ps", VertxNode, {"maxBuffer": 1_000_000}),
    Shape("NodejsProtoStub", NodejsNode, more=OLD_SUBSCRIPTIONS),
]
"""Those that a folder named by TRAPEZOID_PUBLISHED_STUBS holds are cases as well: docs/javascript-stubs.md."""


def shapes() -> list[Shape]:
    folder = os.environ.get("TRAPEZOID_PUBLISHED_STUBS")
    published = [replace(one, folder=Path(folder)) for one in PUBLISHED] if folder else []
    return SHAPES + [one for one in published if (one.folder / f"{one.script}.js").exists()]


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Secret and stubs cache of the first node of this file: all others start from what it compiled."""
    return tmp_path_factory.mktemp("machine_code")


@pytest.fixture
def folder(tmp_path: Path, machine_code: Path) -> Path:
    shutil.copytree(machine_code, tmp_path, dirs_exist_ok=True)
    return tmp_path


def adapted(folder: Path, shape: Shape) -> Path:
    text = (shape.folder / f"{shape.script}.js").read_bytes()
    name = shape.script.replace(".", "-")
    script = Script(text=text, file=f"{shape.script}.js", name=name, configuration=shape.configuration)
    file = folder / f"{name}.wasm"
    file.write_bytes(packaged(script))
    return file


async def talk(system: PeerSystem, *, value: int) -> None:
    """Both ways, the first one from an address of ours that never wrote there."""
    anna = await system.talker(f"anna-{value}")
    await system.node.wait_received(type="subscribe", resource=anna.hyperty)
    bruno, hyperty = await bruno_of(system.node)
    assert (await bruno.ask("create", hyperty, anna.hyperty, {"value": value}))["code"] == 200
    assert anna.numbers_from(hyperty) == [value]
    answer = await anna.ask(hyperty, value)
    assert (answer.code, answer.value) == (200, value)


async def every_id_comes_back(system: PeerSystem) -> None:
    _, hyperty = await bruno_of(system.node)
    runtime = await system.process.opened("carla")
    for id_ in ("text-1", 2**30, 2**53 + 1, 12345678901234567890123, 0, 'say "hi" \\ \u00e4'):
        body = {"value": 'line\nand "more" \u20ac', "long": 2**60 + 1}
        await runtime.say(a_message("create", f"hyperty://{OURS}/carla", hyperty, body, id_=id_))
        reply = await runtime.next()
        assert (reply["id"], reply["body"]["code"], reply["body"]["value"]) == (id_, 200, body["value"])
    [came] = {one["body"]["long"] for one in system.node.received if "long" in (one.get("body") or {})}
    assert came == 2**60 + 1


async def an_object_is_observed_from_there(system: PeerSystem) -> None:
    anna = system.anna
    [room] = await anna.client.at(OURS).allocate("comm", 1)
    await system.node.wait_received(type="subscribe", resource=f"{room}/subscription")
    bruno, _ = await bruno_of(system.node)
    assert (await bruno.ask("subscribe", bruno.url, SM, {"resources": [f"{room}/changes"]}))["code"] == 200
    await anna.client.notify("update", anna.hyperty, f"{room}/changes", {"value": 5})
    await bruno.wait_for(lambda: bruno.numbers_from(anna.hyperty) == [5])


@pytest.mark.parametrize(
    "shape",
    [pytest.param(one, id=one.script, marks=() if one is SHAPES[0] else pytest.mark.long) for one in shapes()],
)
async def test_unmodified_script_carries_all_conversations_of_its_node(
    folder: Path, machine_code: Path, shape: Shape
) -> None:
    node = shape.make(THEIRS)
    async with peering(folder, node, str(adapted(folder, shape)), more=STAY + shape.more) as system:
        await system.wait_state("live")
        await talk(system, value=7)
        await every_id_comes_back(system)
        await an_object_is_observed_from_there(system)
        await node.kill()
        await system.wait_state("disconnected", "failed")
        await node.start()
        await system.wait_state("live")
        await talk(system, value=9)
    shutil.copytree(folder / "data" / "stubs", machine_code / "data" / "stubs", dirs_exist_ok=True)
    shutil.copy(folder / "data" / "secret", machine_code / "data")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("for (;;);", "stub-(out-of-fuel|timeout)"),
        ("let a = ;", r"SyntaxError: .* \(at bad\.js:1:9\)"),
        (TRICKS, r"TypeError: not a function \(at none"),
    ],
    ids=["endless loop", "syntax error", "tricks with prototypes"],
)
@pytest.mark.long
async def test_script_that_cannot_start_has_a_clear_reason_and_harms_nobody(folder: Path, text: str, why: str) -> None:
    bad = folder / "bad.wasm"
    bad.write_bytes(packaged(Script(text=text.encode(), file="bad.js", name="bad")))
    waiting = "[limits]\nwaiting_seconds = 2.0\n"
    async with peering(folder, VertxNode(THEIRS), str(bad), more=STAY + waiting) as system:
        link = await system.wait_state("failed")
        assert re.search(why, link.detail), link.detail
        assert (await (await system.talker("carla")).ask(system.anna.hyperty)).is_ok
