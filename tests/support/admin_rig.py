"""The admin service over the state and bus of a rig, without the links, stubs and files of a whole node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import msgspec
import trio

from federation.core.interworking import Interworking
from msg_node.admin.admin_messages import AdminMessages
from msg_node.admin.admin_site import AdminSite
from msg_node.admin.administered import Administered
from msg_node.admin.administration import Administration
from msg_node.admin.core.admin_service import ADMIN, admin_service
from msg_node.admin.core.alarms import Alarms
from msg_node.admin.core.pep_service import pep_service
from msg_node.admin.core.traffic import Traffic
from msg_node.admin.log_levels import LogLevels
from msg_node.admin.log_tail import LogTail
from msg_node.admin.policy_deployment import Policies, PolicyDeployment
from msg_node.bus.recorder import Recorder
from msg_node.identity.local_clients import stored_credentials
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.identity import IdentitySettings
from msg_node.settings.tables.node import NodeSettings
from msg_node.settings.tables.policy import PolicySettings
from msg_node.settings.tables.recording import RecordingSettings
from msg_node.settings.tables.sessions import CredentialSettings, SessionSettings
from msg_node.storage.policy_store import ActivePolicies, PolicyStore
from msg_node.wiring.accounts import clients_of, forget_guid
from msg_node.wiring.identity import IdentityServices
from msg_node.wiring.meaning import build_gate
from protofly.documents import SigningKey
from protofly.records import AdminEvent, hash_address
from tests.support.runtime_rig import DOMAIN, FOREIGN, NODE, Json, Runtime, RuntimeRig, runtime_address, runtime_rig

ADMIN_ADDRESS = f"domain://msg-node.{DOMAIN}/admin"
PEP_ADDRESS = f"domain://msg-node.{DOMAIN}/pep"
_LEFT_OUT = ("recipients", "resolver", "trust_store", "pins", "documents", "plan_reload", "end_connectors")
OPERATOR = Credential(digest_of("secret"), runtime_address("ops"), frozenset({"operator"}))
PLAIN = Credential(digest_of("plain"), runtime_address("ops"))
MANAGER = Credential(digest_of("manager"), runtime_address("boss"), frozenset({"policy-manager"}))
GUEST = Credential(digest_of("guest"), f"runtime://{FOREIGN}/*", frozenset({"operator"}))


class AdminRig(NamedTuple):
    """The rig, and the service."""

    rig: RuntimeRig
    administration: Administration
    node: Administered

    @property
    def events(self) -> list[AdminEvent]:
        """The audit records of changes and attempts."""
        return [one for one in self.rig.records.taken if isinstance(one, AdminEvent)]

    async def operator(self, *, token: str = "secret") -> Runtime:
        runtime = await self.rig.runtime(bearer=token)
        assert (await runtime.open("ops"))["body"]["code"] == 200
        return runtime

    def has_session(self, name: str) -> bool:
        return self.rig.state.sessions.by_runtime(runtime_address(name)) is not None


async def ask_admin(runtime: Runtime, operation: str, type_: str = "execute", **body: Any) -> Json:
    """Ask by message; the body of the reply."""
    from_ = body.pop("from_", "")
    reply = await runtime.ask(type_, ADMIN_ADDRESS, {"operation": operation, **body}, from_=from_)
    answer: Json = reply["body"]
    return answer


def _settings(folder: Path, identity: IdentitySettings, policy: PolicySettings) -> Settings:
    accepted = [
        CredentialSettings(runtime=one.runtime, token_sha256=one.digest, roles=tuple(one.roles))
        for one in (OPERATOR, PLAIN, MANAGER, GUEST)
    ]
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder),
        sessions=SessionSettings(anonymous=True, credential=tuple(accepted)),
        identity=identity,
        policy=policy,
    )


async def _recorder(rig: RuntimeRig, nursery: trio.Nursery) -> Recorder:
    recorder = Recorder(rig.state, rig.bus.send_queues, node=NODE, domain=DOMAIN)
    await nursery.start(recorder.run)
    return recorder


@asynccontextmanager
async def admin_rig(
    folder: Path,
    *,
    frame_bytes: int = 1 << 20,
    interworking: Interworking | None = None,
    identity: IdentitySettings = IdentitySettings(),  # noqa: B008 - frozen
    policy: PolicySettings = PolicySettings(),  # noqa: B008 - frozen
    recording: RecordingSettings | None = None,
) -> AsyncIterator[AdminRig]:
    """Run it; `frame_bytes` is the longest reply by message."""
    settings = msgspec.structs.replace(_settings(folder, identity, policy), recording=recording)
    credentials = build_credentials(settings)
    credentials.manage(stored_credentials(clients_of(folder, None)))
    made_identity: list[IdentityServices] = []

    def services(state: NodeState) -> dict[str, Service]:
        made_identity.append(IdentityServices(settings, state, SigningKey.from_seed("node-1", bytes(32))))
        return {ADMIN_ADDRESS: admin_service, PEP_ADDRESS: pep_service, **made_identity[0].services}

    async with (
        runtime_rig(
            folder, credentials=credentials, allows_guests=True, services_at=services, interworking=interworking
        ) as rig,
        trio.open_nursery() as nursery,
    ):
        federation = SimpleNamespace(links=(), open_lasting=lambda: None, hosted_stubs=tuple)
        nothing = dict.fromkeys(_LEFT_OUT)
        parts: Any = {"federation": federation, "proposals": rig.state.proposals, **nothing}
        made_identity[0].connect(rig.bus)
        await nursery.start(made_identity[0].run)
        in_force = Policies(rig.gate.policies, ActivePolicies(), (), "enforce")
        node = Administered(
            settings=lambda: settings,
            state=rig.state,
            bus=rig.bus,
            gate=rig.gate,
            log=LogTail(),
            levels=LogLevels(),
            store=rig.store,
            record=rig.records.append,
            pseudonym=partial(hash_address, key=b"key"),
            status=lambda: {"domain": DOMAIN},
            metrics=bytes,
            summary=lambda: {"domain": DOMAIN, "policy_revision": rig.gate.policies.revision},
            traffic=Traffic({FOREIGN: "node"}),
            changing=trio.Lock(),
            policies=PolicyDeployment(rig.gate, in_force, rig.records.append),
            policy_store=PolicyStore(folder),
            recorder=None if recording is None else await _recorder(rig, nursery),
            gate_with=lambda policies: build_gate(settings, policies),
            alarms=Alarms(),
            clients=made_identity[0].clients,
            passwords=made_identity[0].passwords,
            forget_guid=partial(forget_guid, folder, None),
            **parts,
        )
        made = AdminRig(rig, Administration(node), node)
        rig.bus.inquiries.connect(ADMIN, AdminMessages(made.administration, rig.state.sessions, frame_bytes))
        yield made
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def admin_site(folder: Path, **settings: object) -> AsyncIterator[tuple[AdminRig, httpx.AsyncClient, str]]:
    """The admin site without TLS on loopback, a client of it, and its token."""
    async with admin_rig(folder) as at, trio.open_nursery() as nursery:
        await at.rig.opened("bob")
        chosen = AdminSettings(port=0, insecure_plaintext=True, **settings)  # type: ignore[arg-type]
        settings_of_all = Settings(node=NodeSettings(domain=DOMAIN, data_dir=folder), admin=chosen)
        site = AdminSite(settings_of_all, at.administration)
        await nursery.start(site.run)
        async with httpx.AsyncClient(trust_env=False, base_url=site.url) as client:
            yield at, client, (folder / "admin-token").read_text().strip()
        nursery.cancel_scope.cancel()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
