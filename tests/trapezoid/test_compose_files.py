"""The files of `deploy/compose` and `deploy/container`: hardened, whole, and without a place that images come from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from msg_node.settings.load import load_settings
from trapezoid.checking import check_node

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = DEPLOY / "compose"
SCENES = sorted(path.name for path in COMPOSE.iterdir())
IMAGE = "localhost/trapezoid"
LOOPBACK_PORT = re.compile(r"127\.0\.0\.1:\d+:\d+")


def services(scene: str) -> dict[str, dict[str, Any]]:
    """The services of a compose file, their shared parts merged."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / scene / "compose.yaml").read_text())["services"]
    return found


def nodes(scene: str) -> dict[str, dict[str, Any]]:
    """Those that run our image."""
    return {name: one for name, one in services(scene).items() if one["image"] == IMAGE}


def prepared(scene: str, folder: Path) -> Path:
    """A copy of the scene with everything that its script makes."""
    shutil.copytree(COMPOSE / scene, folder / scene)
    program = Path(sys.executable).with_name("trapezoid")
    done = subprocess.run(
        [folder / scene / "prepare.sh"],
        env={"PATH": os.environ["PATH"], "TRAPEZOID": str(program)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder / scene


def test_there_are_two_domains_and_a_cluster_of_three() -> None:
    assert {scene: len(nodes(scene)) for scene in SCENES} == {"two-domains": 2, "cluster": 3}


@pytest.mark.parametrize("scene", SCENES)
def test_nodes_run_with_a_read_only_root_without_rights_and_long_enough_to_drain(scene: str) -> None:
    for name, one in nodes(scene).items():
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges"], name
        assert not {"privileged", "cap_add", "user", "network_mode", "devices"} & set(one), name
        assert int(one["stop_grace_period"].removesuffix("s")) >= 20, name
        assert "seccomp" not in str(one), name
        assert {volume.split(":")[1] for volume in one["volumes"]} == {"/etc/trapezoid", "/var/lib/trapezoid"}
        assert all(LOOPBACK_PORT.fullmatch(port) for port in one["ports"]), name


@pytest.mark.parametrize("scene", SCENES)
def test_every_volume_and_every_service_that_is_named_is_there(scene: str) -> None:
    whole = yaml.safe_load((COMPOSE / scene / "compose.yaml").read_text())
    for one in services(scene).values():
        named = {volume.split(":")[0] for volume in one["volumes"]}
        assert {name for name in named if not name.startswith("./")} <= set(whole["volumes"])
        assert set(one.get("depends_on", ())) <= set(services(scene))


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_what_is_mounted_is_what_the_script_makes_and_the_settings_are_good(
    scene: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepared(scene, tmp_path)
    for number, (name, one) in enumerate(nodes(scene).items()):
        mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in one["volumes"]}
        etc = folder / mounted["/etc/trapezoid"]
        with monkeypatch.context() as environment:
            data = tmp_path / f"data-{number}"
            data.mkdir(mode=0o700)
            variables = {**one.get("environment", {}), "TRAPEZOID__NODE__DATA_DIR": str(data)}
            variables |= {"TRAPEZOID__LISTEN__HOST": "127.0.0.1", "TRAPEZOID__SITE__HOST": "127.0.0.1"}
            variables |= {"TRAPEZOID__LISTEN__PORT": "0", "TRAPEZOID__SITE__PORT": "0"}
            for variable, value in variables.items():
                environment.setenv(variable, value)
            settings = load_settings(etc / "node.toml")
            if "engine" not in services(scene):
                assert [finding.line for finding in check_node(settings) if not finding.is_good] == []
            assert settings.node.name in {name, "mn-1"}
            if settings.cluster.key_file is not None:
                assert settings.cluster.listen == f"{name}:8450"
                assert len(settings.cluster.key_file.read_bytes()) == 32
        assert not list(etc.rglob("root-*.pem")) + list(etc.rglob("pkg-*.pem")) + list(etc.rglob("ca.key.pem"))


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_script_does_not_overwrite_what_it_has_made(scene: str, tmp_path: Path) -> None:
    folder = prepared(scene, tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again = subprocess.run([folder / "prepare.sh"], env={"PATH": os.environ["PATH"], "TRAPEZOID": "false"}, check=False)
    assert again.returncode != 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_no_file_names_a_place_that_images_come_from() -> None:
    """A reference with a host has a point or a port before its first `/`; `localhost` is what was built here."""
    hosts = []
    for path in [*DEPLOY.rglob("Containerfile"), *DEPLOY.rglob("*.yaml")]:
        for image in re.findall(r"^\s*(?:image:|FROM|ARG BASE=)\s*(\S+)", path.read_text(), re.MULTILINE):
            host, slash, _ = image.partition("/")
            if slash and host != "localhost" and re.search(r"[.:]", host):
                hosts.append(image)
    assert hosts == []
