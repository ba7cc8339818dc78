"""`check` and `serve` judge alike: what the one calls a problem the other does not start with, by the same code."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

from interop.free_ports import free_ports
from msg_node.running import running_alone
from trapezoid import serving
from trapezoid.commands import app

DOMAIN = "a.example"


@dataclass
class Rig:
    """A node that `check` finds good, until a test spoils something."""

    folder: Path
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        run("keys", "init", DOMAIN, "--keys", self.folder / "keys")
        places = ("--keys", self.folder / "keys", "--site", self.folder / "site", "--url", f"https://{DOMAIN}:8444")
        assert run("publish", DOMAIN, *places)[0] == 0
        self.issue("cert", DOMAIN, f"mn.{DOMAIN}")
        identity = {"port": 0, "certificate": "cert.pem", "key": "cert.key"}
        self.settings = {
            "node": {"domain": DOMAIN, "data_dir": "data"},
            "listen": dict(identity),
            "site": {**identity, "public_url": f"https://{DOMAIN}:8444"},
            "publish": {"keys_dir": "keys", "site_dir": "site", "endpoint_url": f"wss://mn.{DOMAIN}/link"},
        }

    @property
    def config(self) -> Path:
        tables = (
            f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in members.items())
            for name, members in self.settings.items()
        )
        path = self.folder / "node.toml"
        path.write_text("\n".join(tables))
        return path

    def issue(self, name: str, *hosts: str, days: float = 30, is_early: bool = False) -> None:
        now = dt.datetime.now(dt.UTC)
        begin = now + dt.timedelta(days=1) if is_early else now - dt.timedelta(days=30)
        end = now + dt.timedelta(days=days)
        leaf = self.authority.issue_cert(*hosts, not_before=begin, not_after=end)
        (self.folder / f"{name}.pem").write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
        (self.folder / f"{name}.key").touch(mode=0o600)
        leaf.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
        (self.folder / f"{name}.key").chmod(0o600)

    def check(self) -> tuple[int, dict[str, dict[str, Any]]]:
        code, output = run("check", "--config", self.config, "--json")
        return code, {one["part"]: one for one in json.loads(output)["checks"]}

    def refusal(self) -> tuple[int, str]:
        """Exit code and log of a start, in a fork of this process: it has loaded all that a new one would load."""
        log = self.folder / "start.log"
        child = os.fork()
        if child == 0:
            code = 70
            try:
                with log.open("wb") as file:
                    os.dup2(file.fileno(), 2)
                sys.stderr = os.fdopen(2, "w", buffering=1)
                signal.alarm(60)
                serving.main(["--config", str(self.config)])
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                sys.stderr.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), log.read_text()

    def serve(self) -> tuple[int, str]:
        """Exit code 0 means that it got ready."""
        command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(self.config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            if child.stdout.readline().startswith("ready"):
                child.send_signal(signal.SIGTERM)
            _, log = child.communicate(timeout=60)
        return child.returncode, log


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def expired(rig: Rig) -> None:
    rig.issue("cert", DOMAIN, f"mn.{DOMAIN}", days=-1)


def revoked_stub(rig: Rig) -> None:
    site = rig.folder / "site"
    (digest,) = (path.stem for path in (site / "module").iterdir())
    run("publish", DOMAIN, "--keys", rig.folder / "keys", "--site", site, "--revoke", digest)


def early(rig: Rig) -> None:
    rig.issue("cert", DOMAIN, f"mn.{DOMAIN}", is_early=True)


def foreign_listener(rig: Rig) -> None:
    rig.issue("other", DOMAIN, "mn.b.example", f"x.mn.{DOMAIN}")
    rig.settings["listen"] |= {"certificate": "other.pem", "key": "other.key"}


def foreign_site(rig: Rig) -> None:
    rig.issue("other", f"mn.{DOMAIN}", f"{DOMAIN}.evil.example", f"*.{DOMAIN}")
    rig.settings["site"] |= {"certificate": "other.pem", "key": "other.key"}


def foreign_url(rig: Rig) -> None:
    rig.settings["site"]["public_url"] = "https://www.a.example"


def another_key(rig: Rig) -> None:
    rig.issue("other", DOMAIN)
    rig.settings["site"]["key"] = "other.key"


def not_pinned(rig: Rig) -> None:
    rig.settings["publish"]["endpoint_spki"] = ["A" * 43]


def open_tls_key(rig: Rig) -> None:
    (rig.folder / "cert.key").chmod(0o640)


def open_folder_of_tls_key(rig: Rig) -> None:
    (rig.folder / "tls").mkdir(mode=0o700)
    for name in ("cert.pem", "cert.key"):
        (rig.folder / name).rename(rig.folder / "tls" / name)
    (rig.folder / "tls").chmod(0o777)
    for table in ("listen", "site"):
        rig.settings[table] |= {"certificate": "tls/cert.pem", "key": "tls/cert.key"}


def open_folder_of_keys(rig: Rig) -> None:
    (rig.folder / "keys").chmod(0o777)


def open_live_key(rig: Rig) -> None:
    next((rig.folder / "keys").glob("live-*.pem")).chmod(0o644)


def keys_of_another_domain(rig: Rig) -> None:
    run("keys", "init", "b.example", "--keys", rig.folder / "b")
    rig.settings["publish"]["keys_dir"] = "b"


def missing_certificate(rig: Rig) -> None:
    (rig.folder / "cert.pem").unlink()


def missing_key(rig: Rig) -> None:
    (rig.folder / "cert.key").unlink()


def unreadable_certificate(rig: Rig) -> None:
    (rig.folder / "cert.pem").unlink()
    (rig.folder / "cert.pem").mkdir()


def nonsense_certificate(rig: Rig) -> None:
    (rig.folder / "cert.pem").write_text("nonsense")


def data_is_a_file(rig: Rig) -> None:
    (rig.folder / "data").write_text("a file")


def data_below_a_file(rig: Rig) -> None:
    (rig.folder / "file").touch()
    rig.settings["node"]["data_dir"] = "file/data"


def data_where_nobody_may_write(rig: Rig) -> None:
    rig.settings["node"]["data_dir"] = "/proc/data"


def data_into_which_others_write(rig: Rig) -> None:
    (rig.folder / "data").mkdir()
    (rig.folder / "data").chmod(0o777)


def secret_is_a_folder(rig: Rig) -> None:
    (rig.folder / "data" / "secret").mkdir(parents=True, mode=0o700)
    (rig.folder / "data").chmod(0o700)


def open_secret(rig: Rig) -> None:
    (rig.folder / "data").mkdir(mode=0o700)
    (rig.folder / "data" / "secret").write_bytes(bytes(32))
    (rig.folder / "data" / "secret").chmod(0o644)


def spool_is_a_file(rig: Rig) -> None:
    (rig.folder / "spool").touch()
    rig.settings["records"] = {"spool_dir": "spool"}


def missing_authorities(rig: Rig) -> None:
    rig.settings["discovery"] = {"ca_file": "none.pem"}


def nothing_published(rig: Rig) -> None:
    (rig.folder / "site" / "publication.json").unlink()


def one_port_for_both(rig: Rig) -> None:
    [port] = free_ports(1)
    for table in ("listen", "site"):
        rig.settings[table]["port"] = port


PROBLEMS: list[tuple[Callable[[Rig], None], str, str]] = [
    (expired, "listen.certificate", "certificate-expired"),
    (early, "site.certificate", "certificate-not-yet-valid"),
    (foreign_listener, "listen.certificate", "certificate-foreign"),
    (foreign_site, "site.certificate", "certificate-foreign"),
    (foreign_url, "site.certificate", "certificate-foreign"),
    (another_key, "site.certificate", "key-mismatch"),
    (not_pinned, "listen.certificate", "certificate-not-pinned"),
    (open_tls_key, "listen.certificate", "key-open"),
    (open_folder_of_tls_key, "site.certificate", "folder-open"),
    (open_folder_of_keys, "publish", "folder-open"),
    (open_live_key, "publish", "key-open"),
    (keys_of_another_domain, "publish", "key-foreign"),
    (missing_certificate, "site.certificate", "missing"),
    (unreadable_certificate, "listen.certificate", "unreadable"),
    (missing_key, "site.certificate", "missing"),
    (nonsense_certificate, "listen.certificate", "certificate-malformed"),
    (data_is_a_file, "node.data_dir", "not-a-folder"),
    (data_below_a_file, "node.data_dir", "not-a-folder"),
    (data_where_nobody_may_write, "node.data_dir", "not-writable"),
    (data_into_which_others_write, "node.data_dir", "folder-open"),
    (secret_is_a_folder, "node.data_dir", "not-a-file"),
    (open_secret, "node.data_dir", "key-open"),
    (spool_is_a_file, "records.spool_dir", "not-a-folder"),
    (missing_authorities, "discovery.ca_file", "missing"),
    (nothing_published, "publish", "settings"),
    (one_port_for_both, "site", "port-in-use"),
]


def test_a_node_that_is_found_good_starts(rig: Rig) -> None:
    code, checks = rig.check()
    assert code == 0, checks
    assert {one["level"] for one in checks.values()} == {"ok"}
    returncode, log = rig.serve()
    assert returncode == 0, log
    assert "WARNING" not in log.replace("WARNING federation", "")


@pytest.mark.parametrize(("spoil", "part", "word"), PROBLEMS, ids=[spoil.__name__ for spoil, _, _ in PROBLEMS])
def test_a_problem_is_named_by_both_and_keeps_the_node_from_starting(
    rig: Rig, spoil: Callable[[Rig], None], part: str, word: str
) -> None:
    spoil(rig)
    code, checks = rig.check()
    found = checks[part]
    assert (code, found["level"], found["code"]) == (1, "problem", word)
    assert found["file"] == "" or found["file"] in found["text"]
    returncode, log = rig.refusal()
    assert returncode == 2, log
    assert f"{part}: {found['text']} [{word}]" in log
    assert "Traceback" not in log


def test_a_port_of_somebody_else_is_a_problem_to_both(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        rig.settings["site"]["port"] = taken.getsockname()[1]
        code, checks = rig.check()
        returncode, log = rig.serve()
    assert (code, checks["site"]["code"], returncode) == (1, "port-in-use", 2)
    assert "stop the program that listens there" in log


@contextmanager
def held(data_dir: Path, port: int) -> Iterator[None]:
    """Another process that holds the data folder, as a node does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with running_alone(data_dir, (port,)):
            os.write(writing, b"x")
            signal.pause()
        os._exit(0)
    try:
        os.read(reading, 1)
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_check_beside_the_running_node_knows_its_ports_and_no_others(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_server(("127.0.0.1", 0)) as theirs:
        port, other = ours.getsockname()[1], theirs.getsockname()[1]
        rig.settings["listen"]["port"] = port
        with held(rig.folder / "data", port):
            code, checks = rig.check()
            assert code == 0, checks
            assert "in use by this node" in checks["listen"]["text"]
            rig.settings["listen"]["port"] = other
            assert rig.check()[1]["listen"]["code"] == "port-in-use"
            rig.settings["listen"]["port"] = 0
            returncode, log = rig.serve()
            assert (returncode, "is in use by a running node" in log) == (2, True)
        rig.settings["listen"]["port"] = port
        assert rig.check()[1]["listen"]["code"] == "port-in-use"  # it was killed, and somebody has its port


@pytest.mark.parametrize(
    ("spoil", "part", "word"),
    [
        (lambda rig: (rig.folder / "keys").chmod(0o755), "publish", "folder-readable"),
        (lambda rig: (rig.folder / "data").mkdir(mode=0o755), "node.data_dir", "folder-readable"),
        (lambda rig: rig.issue("cert", DOMAIN, f"mn.{DOMAIN}", days=2), "site.certificate", "certificate-expiring"),
        (lambda rig: rig.settings.update(compat={"profile": "rethink"}), "compat.profile", "insecure"),
        (revoked_stub, "publish", "revoked"),
    ],
    ids=["keys", "data", "certificate", "profile", "revoked"],
)
def test_a_warning_is_shown_by_both_and_the_node_starts(
    rig: Rig, spoil: Callable[[Rig], object], part: str, word: str
) -> None:
    spoil(rig)
    code, checks = rig.check()
    assert (code, checks[part]["level"], checks[part]["code"]) == (0, "warning", word)
    returncode, log = rig.serve()
    assert returncode == 0
    assert f"WARNING trapezoid.check: {part}: " in log
    assert f"[{word}]" in log


def test_names_of_certificates_are_compared_as_clients_compare_them(rig: Rig) -> None:
    rig.issue("cert", f"*.{DOMAIN}", DOMAIN.upper())
    assert rig.check()[0] == 0
    rig.settings["publish"]["endpoint_url"] = "wss://127.0.0.1:8443/link"
    assert rig.check()[1]["listen.certificate"]["code"] == "certificate-foreign"
    rig.issue("cert", DOMAIN, "127.0.0.1")
    assert rig.check()[0] == 0
    rig.settings["publish"]["endpoint_url"] = f"wss://x.y.{DOMAIN}/link"
    rig.issue("cert", DOMAIN, f"*.{DOMAIN}")
    assert rig.check()[1]["listen.certificate"]["code"] == "certificate-foreign"
