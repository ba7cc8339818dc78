"""A node with local users who log in with a password, and the commands that change them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from typer.testing import CliRunner

from msg_node.identity.password_hash import HashCost
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.identity import IdentitySettings, PasswordSettings, TokenSettings
from msg_node.settings.tables.listeners import ListenSettings
from msg_node.settings.tables.node import NodeSettings
from msg_node.settings.tables.sessions import SessionSettings
from msg_node.wiring.identity import IdentityServices
from protofly.documents import SigningKey
from stubkit.keys import KeyRing, make_key, save_keys
from tests.support.runtime_rig import DOMAIN, Json, Runtime, RuntimeRig, runtime_rig
from trapezoid.commands import app

IDM = f"domain://idm.{DOMAIN}"
COST = HashCost(19_456, 2)
PASSWORD = "correct horse"


def settings_in(folder: Path) -> Settings:
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder),
        listen=ListenSettings(insecure_plaintext=True),
        sessions=SessionSettings(anonymous=True),
        identity=IdentitySettings(
            tokens=TokenSettings(keys_dir=folder / "keys"),
            passwords=PasswordSettings(memory_kib=COST.memory_kib, passes=COST.passes),
        ),
    )


@asynccontextmanager
async def node_with_users(folder: Path) -> AsyncIterator[tuple[RuntimeRig, IdentityServices]]:
    settings, made = settings_in(folder), list[IdentityServices]()

    def services(state: NodeState) -> dict[str, Service]:
        made.append(IdentityServices(settings, state, SigningKey.from_seed("node-1", bytes(32))))
        return dict(made[0].services)

    async with (
        runtime_rig(folder, credentials=build_credentials(settings), services_at=services) as rig,
        trio.open_nursery() as nursery,
    ):
        made[0].connect(rig.bus)
        await nursery.start(made[0].run)
        yield rig, made[0]
        nursery.cancel_scope.cancel()


def folder_with_ana(folder: Path) -> Path:
    """Make the data folder of a node with the user ana, and its settings as a file."""
    save_keys(KeyRing(token=(make_key("token"),)), folder / "keys")
    (folder / "node.toml").write_text(
        f'[node]\ndomain = "{DOMAIN}"\ndata_dir = "{folder}"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
        f'[identity.tokens]\nkeys_dir = "{folder / "keys"}"\n'
        f"[identity.passwords]\nmemory_kib = {COST.memory_kib}\npasses = {COST.passes}\n"
    )
    assert user(folder, "add", "ana", "--roles", "guard,", "--role", "guard", "--stdin", typed=PASSWORD) == 0
    return folder


def user(folder: Path, *arguments: str, typed: str = "") -> int:
    config = ["--config", str(folder / "node.toml"), "--json"]
    return CliRunner().invoke(app, ["user", *arguments, *config], input=f"{typed}\n").exit_code


async def log_in(runtime: Runtime, name: str = "ana", password: object = PASSWORD) -> Json:
    credentials = {"kind": "password", "user": name, "password": password}
    return await runtime.ask("execute", IDM, {"method": "login", "params": {"credentials": credentials}})
