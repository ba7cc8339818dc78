from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from interop.domain_folders import command, locked
from interop.processes import Child
from protofly.errors import Code, SettingsError, TransportError


async def test_a_child_that_ends_before_it_is_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    child = Child(["no_such_module_at_all"], log_file=tmp_path / "log")
    await child.start()
    with pytest.raises(TransportError, match=r"ended with 1(.|\n)*No module named no_such_module_at_all") as caught:
        await child.wait_ready()
    assert caught.value.code is Code.NOT_CONNECTED
    assert await child.stop() == 1


async def test_a_relay_gets_ready_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    child = Child(["benchmarks.relay", "{}"], log_file=tmp_path / "log")
    await child.start()
    ready = await child.wait_ready()
    assert isinstance(ready["port"], int)
    assert child.is_running
    await child.stop()
    assert not child.is_running


STARTER = """
import os, sys, time, trio
from pathlib import Path
from interop.processes import Child

async def main():
    child = Child(["benchmarks.relay", "{}"], log_file=Path(sys.argv[1]))
    await child.start()
    await child.wait_ready()
    print(child.pid, flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


async def test_a_child_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    with trio.fail_after(60):
        starter = await trio.lowlevel.open_process(
            [sys.executable, "-c", STARTER, str(tmp_path / "log")], stdout=subprocess.PIPE
        )
        assert starter.stdout is not None
        child = os.pidfd_open(int(await starter.stdout.receive_some(64)))
        starter.kill()
        await starter.wait()
        await trio.lowlevel.wait_readable(child)  # which is when it has ended
        os.close(child)
        await starter.stdout.aclose()


async def test_a_child_that_never_ran_stops_silently(tmp_path: Path) -> None:
    assert await Child(["x"], log_file=tmp_path / "log").stop() is None


async def test_a_failing_command_says_why() -> None:
    with pytest.raises(SettingsError, match="exit status"):
        await command("no-such-command")


def test_a_state_folder_serves_one_laboratory_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(SettingsError, match="in use"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
