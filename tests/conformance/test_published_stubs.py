"""`[compat] profile = "rethink"`: what each published stub does at its own node, it does here, over and over."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from interop.conformance.stage import Node
from tests.support.published_stubs import STUBS, NodejsStub, PublishedStub, StubFailedError, VertxStub

from .conftest import DOMAIN

ROUNDS = 3
SCENE_SECONDS = 60.0
ALLOCATION = f"domain://msg-node.{DOMAIN}/address-allocation"
REGISTRY = f"domain://registry.{DOMAIN}"
SM = f"domain://msg-node.{DOMAIN}/sm"
EVERY_STUB = pytest.mark.parametrize("kind", STUBS, ids=lambda kind: kind.__name__)

Kind = type[PublishedStub]
Json = dict[str, Any]


class Scene:
    """A runtime behind a published stub, and a peer behind another that looks for it."""

    def __init__(self, nursery: trio.Nursery, node: Node, kind: Kind, name: str) -> None:
        self._nursery, self._node, self._kind = nursery, node, kind
        self.runtime = f"runtime://{DOMAIN}/{name}-{kind.__name__}"
        self.user = f"user://{DOMAIN}/{name}-{kind.__name__}"
        self.hyperty = ""
        self.stub = self.new_stub()
        self.peer = NodejsStub(nursery, node, f"{self.runtime}-peer")

    def new_stub(self) -> PublishedStub:
        """Another instance for the same runtime."""
        return self._kind(self._nursery, self._node, self.runtime)

    async def begin(self) -> None:
        """Both connect, and the runtime registers a hyperty."""
        await self.peer.connect()
        await self.stub.connect()
        answer = await self.stub.ask(
            "create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1, "allocationKey": self.runtime}}
        )
        [self.hyperty] = answer["value"]["allocated"]
        await self.register()

    async def register(self) -> None:
        """The runtime registers its hyperty for its user."""
        value = {
            "url": self.hyperty,
            "user": self.user,
            "descriptor": f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/hyperty/Chat",
            "runtime": self.runtime,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "status": "live",
            "expires": 3600,
        }
        answer = await self.stub.ask("create", REGISTRY, {"value": value}, from_=f"{self.runtime}/registry")
        assert answer["code"] == 200

    async def is_found(self) -> None:
        """The peer finds the hyperty as live, by its user."""
        answer = await self.peer.ask("read", REGISTRY, {"resource": f"/hyperty/user/{self.user}"})
        assert answer["code"] == 200, answer
        assert answer["value"][self.hyperty]["status"] == "live"

    async def is_reached(self, stub: PublishedStub) -> None:
        """A request of the peer to the hyperty arrives at this instance, and the answer at the peer."""
        await self.peer.send({"id": 77, "type": "read", "from": self.peer.runtime, "to": self.hyperty})
        request = await stub.next()
        assert (request["type"], request["to"]) == ("read", self.hyperty)
        answer = {"id": 77, "type": "response", "from": self.hyperty, "to": request["from"], "body": {"code": 200}}
        await stub.send(answer)
        assert (await self.peer.next())["body"]["code"] == 200

    async def claims_again(self) -> None:
        """A runtime that comes back subscribes for the address that it had."""
        body = {"resources": [self.hyperty], "source": f"{self.runtime}/address-allocation"}
        assert (await self.stub.ask("subscribe", SM, body))["code"] == 200


@EVERY_STUB
async def test_a_runtime_that_leaves_is_found_and_comes_back_over_and_over(kind: Kind, lenient_node: Node) -> None:
    with trio.fail_after(SCENE_SECONDS):
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, lenient_node, kind, "leaver")
            await scene.begin()
            for _ in range(ROUNDS):
                await scene.is_reached(scene.stub)
                await scene.stub.disconnect()
                await scene.is_found()
                scene.stub = scene.new_stub()
                await scene.stub.connect()
                await scene.claims_again()
                assert (await scene.stub.ask("update", REGISTRY, {"resource": scene.hyperty}))["code"] == 200
                await scene.register()
                await scene.is_found()
            nursery.cancel_scope.cancel()


@EVERY_STUB
async def test_a_runtime_that_opens_a_second_time_takes_over(kind: Kind, lenient_node: Node) -> None:
    with trio.fail_after(SCENE_SECONDS):
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, lenient_node, kind, "twice")
            await scene.begin()
            for _ in range(ROUNDS):
                second = scene.new_stub()
                await second.connect()
                await scene.stub.ended()
                await scene.is_reached(second)
                await scene.is_found()
                scene.stub = second
            nursery.cancel_scope.cancel()


@EVERY_STUB
async def test_a_runtime_that_loses_its_connection_goes_on_where_it_was(kind: Kind, lenient_node: Node) -> None:
    with trio.fail_after(SCENE_SECONDS):
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, lenient_node, kind, "loser")
            await scene.begin()
            for _ in range(ROUNDS):
                await scene.stub.lose()
                # the Node.js stub never recovers: its program makes a new one
                scene.stub = scene.new_stub() if kind is NodejsStub else scene.stub
                assert (await scene.stub.ask("update", REGISTRY, {"resource": scene.hyperty}))["code"] == 200
                await scene.is_reached(scene.stub)
                await scene.is_found()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [VertxStub, NodejsStub], ids=lambda kind: kind.__name__)
async def test_without_the_profile_a_second_open_fails_these_stubs(kind: Kind, node: Node) -> None:
    with trio.fail_after(SCENE_SECONDS):
        async with trio.open_nursery() as nursery:
            scene = Scene(nursery, node, kind, "strict")
            await scene.begin()
            with pytest.raises(StubFailedError):
                await scene.new_stub().connect()
            await scene.is_reached(scene.stub)
            nursery.cancel_scope.cancel()
