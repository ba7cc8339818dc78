"""A stub against a server of its author's, through the command: no node, real sandbox, real lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

STUBS = Path(__file__).parents[2] / "examples" / "stubs"
LINES = STUBS / "line_translator" / "line_translator.wasm"
PING = '{"id":1,"type":"read","from":"hyperty://a.example/1","to":"hyperty://b.example/2"}'
PONG = '{"id":1,"type":"response","from":"hyperty://b.example/2","to":"hyperty://a.example/1","body":{"code":200}}'


async def line_server(request: WebSocketRequest) -> None:
    """The far end of `line_translator`: believes every token, answers every message."""
    line = await request.accept(subprotocol="lines.1")

    async def words() -> list[str]:
        frame = await line.get_message()
        assert isinstance(frame, str)
        return frame.split()

    try:
        await line.send_message(f"CHALLENGE {'ab' * 32}\n")
        assert (await words())[1].startswith("ey")
        await line.send_message("WELCOME its.own.token\n")
        while True:
            word, number, *_ = await words()
            if word != "MSG":
                continue
            await line.send_message(f"OK {number}\nMSG {number} {len(PONG)}\n{PONG}\n")
    except ConnectionClosed:
        return


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            lambda task_status: serve_websocket(line_server, "127.0.0.1", 0, None, task_status=task_status)
        )
        yield f"lines=ws://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


async def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(60):
        return await trio.run_process(
            [sys.executable, "-m", "trapezoid", "stub", "run", *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=os.environ | {"COLUMNS": "400"},
        )


async def test_stub_meets_the_authors_server_and_the_trace_shows_both_sides() -> None:
    async with serving() as endpoint:
        done = await command(
            str(LINES), "--endpoint", endpoint, "--send", PING, "--send", PING, "--deliveries", "2", "--trace", "--json"
        )
    report = json.loads(done.stdout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (report["sent"], report["accepted"], report["refused"], report["deliveries"]) == (2, 2, [], 2)
    assert report["states"] == ["created", "in-progress", "live"]
    assert report["delivered"] == [PONG, PONG]
    assert report["took_token"]
    kinds = [
        record.get("event") or record["action"]
        for call in report["trace"]
        for record in call["events"] + call["actions"]
    ]
    assert {"start", "open", "opened", "request_auth_token", "auth_token", "verify_peer", "deliver"} <= set(kinds)
    assert all(call["fuel"] > 0 for call in report["trace"] if "fuel" in call)


async def test_lines_for_people_have_the_note_about_the_unchecked_token() -> None:
    async with serving() as endpoint:
        done = await command(str(LINES), "--endpoint", endpoint, "--send", PING, "--trace")
    text = done.stdout.decode()
    assert "→ opened        channel 1 lines.1" in text
    assert "← status        live" in text
    assert "taken without a check" in text
    assert "fuel " in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--endpoint", "lines=ws://127.0.0.1:1", "--send", PING, "--seconds", "0.5"], 1, b"not good"),
        (["--endpoint", "lines"], 2, b"the URL is missing"),
        (["--endpoint", "lines=ftp://x", "--send", PING], 2, b"endpoint lines=ftp://x"),
        (["--endpoint", "lines=ws://127.0.0.1:1", "--send", "{}"], 2, b"cannot be sent"),
        (["--endpoint", "lines=ws://127.0.0.1:1", "--send", "no-such-file"], 2, b"no-such-file"),
        (["--case", "x"], 2, b"belong to --script"),
    ],
)
async def test_run_that_cannot_do_well_says_why(arguments: list[str], code: int, said: bytes) -> None:
    done = await command(str(LINES), *arguments)
    assert done.returncode == code
    assert said in done.stdout + done.stderr


async def test_stub_that_is_live_without_proof_needs_the_option_for_it() -> None:
    echo = str(STUBS / "echo" / "echo.wasm")
    refused = await command(echo, "--send", PING, "--json")
    assert refused.returncode == 1
    assert "live before the peer was verified" in json.loads(refused.stdout)["fault"]
    done = await command(echo, "--send", PING, "--deliveries", "1", "--no-auth", "--json")
    assert done.returncode == 0
    assert json.loads(json.loads(done.stdout)["delivered"][0])["body"]["code"] == 200
