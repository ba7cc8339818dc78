from __future__ import annotations

from pathlib import Path

import pytest

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
