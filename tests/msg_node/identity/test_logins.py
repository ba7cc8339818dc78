"""Logging in at the identity manager, over real sockets: the token, its use, its renewal, its end, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from federation.links.link_context import Identified
from msg_node.identity.core.issued_tokens import IssuedTokens
from msg_node.identity.core.session_tokens import SessionTokens, TokenLife
from msg_node.identity.mark_keeper import announcement
from msg_node.identity.token_store import TokenStore
from msg_node.kernel.service import CloseCode, Service
from msg_node.node_state import NodeState
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.discovery import DiscoverySettings
from msg_node.settings.tables.identity import IdentitySettings, ProviderSettings, TokenSettings
from msg_node.settings.tables.listeners import ListenSettings
from msg_node.settings.tables.node import NodeSettings
from msg_node.settings.tables.sessions import SessionSettings
from msg_node.storage.key_files import load_online_keys
from msg_node.wiring.identity import IdentityServices
from policy.core.session_class import roles_in
from protofly.documents import SigningKey
from protofly.errors import Code, HostError
from stubkit.keys import KeyRing, make_key, save_keys
from tests.support.http_runtime import http_runtime
from tests.support.oidc_provider import CLIENT, OidcProvider, oidc_provider
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    SESSION,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

IDM = f"domain://idm.{DOMAIN}"
NODE_KEY = SigningKey.from_seed("node-1", bytes(32))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Scene:
    """A node at which users of a provider log in."""

    def __init__(self, provider: OidcProvider, services: IdentityServices, rig: RuntimeRig) -> None:
        self.provider = provider
        self.services = services
        self.rig = rig

    @property
    def tokens(self) -> dict[str, int]:
        """What became of tokens, as operators see it."""
        facts: Any = self.services.status()["tokens"]
        return dict(facts)

    async def fetched(self) -> None:
        """Wait until the keys of the provider are there."""
        with trio.fail_after(10):
            while not self.services._keyring.fetches:
                await trio.lowlevel.checkpoint()

    async def ask(self, runtime: Runtime, method: str, **params: object) -> Json:
        return await runtime.ask("execute", IDM, {"method": method, "params": params})

    async def log_in(self, runtime: Runtime, **claims: Any) -> str:
        """A token for a runtime that has a session."""
        assertion = self.provider.token(now=time.time(), **claims)
        reply = await self.ask(runtime, "login", credentials={"kind": "assertion", "assertion": assertion})
        assert code_and_reason(reply) == (200, ""), reply
        return str(reply["body"]["value"]["token"])

    async def opened(self, name: str, token: str) -> tuple[Runtime, Json]:
        runtime = await self.rig.runtime()
        return runtime, await runtime.open(name, bearer(token))

    async def swept(self) -> None:
        """What the sweeper of a node does every second."""
        self.rig.bus.effects.sweep_sessions(time.time())
        self.rig.bus.send_queues.wake()


def bearer(token: str) -> Json:
    return {"credentials": {"kind": "bearer", "token": token}}


def settings_for(folder: Path, provider: OidcProvider, *, has_tokens: bool = True, **changes: Any) -> Settings:
    entry = {"issuer": provider.issuer, "audience": (CLIENT,), "allow_addresses": ("127.0.0.0/8",), **changes}
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder),
        listen=ListenSettings(insecure_plaintext=True),
        discovery=DiscoverySettings(nameservers=("127.0.0.1:53",), ca_file=folder / "ca.pem"),
        sessions=SessionSettings(anonymous=True),
        identity=IdentitySettings(
            provider=(ProviderSettings(**entry),),
            tokens=TokenSettings(keys_dir=folder / "keys") if has_tokens else None,
        ),
    )


@asynccontextmanager
async def node(folder: Path, provider: OidcProvider, **changes: Any) -> AsyncIterator[Scene]:
    """One life of the node in `folder`."""
    settings = settings_for(folder, provider, **changes)
    made: list[IdentityServices] = []

    def services(state: NodeState) -> dict[str, Service]:
        made.append(IdentityServices(settings, state, NODE_KEY))
        return dict(made[0].services)

    async with (
        runtime_rig(folder, credentials=build_credentials(settings), services_at=services) as rig,
        trio.open_nursery() as nursery,
    ):
        made[0].connect(rig.bus)
        await nursery.start(made[0].run)
        scene = Scene(provider, made[0], rig)
        await scene.fetched()
        yield scene
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def prepared(folder: Path, authority: trustme.CA) -> AsyncIterator[OidcProvider]:
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    save_keys(KeyRing(token=(make_key("token"),)), folder / "keys")
    async with oidc_provider(authority) as provider:
        yield provider


@asynccontextmanager
async def scene(folder: Path, authority: trustme.CA, **changes: Any) -> AsyncIterator[Scene]:
    async with prepared(folder, authority) as provider, node(folder, provider, **changes) as at:
        yield at


async def test_a_runtime_logs_in_and_opens_its_session_with_the_token(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority, user_claim="email", roles_claim="realm.roles") as at:
        ana = await at.rig.opened("ana")
        address = await ana.allocated("hyperty")
        now = int(time.time())
        assertion = at.provider.token(now=now, realm={"roles": ["guard"]})
        reply = await at.ask(ana, "login", credentials={"kind": "assertion", "assertion": assertion})
        value = reply["body"]["value"]
        assert value["subject"] == f"{at.provider.issuer} ana@alpha.example"
        assert value["roles"] == ["guard"]
        assert now + 3_600 <= value["expires"] <= int(time.time()) + 3_600
        identify = at.services.identify
        assert identify is not None
        message = parsed(a_message("create", address, f"hyperty://{FOREIGN}/x", {}, id_=1))
        assert identify(message, DOMAIN, time.time()) == Identified()
        renewed = await ana.open("ana", bearer(value["token"]))  # on the same connection: what it has stays
        assert code_and_reason(renewed) == (200, "")
        assert renewed["body"]["session"]["expires"] <= 3_605
        assert roles_in(at.rig.port_of("ana").roles) == frozenset({"guard"})
        assert identify(message, DOMAIN, time.time()) == Identified(True, "ana@alpha.example", at.provider.issuer)
        facts = await at.ask(ana, "introspect", token=value["token"])
        assert facts["body"]["value"]["active"] is True
        assert facts["body"]["value"]["roles"] == ["guard"]
        keys = (await ana.ask("read", IDM, {"resource": "/keys"}))["body"]["value"]["keys"]
        assert [key["kid"].partition("-")[0] for key in keys] == ["node", "token"]
        assert "d" not in keys[1]
        assert at.tokens == {"logins": 1, "remembered": 0}


async def test_logins_are_off_without_the_setting_and_say_so(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority, has_tokens=False) as at:
        ana = await at.rig.opened("ana")
        for method in ("login", "refresh", "revoke"):
            reply = await at.ask(ana, method, token="a.b.c", assertion=at.provider.token(now=time.time()))
            assert code_and_reason(reply) == (501, "connector-off")
            assert "identity.tokens" in reply["body"]["description"]
        assert "tokens" not in at.services.status()


async def test_bad_logins_are_refused_and_give_nothing(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        now = time.time()
        good = at.provider.token(now=now)
        for credentials, expected in (
            ({"kind": "password", "user": "ana", "password": "x"}, (401, "bad-token")),
            ({"kind": ["assertion"]}, (401, "bad-token")),
            ("x", (400, "bad-body")),
            ({}, (400, "bad-body")),
            ({"assertion": 5}, (400, "bad-body")),
            ({"assertion": "A" * 9_000}, (400, "bad-body")),
            ({"assertion": "a.b.c"}, (401, "bad-assertion")),
            ({"assertion": at.provider.token(now=now, aud="another")}, (401, "bad-assertion")),
            ({"assertion": at.provider.token(now=now - 1_000)}, (401, "bad-assertion")),
            ({"assertion": at.provider.token(now=now, iss="https://another.example")}, (401, "bad-assertion")),
            ({"assertion": good.rpartition(".")[0] + "."}, (401, "bad-assertion")),
        ):
            assert code_and_reason(await at.ask(ana, "login", credentials=credentials)) == expected, credentials
        ours = await at.log_in(ana)
        assert code_and_reason(await at.ask(ana, "login", assertion=ours)) == (401, "bad-assertion")  # no assertion
        for method in ("refresh", "revoke"):
            for token, expected in ((good, (401, "bad-token")), ("x", (401, "bad-token")), (None, (400, "bad-body"))):
                assert code_and_reason(await at.ask(ana, method, token=token)) == expected
        assert at.tokens == {"logins": 1, "remembered": 0}


async def test_other_domains_and_their_guests_do_not_log_in_here(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        token = await at.log_in(ana)
        asker = f"runtime://{FOREIGN}/rt-1"
        for number, (method, params) in enumerate(
            (
                ("login", {"assertion": at.provider.token(now=time.time())}),
                ("refresh", {"token": token}),
                ("revoke", {"token": token}),
            )
        ):
            message = a_message("execute", asker, IDM, {"method": method, "params": params}, id_=number)
            assert at.rig.bus.from_links.take(FOREIGN, [parsed(message)]) == [None]
        with trio.fail_after(10):
            while len(at.rig.domains.sent) < 3:
                await trio.lowlevel.checkpoint()
        assert [code_and_reason(reply) for reply in at.rig.domains.take()] == [(403, "transit")] * 3
        assert code_and_reason(await ana.open("ana", bearer(token))) == (200, "")


async def test_a_token_is_of_no_use_to_another_runtime(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana, eve = await at.rig.opened("ana"), await at.rig.opened("eve")
        token = await at.log_in(ana)
        for method in ("refresh", "revoke"):
            reply = await at.ask(eve, method, token=token)
            assert code_and_reason(reply) == (401, "bad-token")
            assert "not for this runtime" in reply["body"]["description"]
        assert code_and_reason(await eve.open("eve", bearer(token))) == (401, "bad-token")
        assert code_and_reason(await at.ask(ana, "refresh", token=token)) == (200, "")


async def test_another_user_under_the_same_address_does_not_get_what_the_first_one_has(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """Anybody may come without a proof under a free address, log in as themselves, and wait for its real user."""
    async with scene(tmp_path, authority) as at:
        eve = await at.rig.opened("ana")
        stolen = await at.log_in(eve, sub="eve")
        await eve.say(a_message("close", eve.address, SESSION))
        await eve.close_code()
        ana = await at.rig.opened("ana")
        assert code_and_reason(await ana.open("ana", bearer(await at.log_in(ana)))) == (200, "")
        address = await ana.allocated("hyperty")
        assert code_and_reason((await at.opened("ana", stolen))[1]) == (409, "address-taken")
        await ana.wire.cut()
        with trio.fail_after(10):
            while at.rig.bus.runtimes.live_sessions:
                await trio.lowlevel.checkpoint()
        assert code_and_reason((await at.opened("ana", stolen))[1]) == (409, "address-taken")
        assert at.rig.state.owners.owner(address) is not None


async def test_a_renewed_token_counts_and_the_old_one_does_not(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        old = await at.log_in(ana)
        assert code_and_reason(await ana.open("ana", bearer(old))) == (200, "")
        reply = await at.ask(ana, "refresh", token=old)
        new = reply["body"]["value"]["token"]
        assert new != old
        assert code_and_reason(await ana.open("ana", bearer(old))) == (401, "bad-token")
        assert (await at.ask(ana, "introspect", token=old))["body"]["value"] == {"active": False}
        assert code_and_reason(await ana.open("ana", bearer(new))) == (200, "")
        assert at.tokens == {"logins": 1, "refreshed": 1, "remembered": 1}


async def test_a_stolen_token_that_is_renewed_ends_the_login_as_soon_as_its_owner_renews_it_too(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        old = await at.log_in(ana)
        bodies = [{"method": "refresh", "params": {"token": old}}] * 3  # the second is there before the first is stored
        await ana.say(*(a_message("execute", ana.address, IDM, body, id_=n) for n, body in enumerate(bodies)))
        replies = [await ana.next() for _ in bodies]
        by_id = {reply["id"]: reply for reply in replies}
        assert [code_and_reason(by_id[n]) for n in range(3)] == [(200, ""), (401, "bad-token"), (401, "bad-token")]
        assert "has a copy" in by_id[1]["body"]["description"]
        for token in (old, by_id[0]["body"]["value"]["token"]):
            assert code_and_reason(await ana.open("ana", bearer(token))) == (401, "bad-token")
        again = await at.log_in(ana)  # who can prove an identity at the provider begins anew
        assert code_and_reason(await ana.open("ana", bearer(again))) == (200, "")
        assert at.tokens["renewed twice"] == 1


async def test_what_another_node_makes_of_a_login_counts_here(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana, bo = await at.rig.opened("ana"), await at.rig.opened("bo")
        renewed, revoked = await at.log_in(ana), await at.log_in(bo)
        assert code_and_reason(await bo.open("bo", bearer(revoked))) == (200, "")
        tokens, marks = at.services._tokens, at.services.marks
        assert tokens is not None
        assert marks is not None
        keys, life = load_online_keys(tmp_path / "keys", "token"), TokenLife(60, 600)
        elsewhere = SessionTokens(tokens.rules, keys, life, IssuedTokens(), believes=lambda _: True)
        _, _, mark = elsewhere.renew(renewed, ana.address, now=time.time())
        marks.heard([announcement(mark), announcement(elsewhere.revoke(revoked, bo.address, now=time.time()))])
        await at.swept()
        assert await bo.close_code() == CloseCode.PROOF_EXPIRED
        assert code_and_reason(await ana.open("ana", bearer(renewed))) == (401, "bad-token")


async def test_a_revoked_login_loses_its_sessions_and_brings_none_back(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana, bo = await at.rig.opened("ana"), await at.rig.opened("bo")
        token, other = await at.log_in(ana), await at.log_in(bo)
        assert code_and_reason(await ana.open("ana", bearer(token))) == (200, "")
        assert code_and_reason(await bo.open("bo", bearer(other))) == (200, "")
        session_address = ana.session_address
        reply = await at.ask(ana, "revoke", token=token)
        assert (code_and_reason(reply), reply["body"]["value"]) == ((200, ""), {"revoked": True})
        assert code_and_reason(await at.ask(bo, "introspect", token=token)) == (200, "")
        await at.swept()
        assert await ana.close_code() == CloseCode.PROOF_EXPIRED
        back = await at.rig.runtime()
        assert code_and_reason(await back.ask("re-open", SESSION, from_=session_address)) == (500, "bad-token")
        assert code_and_reason(await back.open("ana", bearer(token))) == (401, "bad-token")
        late = await at.rig.runtime(bearer=token)
        assert code_and_reason(await late.open("ana")) == (401, "bad-token")
        assert code_and_reason(await bo.open("bo", bearer(other))) == (200, "")  # the other login goes on


async def test_an_operator_ends_all_logins_of_a_user_and_nobody_else_does(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority, roles_claim="roles") as at:
        ana, bo, op = await at.rig.opened("ana"), await at.rig.opened("bo"), await at.rig.opened("op")
        tokens = [await at.log_in(ana), await at.log_in(ana)]
        others = await at.log_in(bo, sub="bo")
        operator = await at.log_in(op, sub="op", roles=["operator"])
        for runtime, name, token in ((ana, "ana", tokens[0]), (bo, "bo", others), (op, "op", operator)):
            assert code_and_reason(await runtime.open(name, bearer(token))) == (200, "")
        subject = f"{at.provider.issuer} ana-7"
        assert code_and_reason(await at.ask(bo, "revoke", subject=subject)) == (403, "not-owner")
        for nonsense in ("", 5, "x" * 2_000):
            assert code_and_reason(await at.ask(op, "revoke", subject=nonsense)) == (400, "bad-body")
        assert code_and_reason(await at.ask(op, "revoke", subject=subject)) == (200, "")
        await at.swept()
        assert await ana.close_code() == CloseCode.PROOF_EXPIRED
        for token in tokens:
            assert code_and_reason((await at.opened("ana", token))[1]) == (401, "bad-token")
        assert code_and_reason(await bo.open("bo", bearer(others))) == (200, "")
        assert at.tokens["users revoked"] == 1


async def test_a_revoked_token_opens_no_session_over_https(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        token, other = await at.log_in(ana), await at.log_in(ana)
        assert code_and_reason(await at.ask(ana, "revoke", token=token)) == (200, "")
        await ana.say(a_message("close", ana.address, SESSION))
        await ana.close_code()
        http = await http_runtime(at.rig)
        for text, expected in ((token, (401, "bad-token")), (other, (200, ""))):
            answer = await http.post(a_message("open", ana.address, SESSION, {}, id_=1), Authorization=f"Bearer {text}")
            assert code_and_reason(json.loads(answer.body)) == expected


async def test_what_was_revoked_and_renewed_stays_so_after_a_restart(tmp_path: Path, authority: trustme.CA) -> None:
    async with prepared(tmp_path, authority) as provider:
        async with node(tmp_path, provider) as at:
            ana, bo = await at.rig.opened("ana"), await at.rig.opened("bo")
            revoked, old, kept = await at.log_in(ana), await at.log_in(bo), await at.log_in(ana, sub="cy")
            assert code_and_reason(await ana.open("ana", bearer(revoked))) == (200, "")
            session_address = ana.session_address
            new = (await at.ask(bo, "refresh", token=old))["body"]["value"]["token"]
            assert code_and_reason(await at.ask(ana, "revoke", token=revoked)) == (200, "")
        async with node(tmp_path, provider) as at:
            back = await at.rig.runtime()
            assert code_and_reason(await back.ask("re-open", SESSION, from_=session_address)) == (500, "bad-token")
            for name, token, code in (("ana", revoked, 401), ("bo", old, 401), ("bo", new, 200), ("ana", kept, 200)):
                assert (await at.opened(name, token))[1]["body"]["code"] == code, name
            assert at.tokens == {"remembered": 2}
        async with node(tmp_path, provider, has_tokens=False) as at:  # switched off: none counts
            assert code_and_reason((await at.opened("bo", new))[1]) == (401, "bad-token")


async def test_a_session_whose_login_ended_in_the_last_moment_of_the_node_does_not_come_back(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """The mark is on disk, the end of the session is not: killed in between."""
    async with prepared(tmp_path, authority) as provider:
        async with node(tmp_path, provider) as at:
            ana = await at.rig.opened("ana")
            token = await at.log_in(ana)
            assert code_and_reason(await ana.open("ana", bearer(token))) == (200, "")
            tokens, marks = at.services._tokens, at.services.marks
            assert tokens is not None
            assert marks is not None
            await marks.keep(tokens.revoke(token, ana.address, now=time.time()))
        async with node(tmp_path, provider) as at:
            back = await at.rig.runtime()
            assert code_and_reason(await back.ask("re-open", SESSION, from_=ana.session_address)) == (500, "bad-token")


async def test_a_disk_that_refuses_is_said_and_nothing_is_promised(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, authority) as at:
        ana = await at.rig.opened("ana")
        token = await at.log_in(ana)

        def full(*_: object, **__: object) -> None:
            raise HostError(Code.STORAGE, "the disk is full")

        monkeypatch.setattr(TokenStore, "keep", full)
        assert code_and_reason(await at.ask(ana, "revoke", token=token)) == (500, "storage")
        assert code_and_reason(await ana.open("ana", bearer(token))) == (401, "bad-token")  # on the safe side
