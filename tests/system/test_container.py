"""The image: built as the page of operators says, and run as the compose file of two domains does."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.containers import IMAGE, CannotRunError, Podman

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose" / "two-domains"
CONFIG = "/etc/trapezoid/node.toml"
PATIENCE_SECONDS = 60.0
pytestmark = [pytest.mark.endurance, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    try:
        engine = Podman(tmp_path_factory.mktemp("podman") / "engine")
    except CannotRunError as reason:
        pytest.skip(str(reason))
    try:
        engine.make_base()
        engine.build()
        yield engine
    except CannotRunError as reason:
        pytest.skip(str(reason))
    finally:
        engine.end()


@pytest.fixture(scope="module")
def domains(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Both domains of the compose file, run with what it says of them; the services by name."""
    folder = tmp_path_factory.mktemp("compose") / "two-domains"
    shutil.copytree(COMPOSE, folder)
    run = {**podman.environment, "RUN": str(podman.wrapper), "RUN_OPTIONS": "--no-healthcheck"}
    done = subprocess.run([folder / "prepare.sh"], env=run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    network = ["none"]
    if podman.has_names and podman("network", "create", "domains").returncode == 0:
        network = ["domains"]
    for name, one in services.items():
        volumes = [word for volume in one["volumes"] for word in ("-v", volume.replace("./", f"{folder}/"))]
        started = podman(
            *("run", "--detach", "--name", name, "--health-interval", "disable", "--network", *network),
            *(("--read-only",) if one["read_only"] else ()),
            *(word for place in one["tmpfs"] for word in ("--tmpfs", place)),
            *(word for right in one["cap_drop"] for word in ("--cap-drop", right)),
            *(word for option in one["security_opt"] for word in ("--security-opt", option)),
            *("--stop-timeout", one["stop_grace_period"].removesuffix("s"), *volumes, one["image"]),
        )
        assert started.returncode == 0, started.stderr
        _until_ready(podman, name)
    return {**services, "network": network[0]}


def _until_ready(podman: Podman, name: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while podman("exec", name, "trapezoid", "node", "summary", "--config", CONFIG, "--json").returncode:
        logs = podman("logs", name)
        assert time.monotonic() < deadline, logs.stdout + logs.stderr


def test_image_runs_as_nobody_in_particular_with_a_health_check(podman: Podman) -> None:
    [facts] = json.loads(podman("image", "inspect", IMAGE).stdout)
    assert facts["Config"]["User"] == "10001"
    assert facts["Config"]["Entrypoint"] == ["trapezoid"]
    assert "summary" in " ".join((facts.get("HealthCheck") or facts.get("Healthcheck"))["Test"])
    shown = podman("run", "--rm", "--no-healthcheck", "--network", "none", IMAGE, "--version")
    assert shown.stdout.startswith("trapezoid "), shown.stderr


def test_node_has_no_rights_and_writes_nothing_but_its_data(podman: Podman, domains: dict[str, Any]) -> None:
    status = podman("exec", "a.example", "cat", "/proc/1/status").stdout
    facts = dict(line.split(":", 1) for line in status.splitlines())
    assert facts["Uid"].split() == ["10001"] * 4
    assert (int(facts["CapEff"], 16), int(facts["CapBnd"], 16), int(facts["NoNewPrivs"])) == (0, 0, 1)
    for place in ("/etc/x", "/etc/trapezoid/x", "/var/x", "/usr/local/x"):
        assert "Read-only file system" in podman("exec", "a.example", "touch", place).stderr, place
    changed = {line.split("/")[1] for line in podman("diff", "a.example").stdout.splitlines()}
    assert changed <= {"etc", "var", "run"}, "places of mounts, and nothing else"


def test_health_check_asks_the_node(podman: Podman, domains: dict[str, Any]) -> None:
    healthy = podman("healthcheck", "run", "a.example")
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr


def test_two_domains_of_the_compose_file_federate(podman: Podman, domains: dict[str, Any]) -> None:
    if domains["network"] == "none":
        pytest.skip("networks of podman have no names here: netavark and aardvark-dns are not installed")
    checked = podman(
        "exec", "a.example", "trapezoid", "peer", "check", "b.example", "--config", CONFIG, "--connect", "--json"
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["verdict"] == "ok"


def test_node_that_is_stopped_drains_and_ends_with_0(podman: Podman, domains: dict[str, Any]) -> None:
    podman("stop", "b.example")
    [facts] = json.loads(podman("inspect", "b.example").stdout)
    assert facts["State"]["ExitCode"] == 0
    assert "no message is lost" in podman("logs", "b.example").stderr
