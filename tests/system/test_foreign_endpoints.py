"""Genuine documents, and behind them an endpoint that talks nonsense, is silent, slow, or hangs up."""

from __future__ import annotations

import time
from pathlib import Path

import trio

from interop.free_ports import free_ports
from interop.lab.link_peer import Stream
from protofly.documents import Endpoint
from stubkit.sign import StubRelease, sign_manifest
from tests.support.live_documents import sign_live
from tests.support.services import PATIENCE_SECONDS

from .foreign import LINK_STUB, MANIFEST, ROOT, WELL_KNOWN, ForeignDomain
from .frontier import running_frontier
from .systems import wait_until


async def talks_nonsense(stream: Stream) -> None:
    await stream.receive_some(1)
    await stream.send_all(b"\x00\xff SSH-2.0 what is this\r\n\r\n" * 100)
    await trio.sleep_forever()


async def hangs_up(stream: Stream) -> None:
    await stream.receive_some(1)


async def says_nothing(stream: Stream) -> None:
    await trio.sleep_forever()


async def drips(stream: Stream) -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" + b"X-Slow: 1\r\n" * 10_000
    for position in range(len(answer)):
        await stream.send_all(answer[position : position + 1])
        await trio.sleep(0.2)


async def test_whatever_the_endpoint_does_senders_are_answered_in_time_and_neighbours_notice_nothing(
    tmp_path: Path,
) -> None:
    answers: dict[str, tuple[int, str]] = {}
    behaviours = {"nonsense": talks_nonsense, "hangup": hangs_up, "silent": says_nothing, "drip": drips}
    async with running_frontier(tmp_path, *behaviours, waiting_seconds=3.0) as frontier:

        async def ask(name: str) -> None:
            foreign = await frontier.add(name)
            foreign.behaviour = behaviours[name]
            answer = await frontier.ask(foreign)
            answers[name] = (answer.code, answer.reason)
            assert foreign.connections

        async with trio.open_nursery() as nursery:
            for name in behaviours:
                nursery.start_soon(ask, name)
            for _ in range(20):
                await frontier.assert_unharmed()
        await frontier.assert_unharmed()
    assert answers == dict.fromkeys(behaviours, (504, "deploy-timeout"))


async def test_a_peer_that_talks_nonsense_after_its_proof_is_left_and_comes_back_when_it_talks_sense(
    tmp_path: Path,
) -> None:
    async with running_frontier(tmp_path, "moody") as frontier:
        foreign = await frontier.add("moody")
        assert (await frontier.ask(foreign)).is_ok
        await foreign.peer.lines[0].send(b"\xff" * 40)
        with trio.fail_after(PATIENCE_SECONDS):
            await foreign.peer.has_ended.wait()
        assert (await frontier.ask(foreign)).is_ok
        assert foreign.connections == 2
        await frontier.assert_unharmed()


def offer_two(foreign: ForeignDomain) -> None:
    """Offer `default`, whose endpoint is a closed port, and `default-2`, whose line opens."""
    foreign.publish()
    second = foreign.files[MANIFEST]
    root = foreign.files[ROOT]
    code = LINK_STUB.read_bytes().replace(b'"endpoint":"mn"', b'"endpoint":"no"')
    urls = [f"https://{foreign.domain}/first.wasm"]
    release = StubRelease(domain=foreign.domain, name="firstStub", serial=1, version="1", urls=urls, connect=("no",))
    now = time.time()
    first = sign_manifest(foreign.keys, code, release, now=now)
    [closed] = free_ports(1)
    live = sign_live(
        foreign.keys,
        root_envelope=root,
        serial=2,
        endpoints=[
            Endpoint(name="mn", url=f"wss://mn.{foreign.domain}:{foreign.link_port}/link"),
            Endpoint(name="no", url=f"wss://mn.{foreign.domain}:{closed}/link"),
        ],
        manifests={"default": first, "default-2": second},
        now=now,
    )
    foreign.files |= {WELL_KNOWN: live, f"{WELL_KNOWN}/manifest/firstStub": first, "/first.wasm": code}


async def test_where_the_first_stub_gets_no_line_the_second_one_carries(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "double") as frontier:
        foreign = await frontier.add("double")
        offer_two(foreign)
        answer = await frontier.ask(foreign)
        assert answer.is_ok
        assert (await frontier.link(foreign)).stub["version"] == "1.1.0"
        await frontier.assert_unharmed()


WINDOW = 150
"""More than may wait without a carrier (100), far less than may be under way with one."""


async def test_when_a_line_breaks_with_a_full_window_what_follows_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running_frontier(tmp_path, "broken") as frontier:
        foreign = await frontier.add("broken")
        assert (await frontier.ask(foreign)).is_ok
        foreign.peer.acknowledges, foreign.behaviour = False, hangs_up
        somebody = f"hyperty://{foreign.domain}/h-1"
        for number in range(1, WINDOW + 1):
            await frontier.anna.post(somebody, number)
        with trio.fail_after(PATIENCE_SECONDS):
            await foreign.peer.hear(WINDOW + 1)
        foreign.peer.heard.clear()
        await foreign.peer.lines[0].stream.transport_stream.aclose()
        await wait_until(lambda: frontier.link(foreign), lambda one: one.state != "live")
        foreign.peer.acknowledges, foreign.behaviour = True, foreign.peer.serve
        for number in range(WINDOW + 1, WINDOW + 50):
            await frontier.anna.post(somebody, number)
        answer = await frontier.ask(foreign, WINDOW + 50)
        assert answer.is_ok, answer
        values = [one["body"]["value"] for one in foreign.peer.heard]
        assert values == list(range(1, WINDOW + 51))
