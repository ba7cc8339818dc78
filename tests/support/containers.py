"""Podman with a store of its own, and the image of `deploy/container` built in it.

Images come from no registry unless the machine can reach one: the base is made by mmdebstrap then, and libraries are
downloaded by the pip of the machine. What a machine lacks is a reason to skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/trapezoid"
BASE = "localhost/base"
EXTRAS = ("mqtt", "cluster", "traces")
BUILD_SECONDS = 900


class CannotRunError(Exception):
    """This machine cannot run containers; the reason."""


class Podman:
    """Runs Podman with its store, networks and settings below one folder."""

    def __init__(self, folder: Path) -> None:
        """Raises CannotRunError."""
        program = shutil.which("podman")
        if program is None:
            raise CannotRunError("podman is not installed")
        self.folder = folder
        (folder / "networks").mkdir(parents=True)
        runtime = next((name for name in ("runc", "crun") if shutil.which(name, path=_PATH)), "")
        has_netavark = any(Path(place, "netavark").exists() for place in ("/usr/lib/podman", "/usr/libexec/podman"))
        config = folder / "containers.conf"
        config.write_text(
            f'[engine]\nruntime = "{runtime}"\nevents_logger = "file"\n'
            '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=2048:2048"]\n'
            f'[network]\nnetwork_config_dir = "{folder / "networks"}"\n'
            + ('network_backend = "netavark"\n' if has_netavark else "")
        )
        has_firewall = any(shutil.which(name, path=_PATH) for name in ("nft", "iptables"))  # netavark runs one of them
        self.has_names = has_netavark and has_firewall and Path("/usr/lib/podman/aardvark-dns").exists()
        self.environment = {**os.environ, "PATH": _PATH, "CONTAINERS_CONF": str(config)}
        self.wrapper = folder / "podman"
        self.wrapper.write_text(f'#!/bin/sh\nexec {program} --root {folder}/store --runroot {folder}/run "$@"\n')
        self.wrapper.chmod(0o755)

    def __call__(self, *words: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command of Podman, whatever becomes of it."""
        return subprocess.run(
            [str(self.wrapper), *map(str, words)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def make_base(self) -> None:
        """Make the image that ours is built on. Raises CannotRunError."""
        wanted = "python:3.11-slim-bookworm"
        if self("pull", "--quiet", wanted, seconds=300).returncode == 0:
            self("tag", wanted, BASE)
            return
        if shutil.which("mmdebstrap", path=_PATH) is None or os.geteuid() != 0:
            raise CannotRunError("the base image cannot be pulled, and mmdebstrap cannot make it")
        tar = self.folder / "base.tar"
        made = subprocess.run(
            ["mmdebstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm", str(tar)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
        if made.returncode:
            raise CannotRunError(f"mmdebstrap: {made.stderr[-300:]}")
        assert self("import", tar, BASE, seconds=300).returncode == 0
        tar.unlink()
        if self("run", "--rm", "--network", "none", BASE, "true").returncode:
            why = self("run", "--rm", "--network", "none", BASE, "true").stderr
            raise CannotRunError(f"podman does not run containers here: {why[-300:]}")

    def build(self) -> None:
        """Build the image as the page of operators says, with libraries that the pip of this machine has downloaded."""
        source, wheels = self.folder / "source", self.folder / "wheels"
        source.mkdir()
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, files.split("\0")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy(ROOT / name, source / name)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = [*project["dependencies"], *(one for name in EXTRAS for one in project["optional-dependencies"][name])]
        version = ["--python-version", "3.11", "--only-binary=:all:"] if sys.version_info[:2] != (3, 11) else []
        download = [sys.executable, "-m", "pip", "download", "-q", *version, "-d", str(wheels)]
        subprocess.run([*download, *wanted, "setuptools>=77", "wheel"], check=True, timeout=BUILD_SECONDS)
        done = self(
            *("build", "--format", "docker", "--isolation", "chroot", "-f", "deploy/container/Containerfile"),
            *("--build-arg", f"BASE={BASE}", "--build-arg", "PIP_OPTIONS=--no-index --find-links /wheels"),
            *("--volume", f"{wheels}:/wheels:ro", "--network", "host", "-t", IMAGE, source),
            seconds=BUILD_SECONDS,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def end(self) -> None:
        """End what runs, and remove everything."""
        self("rm", "--all", "--force", "--time", "5", seconds=120)
        self("network", "prune", "--force")
        self("rmi", "--all", "--force", seconds=120)
        shutil.rmtree(self.folder, ignore_errors=True)


_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
