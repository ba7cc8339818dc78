"""Runtimes of every binding behind one face, so that one battery of tests runs against each of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Protocol

import trio

from msg_node.connectors.http_session import HttpSession
from msg_node.connectors.mqtt import MqttBinding
from tests.support.http_runtime import EventLine, HttpRuntime, http_runtime
from tests.support.mqtt_broker import Broker, MqttRuntime, mqtt_binding, needs_broker
from tests.support.polling import PollingRuntime, polling
from tests.support.runtime_rig import PATIENCE_SECONDS, SESSION, SM, Json, Runtime, RuntimeRig, a_message


class Binding(Enum):
    """What carries a runtime's messages."""

    WEBSOCKET = "websocket"
    SOCKET_IO = "socket.io"
    HTTPS_STREAM = "https-stream"
    HTTPS_POLLS = "https-polls"
    MQTT = "mqtt"


class BoundRuntime(ABC):
    """A runtime with a session, over some binding."""

    address: str
    wishes: Json | None = None
    """Body of its `open`."""

    def __init__(self, rig: RuntimeRig, name: str) -> None:
        self.rig = rig
        self.name = name
        self._numbers = count(1)

    @abstractmethod
    async def begin(self) -> None:
        """Connect and open the session, or bring it back after `lose`."""

    @abstractmethod
    async def lose(self) -> None:
        """Let the connection end without a word."""

    @abstractmethod
    async def say(self, *messages: Json) -> None:
        """Send messages; what they lead to comes by `next`."""

    @abstractmethod
    async def next(self) -> Json:
        """The next message of the node."""

    async def ask(self, type_: str, to: str, body: Json | None = None, *, from_: str = "") -> Json:
        """Send a request and wait for its reply; what comes before it is lost."""
        id_ = f"b{next(self._numbers)}"
        await self.say(a_message(type_, from_ or self.address, to, body, id_=id_))
        while (message := await self.next()).get("id") != id_:
            pass
        return message

    async def heard(self) -> list[Json]:
        """Everything that was on its way to this runtime by now: the node answers in order."""
        await self.say(a_message("ping", self.address, SESSION, id_="mark"))
        messages = []
        while (message := await self.next()).get("id") != "mark":
            messages.append(message)
        return messages

    async def subscribed(self, *addresses: str) -> None:
        reply = await self.ask("subscribe", SM, {"resources": list(addresses), "source": self.address})
        assert reply["body"]["code"] == 200, reply

    async def until_lost(self) -> None:
        """Wait until the node knows that this runtime is away."""
        sid = self.rig.state.sessions.by_runtime(self.address)
        assert sid is not None
        with trio.fail_after(PATIENCE_SECONDS):
            while sid in self.rig.bus.send_queues.ports:
                await trio.lowlevel.checkpoint()


class OverWebSocket(BoundRuntime):
    """Dialect A at `/ws`."""

    _runtime: Runtime | None = None

    async def begin(self) -> None:
        before, self._runtime = self._runtime, await self.rig.runtime()
        if before is None:
            await self._runtime.open(self.name, self.wishes)
            self.address = self._runtime.address
            return
        self._runtime.address, self._runtime.token = before.address, before.token
        reply = await self._runtime.ask("re-open", SESSION, from_=before.session_address)
        assert reply["body"]["code"] == 200

    async def lose(self) -> None:
        assert self._runtime is not None
        await self._runtime.wire.cut()
        await self.until_lost()

    async def say(self, *messages: Json) -> None:
        assert self._runtime is not None
        await self._runtime.say(*messages)

    async def next(self) -> Json:
        assert self._runtime is not None
        return await self._runtime.next()


class OverSocketIo(BoundRuntime):
    """Dialect A in socket.io packets, polling; it comes back by its address, which the rig allows."""

    _runtime: PollingRuntime

    async def begin(self) -> None:
        self._runtime = await polling(self.rig, self.name)
        reply = await self._runtime.ask("open", SESSION, self.wishes, id_="open")
        assert reply["body"]["code"] == 200, reply
        self.address = self._runtime.address

    async def lose(self) -> None:
        await self._runtime.gets.ask("GET", self._runtime.target)
        await self._runtime.gets.wire.cut()
        await self._runtime.posts.wire.cut()
        await self.until_lost()

    async def say(self, *messages: Json) -> None:
        await self._runtime.say(*messages)

    async def next(self) -> Json:
        return await self._runtime.next()


class OverHttps(BoundRuntime):
    """Dialect A in posts, with polls as return channel."""

    _runtime: HttpRuntime | None = None
    _got: list[Json]

    async def begin(self) -> None:
        before, self._runtime = self._runtime, await http_runtime(self.rig, self.name)
        self._got = []
        self.address = self._runtime.address
        if before is None:
            assert (await self._runtime.open(self.wishes))["body"]["code"] == 200
        else:
            reply = await self._runtime.ask("re-open", SESSION, from_=f"{before.address}/{before.token}")
            assert reply["body"]["code"] == 200
            self._runtime.token = before.token

    async def lose(self) -> None:
        session = self.rig.port_of(self.name).queue.channel
        assert isinstance(session, HttpSession)
        session.away_since = 0.0
        self.rig.https.end_lost(trio.current_time())
        await self.until_lost()

    async def say(self, *messages: Json) -> None:
        assert self._runtime is not None
        await self._runtime.say(*messages)

    async def next(self) -> Json:
        assert self._runtime is not None
        while not self._got:
            self._got = await self._runtime.polled()
        return self._got.pop(0)


class OverEventStream(OverHttps):
    """Dialect A in posts, with a stream of events as return channel."""

    _stream: EventLine

    async def begin(self) -> None:
        await super().begin()
        assert self._runtime is not None
        self._stream = await self._runtime.stream()

    async def lose(self) -> None:
        await self._stream.wire.cut()
        session = self.rig.port_of(self.name).queue.channel
        with trio.fail_after(PATIENCE_SECONDS):
            while session.takes_more:
                await trio.lowlevel.checkpoint()
        await super().lose()

    async def next(self) -> Json:
        event = await self._stream.event()
        assert event is not None, "the stream has ended"
        message: Json = json.loads(event.data)
        return message


class OverMqtt(BoundRuntime):
    """Dialect A through a broker."""

    def __init__(self, rig: RuntimeRig, name: str, broker: Broker, binding: MqttBinding) -> None:
        super().__init__(rig, name)
        self._broker = broker
        self._binding = binding
        self.runtime: MqttRuntime | None = None

    async def begin(self) -> None:
        before, self.runtime = self.runtime, MqttRuntime(self._broker, self.name)
        await self.runtime.ready()
        self.address = self.runtime.address
        if before is None:
            assert (await self.runtime.open(self.wishes))["body"]["code"] == 200
        else:
            reply = await self.runtime.ask("re-open", SESSION, from_=f"{before.address}/{before.token}")
            assert reply["body"]["code"] == 200
            self.runtime.token = before.token

    async def lose(self) -> None:
        assert self.runtime is not None
        await self.runtime.vanish()
        await self.until_lost()

    async def say(self, *messages: Json) -> None:
        assert self.runtime is not None
        await self.runtime.say(*messages)

    async def next(self) -> Json:
        assert self.runtime is not None
        return await self.runtime.next()


class MakeRuntime(Protocol):
    """Makes a runtime with a session, and with these wishes in the body of its `open`."""

    def __call__(self, name: str, wishes: Json | None = None, /) -> Awaitable[BoundRuntime]: ...


@asynccontextmanager
async def runtimes_over(binding: Binding, rig: RuntimeRig, folder: Path) -> AsyncIterator[MakeRuntime]:
    """A way to make runtimes of one binding."""
    kinds: dict[Binding, type[OverWebSocket | OverSocketIo | OverHttps]] = {
        Binding.WEBSOCKET: OverWebSocket,
        Binding.SOCKET_IO: OverSocketIo,
        Binding.HTTPS_STREAM: OverEventStream,
        Binding.HTTPS_POLLS: OverHttps,
    }
    async with AsyncExitStack() as stack:
        make: Callable[[str], BoundRuntime]
        if binding is Binding.MQTT:
            needs_broker()
            broker = Broker(folder)
            await broker.start()
            stack.push_async_callback(broker.aclose)
            joined = await stack.enter_async_context(mqtt_binding(rig, broker))

            def make(name: str) -> BoundRuntime:
                return OverMqtt(rig, name, broker, joined)
        else:

            def make(name: str) -> BoundRuntime:
                return kinds[binding](rig, name)

        async def begun(name: str, wishes: Json | None = None, /) -> BoundRuntime:
            runtime = make(name)
            runtime.wishes = wishes
            await runtime.begin()
            return runtime

        yield begun
