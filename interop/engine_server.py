"""A PostgreSQL server of a laboratory: its files in a folder, its processes started and stopped here.

PostgreSQL refuses to run as root, so it then runs as another user, to whom the folder belongs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from interop.domain_files import HOST
from interop.patience import Patience
from protofly.errors import SettingsError

INSTALL: Final = "apt-get install -y postgresql"
PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02
_USERS: Final = ("postgres", "nobody")


def engine_programs() -> Path | None:
    """The folder of the programs of PostgreSQL, those of the newest version; None if it is not installed."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


def engine_owner() -> str:
    """The user that a server runs as; "" for our own. Raises SettingsError if there is none."""
    if os.getuid():
        return ""
    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise SettingsError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}")


class EngineServer:
    """One server process after the other over the same files.

    Args:
        folder: For its files.
        port: Where it listens on loopback.
        user: Its superuser, who may connect with the password in a file.
    """

    def __init__(self, folder: Path, port: int, user: str) -> None:
        """Raises SettingsError if PostgreSQL is not installed, or nobody may run it."""
        programs = engine_programs()
        if programs is None:
            raise SettingsError(f"several nodes of a domain need PostgreSQL: {INSTALL}")
        self.folder = folder
        self.port = port
        self.user = user
        self.programs = programs
        self._as: dict[str, Any] = {}
        owner = engine_owner()
        if owner:
            self._as = {"user": owner, "group": pwd.getpwnam(owner).pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    def give(self, path: Path) -> None:
        """Let the server own a file or folder."""
        if self._as:
            shutil.chown(path, self._as["user"], self._as["group"])

    def create(self, password: str) -> None:
        """Make the files of a new server, unless they are there. Its database is `postgres`, in UTF-8.

        Raises:
            SettingsError: A folder on the way is closed to the user of the server, or `initdb` failed.
        """
        if (self.folder / "data").exists():
            return
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(password)
        for path in (self.folder, secret):
            self.give(path)
        command = [
            str(self.programs / "initdb"), "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={self.user}",
            "--auth=scram-sha-256", f"--pwfile={secret}", "-D", str(self.folder / "data"),
        ]  # fmt: skip
        self.run_program(command)

    def run_program(self, command: list[str]) -> None:
        """Run one of the programs as the user of the server. Raises SettingsError with its last line if it fails."""
        done = subprocess.run(  # noqa: S603 - a program of PostgreSQL
            command, check=False, cwd="/", capture_output=True, timeout=PATIENCE_SECONDS, **self._as
        )
        if done.returncode:
            detail = done.stderr.decode(errors="replace").strip()
            raise SettingsError(f"{Path(command[0]).name} of {self.folder}: {detail}")

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers.

        Raises:
            SettingsError: It has ended, or does not answer; what it wrote is in `log` of its folder.
        """
        chosen = {"port": str(self.port), "listen_addresses": HOST, "unix_socket_directories": ""}
        chosen |= {"max_connections": "60", "shared_buffers": "16MB", "logging_collector": "off", **settings}
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data")]
        command += [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - as above
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as
            )
        ready = [str(self.programs / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port), "-t", "1"]
        patience = Patience(PATIENCE_SECONDS)
        while not patience.is_over() and self._process.poll() is None:
            if subprocess.run(ready, check=False).returncode == 0:  # noqa: S603 - as above; it waits for a second
                return
            time.sleep(_LOOK_SECONDS)
        raise SettingsError(f"PostgreSQL does not answer; {self.folder / 'log'} says why")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it: SIGQUIT at once, so that it recovers at the next start; SIGINT in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End its first process by SIGKILL; returns once all others have noticed, so that it can be started again."""
        if self._process is not None:
            others = self._others()
            self.stop(signal.SIGKILL)
            patience = Patience(PATIENCE_SECONDS)
            while not patience.is_over() and any(Path("/proc", one).exists() for one in others):
                time.sleep(_LOOK_SECONDS)

    def pause(self) -> None:
        """Stop all of its processes, so that it is silent and closes nothing, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let paused processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(which)  # first of all: it starts no others then
            for pid in self._others():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), which)

    def _others(self) -> list[str]:
        """The processes that the first one has started."""
        assert self._process is not None, "it runs"
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
