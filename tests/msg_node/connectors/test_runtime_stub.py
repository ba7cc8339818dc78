"""Our stub for runtimes, in Node.js against a real listener: applications, original runtimes, and lost connections."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop.foreign.simulator import ForeignNode, Json, Line, SocketLine
from msg_node.kernel.credentials import Credential, digest_of
from tests.support.node_peers import NodePeer
from tests.support.runtime_rig import DOMAIN, FOREIGN, Runtime, RuntimeRig, a_message, runtime_address, runtime_rig

ROOT = Path(__file__).parents[3]
STUB = ROOT / "examples" / "runtime_stub" / "trapezoid-runtime-stub.js"
DRIVER = ROOT / "tests" / "peers" / "runtime_stub" / "driver.cjs"
PAGE = """<!doctype html><script src="{stub}"></script><script>
(async () => {{
  const node = await trapezoid.connect({{ url: "{url}", runtimeURL: "runtime://alpha.example/rt-web" }});
  const [mine] = await node.allocate("comm");
  const answer = await node.request("read", "{bobs}", {{ value: "é from a page" }}, {{ from: mine }});
  node.send("update", "{bobs}", {{ value: `heard ${{answer.value}}` }}, {{ from: mine }});
}})();
</script>"""
STUB_URL = f"{runtime_address('rt-1')}/protostub/alpha.example"


class WrongNode(ForeignNode):
    """Answers each request of the session with the next texts of a script; the last ones are said over and over."""

    path = "/ws"

    def __init__(self, *script: list[str]) -> None:
        super().__init__("wrong.example")
        self._script = list(script)

    def receive(self, line: Line, text: str) -> None:
        assert isinstance(line, SocketLine)
        request: Json = json.loads(text)
        for answer in self._script.pop(0) if len(self._script) > 1 else self._script[0]:
            line.send_text(answer.replace("<id>", request["id"]))

    @property
    def options(self) -> Json:
        return {"url": f"ws://127.0.0.1:{self.port}/ws", "runtimeURL": runtime_address("rt-1")}


def answer_of(code: int, **members: object) -> str:
    """An answer to `open`."""
    return json.dumps({"id": "<id>", "type": "response", "from": "mn:/session", "body": {"code": code, **members}})


OPENED = json.dumps({"id": "<id>", "type": "response", "runtimeToken": "t", "body": {"code": 200}})


@asynccontextmanager
async def driven() -> AsyncIterator[NodePeer]:
    """The stub in a process of Node.js; it ends with its standard input."""
    if shutil.which("node") is None:
        pytest.skip("needs Node.js 20: apt-get install -y nodejs")
    async with trio.open_nursery() as nursery:
        command = ["node", str(DRIVER), str(STUB)]
        run = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
        yield NodePeer(await nursery.start(run))
        nursery.cancel_scope.cancel()


async def connected(peer: NodePeer, rig: RuntimeRig) -> None:
    options = {"url": f"ws://127.0.0.1:{rig.port}/ws", "runtimeURL": runtime_address("rt-1")}
    await peer.order(name="connect", options=options)
    assert (await peer.next())["event"] == "connected"


async def asked(peer: NodePeer, event: str, **command: Any) -> dict[str, Any]:
    await peer.order(**command)
    answer = await peer.next()
    assert answer["event"] == event, answer
    return answer


async def test_file_is_loaded_as_script_as_module_and_by_require() -> None:
    async with driven() as peer:
        loaded = await asked(peer, "loaded", name="load")
    assert (loaded["evaluated"], loaded["module"], loaded["global"]) == ("function", "function", "function")


async def test_application_asks_subscribes_and_keeps_all_of_it_over_a_lost_connection(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig, driven() as peer:
        bob = await rig.opened("rt-bob")
        bobs = await bob.allocated()
        await connected(peer, rig)
        [mine] = (await asked(peer, "allocated", name="allocate"))["value"]

        body = {"value": "é" * 40_000}
        await peer.order(name="request", type="read", to=bobs, body=body, **{"from": mine})
        request = await bob.next()
        assert (request["from"], request["body"]["value"]) == (mine, body["value"])
        await bob.say(a_message("response", bobs, mine, {"code": 200, "value": body["value"]}, id_=request["id"]))
        answer = await peer.next()
        assert answer["body"]["value"] == body["value"]

        await asked(peer, "subscribed", name="subscribe", address=f"{bobs}/changes")
        await bob.say(a_message("update", bobs, f"{bobs}/changes", {"value": 1}))
        assert (await peer.next())["message"]["body"]["value"] == 1

        await peer.order(name="cut")
        assert [(await peer.next())["event"] for _ in range(2)] == ["disconnected", "in-progress"]
        live = await peer.next()
        assert (live["event"], live["isResumed"]) == ("live", True)
        await bob.say(a_message("update", bobs, f"{bobs}/changes", {"value": 2}))
        assert (await peer.next())["message"]["body"]["value"] == 2
        await bob.say(a_message("create", bobs, mine, {"value": 3}, id_=7))
        asking = await peer.next()
        assert asking["event"] == "message"
        await peer.order(name="respond", message=asking["message"], body={"value": 4})
        assert (await bob.next())["body"]["value"] == 4

        await peer.order(name="close")
        assert [(await peer.next())["event"] for _ in range(2)] == ["disconnected", "closed"]
        await rig.until("sessions closed")


async def test_refusals_of_requests_and_of_the_session_come_with_their_codes(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig, driven() as peer:
        stranger = {"url": f"ws://127.0.0.1:{rig.port}/ws", "runtimeURL": "runtime://other.example/rt"}
        await peer.order(name="connect", options=stranger)
        refused = await peer.next()
        assert (refused["event"], "spoofed-source" in refused["text"]) == ("error", True)
        await connected(peer, rig)
        missing = await asked(peer, "error", name="request", type="read", to="comm://alpha.example/nobody", body={})
        assert (missing["code"], missing["reason"]) == (404, "no-route")


async def test_original_runtime_gets_the_states_its_messages_and_no_echo(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig, driven() as peer:
        bob = await rig.opened("rt-bob")
        bobs = await bob.allocated()

        async def on_bus() -> dict[str, Any]:
            event = await peer.next()
            assert event["event"] == "bus", event
            message: dict[str, Any] = event["message"]
            return message

        config = {"url": f"ws://127.0.0.1:{rig.port}/ws", "runtimeURL": runtime_address("rt-1")}
        await peer.order(name="activate", url=STUB_URL, config=config)
        assert await on_bus() == a_message("update", STUB_URL, f"{STUB_URL}/status", {"value": "created"})
        assert (await peer.next())["name"] == "TrapezoidRuntimeStub"

        mine = runtime_address("rt-1")
        await peer.order(name="bus", message=a_message("read", mine, bobs, {"via": STUB_URL}, id_=1))  # came from it
        await peer.order(name="bus", message=a_message("read", mine, bobs, {"value": "early"}, id_=2))
        assert [(await on_bus())["body"]["value"] for _ in range(2)] == ["in-progress", "live"]
        request = await bob.next()
        assert (request["id"], request["body"]["value"]) == (2, "early")
        await bob.say(a_message("response", bobs, mine, {"code": 200, "value": "late"}, id_=2))
        answer = await on_bus()
        assert (answer["id"], answer["body"]["value"], answer["body"]["via"]) == (2, "late", STUB_URL)

        await peer.order(name="disconnect")
        assert (await on_bus())["body"]["value"] == "disconnected"
        assert (await peer.next())["event"] == "ended"


async def test_runtime_of_another_domain_comes_in_as_a_guest_with_its_credential(tmp_path: Path) -> None:
    credential = Credential(digest_of("of beta"), f"runtime://{FOREIGN}/*")
    async with runtime_rig(tmp_path, credentials=[credential], allows_guests=True) as rig, driven() as peer:
        bob = await rig.opened("rt-bob")
        bobs = await bob.allocated()
        options = {"url": f"ws://127.0.0.1:{rig.port}/ws", "runtimeURL": f"runtime://{FOREIGN}/rt", "domain": DOMAIN}
        await peer.order(name="connect", options=options)
        assert "no-credentials" in (await peer.next())["text"]
        await peer.order(name="connect", options=options | {"credentials": "of beta"})
        assert (await peer.next())["event"] == "connected"
        await peer.order(name="request", type="read", to=bobs, body={"value": "from abroad"})
        request = await bob.next()
        assert (request["from"], request["body"]["value"]) == (f"runtime://{FOREIGN}/rt", "from abroad")
        await bob.say(
            a_message("response", bobs, request["from"], {"code": 200, "value": "welcome"}, id_=request["id"])
        )
        assert (await peer.next())["body"]["value"] == "welcome"


async def test_node_that_names_no_time_to_wait_is_not_stormed() -> None:
    node = WrongNode([answer_of(503, reason="draining", value={"retryAfter": "soon"})], [OPENED])
    async with trio.open_nursery() as nursery, driven() as peer:
        await nursery.start(node.run)
        began = trio.current_time()
        await peer.order(name="connect", options=node.options)
        assert (await peer.next())["event"] == "connected"
        assert trio.current_time() - began > 0.7
        assert [request["type"] for request in node.received] == ["open", "open"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("code", "reason"), [(503, "not-connected"), (500, "storage"), (429, "rate")])
async def test_session_that_a_node_cannot_bring_back_now_is_asked_for_again_with_its_token(
    code: int, reason: str
) -> None:
    opened = answer_of(200, runtimeToken="t")
    node = WrongNode([opened], [answer_of(code, reason=reason)], [answer_of(200)])
    async with trio.open_nursery() as nursery, driven() as peer:
        await nursery.start(node.run)
        await peer.order(name="connect", options=node.options)
        assert (await peer.next())["event"] == "connected"
        await peer.order(name="cut")
        while (event := await peer.next())["event"] != "live":
            assert event["event"] in ("disconnected", "in-progress")
        assert event["isResumed"]
        asked_for = [(request["type"], request["from"]) for request in node.received]
        again = ("re-open", f"{runtime_address('rt-1')}/t")
        assert asked_for == [("open", runtime_address("rt-1")), again, again]
        nursery.cancel_scope.cancel()


async def test_messages_that_are_none_do_not_end_the_process() -> None:
    nonsense = ["null", "7", "[]", "{", '{"type":{"toString":1,"valueOf":1}}', '{"type":"response","id":{}}']
    node = WrongNode([*nonsense, '{"type":"response","id":"<id>","runtimeToken":"t","body":"200"}'])
    async with trio.open_nursery() as nursery, driven() as peer:
        await nursery.start(node.run)
        await peer.order(name="connect", options=node.options)
        assert (await peer.next())["event"] == "connected"
        nursery.cancel_scope.cancel()


async def test_messages_after_a_refusal_for_good_are_answered_and_do_not_connect_again() -> None:
    node = WrongNode([answer_of(401, reason="no-credentials")])
    async with trio.open_nursery() as nursery, driven() as peer:
        await nursery.start(node.run)
        await peer.order(name="activate", url=STUB_URL, config=node.options)
        request = a_message("read", runtime_address("rt-1"), "comm://alpha.example/1", id_=1)
        await peer.order(name="bus", message=request)
        states = [await peer.until("bus") for _ in range(2)]
        assert [state["message"]["body"]["value"] for state in states] == ["created", "in-progress"]
        for number in range(1, 4):  # the first one waited
            refused = (await peer.until("bus"))["message"]
            assert (refused["id"], refused["body"]["code"], refused["body"]["reason"]) == (number, 503, "not-connected")
            assert "401 no-credentials" in refused["body"]["desc"]
            if number == 1:
                assert (await peer.until("bus"))["message"]["body"]["value"] == "failed"
            await peer.order(name="bus", message=request | {"id": number + 1})
        assert [one["type"] for one in node.received] == ["open"]
        nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_page_in_a_real_browser_asks_and_is_answered(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("needs a browser: apt-get install -y --no-install-recommends chromium")
    async with runtime_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        bob = await rig.opened("rt-bob")
        bobs = await bob.allocated()
        page = trio.Path(tmp_path / "page.html")
        await page.write_text(PAGE.format(stub=STUB.as_uri(), url=f"ws://127.0.0.1:{rig.port}/ws", bobs=bobs))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command = [browser, *options, f"--user-data-dir={tmp_path / 'browser'}", Path(page).as_uri()]
        quiet = partial(trio.run_process, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        nursery.start_soon(quiet)
        with trio.fail_after(60):
            while not (request := await first_message(bob)):
                await trio.lowlevel.checkpoint()
        assert request["body"]["value"] == "é from a page"
        await bob.say(a_message("response", bobs, request["from"], {"code": 200, "value": "you"}, id_=request["id"]))
        assert (await bob.next())["body"]["value"] == "heard you"
        nursery.cancel_scope.cancel()


async def first_message(runtime: Runtime) -> dict[str, Any] | None:
    """The next message, or None for none within the patience of a read: a browser may take longer to start."""
    with contextlib.suppress(trio.TooSlowError):
        return await runtime.next()
    return None
