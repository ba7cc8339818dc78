"""The units of `deploy/systemd` are what systemd accepts, and the node notifies it when it serves."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trapezoid.service_manager import notify_service_manager

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
ANALYZE = shutil.which("systemd-analyze") or ""
needs_systemd = pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not installed")


def analyze(*words: str, folder: Path) -> str:
    """What systemd says about our units, with a program in place of the one that an operator installs."""
    for unit in UNITS.iterdir():
        (folder / unit.name).write_text(unit.read_text().replace("/usr/local/bin/trapezoid", sys.executable))
    done = subprocess.run([ANALYZE, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_units_are_what_systemd_accepts_without_a_remark(tmp_path: Path) -> None:
    names = [f"./{unit.name}" for unit in UNITS.iterdir()]
    assert len(names) == 6
    assert analyze("verify", "--man=no", *names, folder=tmp_path) == ""


@needs_systemd
def test_unit_of_the_node_is_hardened(tmp_path: Path) -> None:
    said = analyze("security", "--offline=true", "--threshold=20", "./trapezoid.service", folder=tmp_path)
    assert "Overall exposure level for trapezoid.service" in said


@pytest.mark.parametrize("is_abstract", [False, True])
def test_service_manager_is_notified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"@{tmp_path.name}-{id(manager)}" if is_abstract else str(tmp_path / "notify")
        manager.bind("\0" + name[1:] if is_abstract else name)
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify_service_manager("READY=1")
        assert manager.recv(64) == b"READY=1"
        notify_service_manager("READY=1")
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(64)


def test_no_service_manager_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_service_manager("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify_service_manager("READY=1")
