"""`trapezoid node list` and `node remove`, and what `check` says about an engine and the nodes that share it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from interop.free_ports import free_ports
from msg_node.cluster.names import Names, NodeFacts
from msg_node.identity.client_store import ClientStore
from msg_node.identity.core.local_clients import LocalClient
from msg_node.identity.engine_clients import EngineClients
from msg_node.identity.engine_users import EngineUsers
from msg_node.identity.user_store import LocalUser, UserStore
from msg_node.kernel.node_figures import NodeFigures
from msg_node.registries.engine_guids import EngineGuids
from msg_node.registries.guid_store import GuidStore, Kept
from msg_node.settings.load import load_settings
from msg_node.storage.engine import Engine
from msg_node.wiring import meaning
from msg_node.wiring.accounts import records_for_commands
from msg_node.wiring.cluster import node_facts
from protofly.guid_record import Mark
from tests.support.postgres import PASSWORD, Postgres
from trapezoid.commands import app

SETTINGS = """
[node]
domain = "a.example"
name = "mn-1"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[storage]
engine = "postgresql://trapezoid@127.0.0.1:{port}/{database}"
tls = "off"
"""

Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def config(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    path = tmp_path / "node.toml"
    path.write_text(SETTINGS.format(port=postgres.port, database=postgres.new_database()))
    return path


@pytest.fixture
def names(postgres: Postgres, config: Path) -> Iterator[Names]:
    database = config.read_text().split("/")[-1].split('"')[0]
    names = Names(Engine(postgres.options(database)))
    names.take("mn-2", None, "elsewhere", facts_of(config))
    names.close()
    yield names
    names.close()


def facts_of(config: Path) -> NodeFacts:
    """What a node with these settings would say about itself."""
    settings = load_settings(config)
    return node_facts(settings, policy=meaning.build_gate(settings).policies.revision)


def run(config: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, "--config", str(config)])
    return done.exit_code, done.output


def checked(config: Path, part: str) -> dict[str, Any]:
    _, output = run(config, "check", "--json")
    return next(one for one in json.loads(output)["checks"] if one["part"] == part)


def finding(config: Path) -> dict[str, Any]:
    return checked(config, "storage")


def test_nodes_are_listed_with_their_state_and_what_they_run(config: Path, names: Names) -> None:
    code, output = run(config, "node", "list", "--json")
    assert code == 0
    [row] = json.loads(output)
    assert row.pop("age_seconds") < 5
    assert row.pop("version")
    assert row.pop("host")
    assert {name: row.pop(name) for name in NodeFigures.__struct_fields__}["live_sessions"] == 0
    assert row == {"node": "mn-2", "state": "running", "epoch": 1, "endpoint": "ws://127.0.0.1:0/ws"}
    names.leave("mn-2", 1)
    names.close()
    assert json.loads(run(config, "node", "list", "--json")[1])[0]["state"] == "stopped"


def test_the_list_has_the_figures_of_each_node_and_shows_people_the_most_important(config: Path, names: Names) -> None:
    figures = NodeFigures(live_sessions=7, delivered=12, problems=1)
    names.renew("mn-2", 1, msgspec.structs.replace(facts_of(config), figures=figures))
    names.close()
    [row] = json.loads(run(config, "node", "list", "--json")[1])
    assert (row["live_sessions"], row["delivered"], row["problems"]) == (7, 12, 1)
    head, _ = run(config, "node", "list")[1].splitlines()
    assert "live sessions" in head
    assert "delivered" not in head


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ('host = "0.0.0.0"\nport = 8443', f"ws://{socket.gethostname()}:8443/ws"),
        ('host = "::"\nport = 8443', f"ws://{socket.gethostname()}:8443/ws"),
        ('host = "::1"\nport = 8443', "ws://[::1]:8443/ws"),
        ('host = "10.0.0.7"\nport = 8443', "ws://10.0.0.7:8443/ws"),
    ],
)
def test_a_node_that_listens_everywhere_is_listed_with_the_name_of_its_machine(
    config: Path, listen: str, endpoint: str
) -> None:
    config.write_text(config.read_text().replace("port = 0", listen))
    assert facts_of(config).endpoint == endpoint


def test_node_is_removed_when_it_has_stopped(config: Path, names: Names) -> None:
    code, output = run(config, "node", "remove", "mn-2")
    assert (code, "has not stopped" in output) == (2, True)
    names.leave("mn-2", 1)
    names.close()
    assert run(config, "node", "remove", "mn-2")[0] == 0
    assert json.loads(run(config, "node", "list", "--json")[1]) == []
    assert run(config, "node", "remove", "mn-2")[0] == 2


def test_check_states_what_an_acknowledged_change_survives_and_who_else_runs(config: Path, names: Names) -> None:
    found = finding(config)
    assert found["code"] == "ok"
    assert "a change is acknowledged when it is on the disk" in found["text"]
    assert "other running nodes: mn-2" in found["text"]


@pytest.mark.parametrize("member", ["root", "policy", "limits"])
def test_check_refuses_a_node_that_differs_from_a_running_one(config: Path, names: Names, member: str) -> None:
    names.renew("mn-2", 1, msgspec.structs.replace(facts_of(config), **{member: "other"}))
    found = finding(config)
    assert (found["code"], found["level"]) == ("cluster-differs", "problem")
    assert "node mn-2" in found["text"]
    names.leave("mn-2", 1)
    names.close()
    assert finding(config)["code"] == "ok"  # a node that does not run may be changed


def test_check_compares_a_node_with_others_and_not_with_its_own_processes(config: Path, names: Names) -> None:
    facts = msgspec.structs.replace(facts_of(config), bus="unix:/run/2.sock", policy="before a reload")
    for name in ("mn-1-p2", "mn-1-p3"):
        assert names.take(name, None, "a", facts) is not None
    (config.parent / "data" / "processes" / "2").mkdir(parents=True)
    found = finding(config)
    assert (found["code"], "mn-1-p3" in found["text"], "mn-1-p2" in found["text"]) == ("cluster-differs", True, False)
    (config.parent / "data" / "processes" / "3").mkdir()
    assert finding(config)["code"] == "ok"  # as after they were killed: it may start


def test_check_names_the_engine_that_is_not_there_and_what_to_do(config: Path) -> None:
    config.write_text(SETTINGS.format(port=free_ports(1)[0], database="state"))
    found = finding(config)
    assert (found["code"], found["level"]) == ("engine-unreachable", "problem")
    assert "listen_addresses" in found["action"]
    assert PASSWORD not in str(found)


def test_nodes_of_an_embedded_state_are_not_listed(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(SETTINGS.split("[storage]")[0])
    code, output = run(config, "node", "list")
    assert (code, "storage.engine is not set" in output) == (2, True)


def test_what_is_left_in_files_of_before_the_engine_is_said_and_taken_over_once(
    config: Path, postgres: Postgres
) -> None:
    data_dir = config.parent / "data"
    data_dir.mkdir(mode=0o700)
    ana, bo, old = (LocalUser(name=name, hash=f"h-{name}") for name in ("ana", "bo", "old"))
    client = LocalClient(name="fridge", kind="device", runtime="runtime://a.example/fridge")
    mark = Mark(5, "d")
    with UserStore(data_dir / "users.sqlite") as users:
        users.replace(None, ana)
        users.replace(None, old)
    with ClientStore(data_dir / "clients.sqlite") as clients:
        clients.replace("fridge", None, client)
    with GuidStore(data_dir / "guids.sqlite") as guids, guids._file.changed() as database:
        for guid in ("g-1", "g-2", "g-3"):
            database.execute("INSERT INTO guid VALUES (?, 'jwt', 5, 'd', ?, 1.0)", (guid, int(guid == "g-3")))
    with records_for_commands(load_settings(config)) as records:
        engine_users, engine_guids = EngineUsers(records), EngineGuids(records)
        engine_users.replace(None, bo)
        engine_users.replace(None, changed := msgspec.structs.replace(old, hash="newer"))
        engine_guids.adopt("g-2", Kept("newer", Mark(9, "n"), 2.0))
        engine_guids.adopt("g-3", Kept("newer", Mark(9, "n"), 2.0))
        found = checked(config, "accounts")
        assert (found["code"], found["level"]) == ("not-adopted", "warning")
        assert "2 users, 1 clients and 3 GUIDs" in found["text"]
        code, output = run(config, "state", "adopt", "--json")
        assert (code, json.loads(output)) == (0, {"users": 1, "clients": 1, "guids": 2})
        assert engine_users.load() == [ana, bo, changed]
        assert EngineClients(records).load() == [client]
        assert engine_guids.load("g-1") == Kept("jwt", mark, 1.0)
        assert engine_guids.load("g-2") == Kept("newer", Mark(9, "n"), 2.0)
        assert engine_guids.load("g-3") == Kept("jwt", Mark(5, "d", is_revoked=True), 1.0), "a revocation counts"
    assert checked(config, "accounts")["code"] == "ok"
    assert json.loads(run(config, "state", "adopt", "--json")[1]) == {"users": 0, "clients": 0, "guids": 0}
    assert (data_dir / "users.sqlite.adopted").is_file()
