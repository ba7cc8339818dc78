"""Several processes of one node: what each is given, how they are started again, how their answers are put together."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from protofly.errors import SettingsError
from trapezoid import process_supervisor
from trapezoid.process_admin import together
from trapezoid.process_environment import Ports, bus_folder, count_of, environment_of, prepare_folders, process_folders
from trapezoid.process_supervisor import PAUSE_MOST_SECONDS, ChildCommand, ProcessSupervisor, pause_before, worst

SETTINGS = """
[node]
domain = "a.example"
data_dir = "data"
processes = 3
[listen]
insecure_plaintext = true
[storage]
engine = "postgresql://trapezoid@/trapezoid?host=/run/postgresql"
tls = "off"
"""
PORTS = Ports(9443, 0)


def loaded(folder: Path, further: str = "", environment: dict[str, str] | None = None) -> Settings:
    config = folder / "node.toml"
    config.write_text(SETTINGS + further)
    return load_settings(config, environment=environment or {})


def test_the_first_process_keeps_name_and_folder_and_the_others_have_their_own(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    seen = []
    for number in (1, 2, 3):
        given = environment_of(settings, number, 3, PORTS, tmp_path / "bus")
        own = loaded(tmp_path, environment=given)
        seen.append((own.node.name, own.node.data_dir.relative_to(tmp_path), own.listen.port, own.cluster.listen))
        assert own.cluster.key_file == tmp_path / "data/processes/cluster.key"
    assert seen == [
        ("mn-1", Path("data"), 9443, f"unix:{tmp_path}/bus/1.sock"),
        ("mn-1-p2", Path("data/processes/2"), 9443, f"unix:{tmp_path}/bus/2.sock"),
        ("mn-1-p3", Path("data/processes/3"), 9443, f"unix:{tmp_path}/bus/3.sock"),
    ]


def test_processes_of_a_node_among_others_listen_for_them_at_ports_in_a_row_and_write_spools_of_their_own(
    tmp_path: Path,
) -> None:
    further = (
        '[cluster]\nlisten = "0.0.0.0:8450"\nadvertise = "mn-1.lan:8450"\nkey_file = "key"\n'
        '[records]\nspool_dir = "spool"\n'
    )
    own = loaded(tmp_path, further, environment_of(loaded(tmp_path, further), 3, 3, PORTS, tmp_path))
    assert (own.cluster.listen, own.cluster.advertise) == ("0.0.0.0:8452", "mn-1.lan:8452")
    assert own.cluster.key_file == tmp_path / "key"
    assert own.spool_dir == tmp_path / "spool.3"


@pytest.mark.parametrize(
    ("further", "reason"),
    [
        ("[cluster]\nstandby = true\n", "goes without `cluster.standby`"),
        ('[[allocation.pool]]\nname = "p"\nscheme = "comm"\naddresses = ["comm://a.example/1"]\n', "allocation.pool"),
    ],
)
def test_what_processes_cannot_share_is_refused(tmp_path: Path, further: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        loaded(tmp_path, further)


def test_processes_without_an_engine_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[node]\ndomain = "a.example"\ndata_dir = "data"\n')
    with pytest.raises(SettingsError, match=r"more than one process needs `storage\.engine`"):
        load_settings(tmp_path / "node.toml", environment={"TRAPEZOID__NODE__PROCESSES": "2"})


def test_folders_share_the_secret_the_key_and_what_operators_decided(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    data = settings.node.data_dir
    (data / "policies").mkdir(parents=True)
    (data / "policies/bundle").write_text("one")
    prepare_folders(settings, 3)
    key = (data / "processes/cluster.key").read_bytes()
    (data / "policies/bundle").write_text("two")
    prepare_folders(settings, 3)
    assert (data / "processes/cluster.key").read_bytes() == key
    assert process_folders(data) == {1: data, 2: data / "processes/2", 3: data / "processes/3"}
    for number, folder in process_folders(data).items():
        assert (folder / "secret").read_bytes() == (data / "secret").read_bytes(), number
        assert (folder / "policies/bundle").read_text() == "two", number
        assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600


def test_sockets_between_processes_are_elsewhere_where_the_path_is_too_long_for_them(tmp_path: Path) -> None:
    short, long = Path("/short"), tmp_path / ("x" * 100)
    with bus_folder(short) as folder:
        assert folder == short
    with bus_folder(long) as folder:
        assert len(os.fsencode(folder)) < 60
        assert folder.is_dir()
    assert not folder.exists()


def test_none_means_one_process_for_each_core() -> None:
    assert count_of(0) == len(os.sched_getaffinity(0))
    assert count_of(3) == 3


def test_pauses_before_restarts_double_up_to_a_bound() -> None:
    assert [pause_before(one) for one in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert pause_before(1000) == PAUSE_MOST_SECONDS


@pytest.mark.parametrize(("codes", "code"), [([], 0), ([0, 0], 0), ([0, 3, 2], 3), ([0, -9, 3], 137)])
def test_the_worst_exit_code_counts(codes: list[int], code: int) -> None:
    assert worst(codes) == code


def child(script: str) -> ChildCommand:
    return ChildCommand((sys.executable, "-c", script), dict(os.environ))


READY = 'print(\'ready {"node": "n"}\', flush=True); import os, sys, time; '


async def test_a_process_that_dies_is_started_again_and_all_that_end_in_order_end_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_supervisor, "PAUSE_SECONDS", 0.01)
    runs = tmp_path / "runs"
    dies_twice = f"f = open({str(runs)!r}, 'a'); f.write('x'); f.close(); n = os.path.getsize({str(runs)!r}); "
    dies_twice += "n < 3 and os.kill(os.getpid(), 9)"
    heard: list[dict[int, dict[str, Any]]] = []
    with trio.fail_after(60):
        code = await ProcessSupervisor({1: child(READY + dies_twice), 2: child(READY)}, heard.append).run()
    assert code == 0
    assert runs.read_text() == "xxx"
    assert heard == [{1: {"node": "n"}, 2: {"node": "n"}}]
    drained = [line for line in caplog.messages if "has drained and ended with 0" in line]
    assert sorted(line.split(" has")[0] for line in drained) == ["process 1", "process 2"]


async def test_a_process_that_cannot_start_ends_all_with_its_code() -> None:
    waits = READY + "sys.stdin.read()"
    with trio.fail_after(60):
        supervisor = ProcessSupervisor({1: child(waits), 2: child("raise SystemExit(2)")}, lambda _: None)
        assert await supervisor.run() == 2


def test_lists_of_processes_are_one_list_with_the_process_of_each_row() -> None:
    pages = {2: {"rows": [{"a": 2}], "total": 1, "next": None}, 1: {"rows": [{"a": 1}], "total": 7, "next": 1}}
    assert together("sessions", pages, is_change=False) == {
        "rows": [{"a": 1, "process": 1}, {"a": 2, "process": 2}],
        "total": 8,
        "next": 1,
    }


def test_facts_are_those_of_the_first_process_and_for_each() -> None:
    facts = {1: {"pid": 10}, 2: {"pid": 20}}
    assert together("status", facts, is_change=False) == {"pid": 10, "processes": {"1": {"pid": 10}, "2": {"pid": 20}}}
    assert together("evaluate", facts, is_change=False) == {"pid": 10}
