"""A conversation of a running laboratory, said in its shell: recorded, played again, and answered otherwise."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from interop.lab.kept import KeptLab, make_lab
from interop.lab.replay import FASTEST, Replay
from interop.lab.shell import run_shell
from interop.lab.spool import read_records
from msg_node.storage.sealing import add_state_key, read_state_keys
from protofly.errors import SettingsError
from protofly.records import AdminEvent
from trapezoid.recordings import open_recording

SAID = (
    "open ana a.example",
    "open bo b.example",
    "node a.example recording start --for 5m --bodies --name r --from hyperty://a.example/*",
    "ask ana bo good morning",
    "write ana bo a secret eyJhbGciOiJFZDI1NTE5In0.eyJ0MHAiOjF9.c2ln",
    "send ana read hyperty://a.example/nobody",
    'send ana read domain://registry.b.example \'{"resource": "/hyperty/user/user://b.example/bo"}\'',
    "wait 1",
    "node a.example recording stop",
)


@asynccontextmanager
async def lab_that_may_record(folder: Path) -> AsyncIterator[tuple[KeptLab, Path]]:
    """A laboratory of two domains that runs, and the key of recordings at the first one."""
    lab = await make_lab(folder / "lab", 2)
    key = folder / "recording.key"
    add_state_key(key)
    settings = trio.Path(lab.settings_of("a.example"))
    await settings.write_text(await settings.read_text() + f'\n[recording]\nkey_file = "{key}"\n')
    try:
        await lab.up()
        await lab.exchange()  # starts the stubs, which takes its time on a busy machine
        yield lab, key
    finally:
        lab.down()


async def sit(lab: KeptLab, lines: Sequence[str]) -> tuple[int, list[str]]:
    """Say lines in a shell; how many failed, and what it showed."""
    shown: list[str] = []
    left = [f"{line}\n" for line in lines]
    return await run_shell(lab, lambda: left.pop(0) if left else "", shown.append), shown


@pytest.mark.long
async def test_what_was_said_is_played_again_and_what_is_answered_otherwise_is_shown(tmp_path: Path) -> None:
    async with lab_that_may_record(tmp_path) as (lab, key):
        failed, shown = await sit(lab, SAID)
        assert (failed, [line for line in shown if line.startswith("error")]) == (0, [])
        assert any(line.startswith("200 after") and "good morning" in line for line in shown)
        assert any(line.startswith("  bo hears create from ana") for line in shown)
        file = lab.path / "a.example" / "data" / "conversations" / "r.conversation"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        conversation = open_recording(file, read_state_keys(key).secrets)
        assert conversation.ended is not None
        assert b"eyJhbG" not in b"".join(bytes(one.body) for one in conversation.messages)
        spool = lab.path / "a.example" / "data" / "records"
        with trio.fail_after(10):
            while len(audit := list(read_records(spool, AdminEvent))) < 2:  # noqa: ASYNC110  the node writes them in a moment
                await trio.sleep(0.05)
        assert [one.operation for one in audit] == ["recording start", "recording stop"]
        assert "a.example" not in audit[0].arguments, "whom a recording is about is hashed"

        same = await Replay(conversation, lab, speed=FASTEST).run()
        assert (same.differences, same.skipped, same.is_whole) == ((), {}, True)
        assert (same.requests, same.events, same.heard) == (3, 1, 1)

        page, junit = tmp_path / "page.html", tmp_path / "junit.xml"
        failed, shown = await sit(lab, ["node a.example gate set a.example b.example --for 5m", "ask nobody x y", "ab"])
        assert failed == 2
        command = [sys.executable, "-m", "trapezoid", "lab", "replay", str(file), "--key", str(key)]
        done = await trio.run_process(
            [*command, "--lab", str(lab.path), "--speed", "10", "--json", "--html", str(page), "--junit", str(junit)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        other = json.loads(done.stdout)["differences"]
        assert "- code: 200" in other[0]["lines"]
        assert "+ code: 403" in other[0]["lines"]
        assert "create hyperty://a.example/" in other[0]["what"]
        assert "answered otherwise" in page.read_text(encoding="utf-8")
        assert "+ code: 403" in junit.read_text(encoding="utf-8")


def test_a_file_that_is_no_recording_of_this_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        open_recording(tmp_path / "missing", [b"k" * 32])
