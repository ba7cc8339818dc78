"""The identity manager and its providers: discovery, keys that change, assertions, tokens; over real sockets."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from federation.links.link_context import Identified
from msg_node.kernel.credentials import Credential, Credentials
from msg_node.kernel.issuer_keys import keys_of_jwks
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.settings.tables.discovery import DiscoverySettings
from msg_node.settings.tables.identity import IdentitySettings, ProviderSettings
from msg_node.settings.tables.listeners import ListenSettings
from msg_node.settings.tables.node import NodeSettings
from msg_node.settings.tables.sessions import IssuerSettings, SessionSettings
from msg_node.wiring.identity import IdentityServices
from msg_node.wiring.session_steps import LocalGate
from policy.core.engine import Algorithm
from policy.core.gate import Gate
from protofly import limits
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError
from protofly.message import Message
from tests.support.oidc_provider import CLIENT, OidcProvider, oidc_provider
from tests.support.policies import deny, one_policy, permit, unrecorded
from tests.support.policies import test as condition
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

IDM = f"domain://idm.{DOMAIN}"
TOKEN = "a-token-of-the-settings"
NODE_KEY = SigningKey.from_seed("node-1", bytes(32))
JWKS, DISCOVERY = "/jwks", "/.well-known/openid-configuration"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Scene:
    """A node with an identity provider, and a runtime."""

    def __init__(self, provider: OidcProvider, services: IdentityServices, rig: RuntimeRig, ana: Runtime) -> None:
        self.provider = provider
        self.services = services
        self.rig = rig
        self.ana = ana

    @property
    def status(self) -> dict[str, Any]:
        facts: Any = self.services.status()["identity"]
        return dict(facts[0])

    async def validate(self, assertion: str, **params: str) -> Json:
        body = {"method": "validateAssertion", "params": {"assertion": assertion, **params}}
        return await self.ana.ask("execute", IDM, body)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(10):
            while not condition():
                await trio.lowlevel.checkpoint()

    async def fetched(self, times: int) -> None:
        """Wait until keys were fetched so often."""
        await self.until(lambda: self.services._keyring.fetches >= times)

    def later(self, seconds: float) -> None:
        """Let time pass for the keyring."""
        before = self.services._keyring._clock
        self.services._keyring._clock = lambda: before() + seconds


def settings_for(folder: Path, provider: OidcProvider, **changes: Any) -> Settings:
    entry = {"issuer": provider.issuer, "audience": (CLIENT,), "allow_addresses": ("127.0.0.0/8",), **changes}
    return Settings(
        node=NodeSettings(domain=DOMAIN, data_dir=folder),
        listen=ListenSettings(insecure_plaintext=True),
        discovery=DiscoverySettings(nameservers=("127.0.0.1:53",), ca_file=folder / "ca.pem"),
        sessions=SessionSettings(
            issuer=(IssuerSettings(issuer=provider.issuer, audience=CLIENT, roles_claim="roles"),), anonymous=False
        ),
        identity=IdentitySettings(provider=(ProviderSettings(**entry),), demand=(FOREIGN,)),
    )


def accepted(settings: Settings) -> Credentials:
    """Who opens sessions: what the settings say, and one token for the runtimes of these tests."""
    credentials = build_credentials(settings)
    for name in ("ana", "bo"):
        digest = hashlib.sha256(f"{TOKEN} {name}".encode()).hexdigest()
        credentials._by_digest[digest] = [Credential(digest, f"runtime://{DOMAIN}/{name}", frozenset({"tester"}))]
    return credentials


@asynccontextmanager
async def scene(
    folder: Path, authority: trustme.CA, *, trusts: bool = True, is_down: bool = False, **changes: Any
) -> AsyncIterator[Scene]:
    (authority if trusts else trustme.CA()).cert_pem.write_to_path(str(folder / "ca.pem"))
    async with oidc_provider(authority) as provider:
        provider.is_down = is_down
        settings = settings_for(folder, provider, **changes)
        made: list[IdentityServices] = []

        def services(state: NodeState) -> dict[str, Service]:
            made.append(IdentityServices(settings, state, NODE_KEY))
            return dict(made[0].services)

        async with (
            runtime_rig(folder, credentials=accepted(settings), services_at=services) as rig,
            trio.open_nursery() as nursery,
        ):
            made[0].connect(rig.bus)
            await nursery.start(made[0].run)
            ana = await rig.runtime()
            await ana.open("ana", {"credentials": {"kind": "bearer", "token": f"{TOKEN} ana"}})
            yield Scene(provider, made[0], rig, ana)
            nursery.cancel_scope.cancel()


# Assertions.


async def test_a_good_assertion_is_reported_with_its_user_and_a_bad_one_is_refused(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        now = time.time()
        reply = await at.validate(at.provider.token(now=now))
        assert code_and_reason(reply) == (200, "")
        assert reply["body"]["value"] == {
            "valid": True,
            "userProfile": {"userURL": "ana-7", "subject": "ana-7", "name": "Ana", "email": "ana@alpha.example"},
            "issuer": at.provider.issuer,
            "expires": int(now) + 360,
        }
        for bad in (
            at.provider.token(now=now, aud="another"),
            at.provider.token(now=now, iss="https://another.example"),
            at.provider.token(now=now - 1_000),
            at.provider.token(now=now + 1_000),
            "a.b.c",
        ):
            assert code_and_reason(await at.validate(bad)) == (401, "bad-assertion")
        assert code_and_reason(await at.validate(at.provider.token(now=now), origin=FOREIGN)) == (401, "bad-assertion")
        assert (await at.validate(at.provider.token(now=now), origin=f"https://{DOMAIN}"))["body"]["code"] == 200


async def test_params_may_stand_in_an_array_and_nonsense_is_refused(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        assertion = at.provider.token(now=time.time())
        for body, expected in (
            ({"method": "validateAssertion", "params": [{"assertion": assertion}]}, (200, "")),
            ({"method": "validateAssertion"}, (400, "bad-body")),
            ({"method": "validateAssertion", "params": {"assertion": 5}}, (400, "bad-body")),
            ({"method": "validateAssertion", "params": {"assertion": "A" * 9_000}}, (400, "bad-body")),
            (
                {"method": "validateAssertion", "params": {"assertion": assertion, "origin": "a://b://["}},
                (401, "bad-assertion"),
            ),
            ({"method": "fly"}, (400, "bad-body")),
            ({"method": "login", "params": {"credentials": {"kind": "password"}}}, (501, "connector-off")),
        ):
            assert code_and_reason(await at.ana.ask("execute", IDM, body)) == expected, body
        assert code_and_reason(await at.ana.ask("create", IDM, {})) == (405, "bad-type")


async def test_another_domain_may_have_assertions_of_our_users_checked(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        body = {"method": "validateAssertion", "params": {"assertion": at.provider.token(now=time.time())}}
        asker = f"runtime://{FOREIGN}/rt-1"
        assert at.rig.bus.from_links.take(FOREIGN, [parsed(a_message("execute", asker, IDM, body, id_=1))]) == [None]
        await at.until(lambda: bool(at.rig.domains.sent))
        (reply,) = at.rig.domains.take()
        assert reply["body"]["value"]["valid"] is True


# Keys.


async def test_a_new_key_is_fetched_when_a_token_names_it_and_once_for_all_who_wait(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        at.provider.rotate()
        at.later(limits.KEYS_ASKED_AGAIN_SECONDS + 1)
        now = time.time()
        bodies = [
            {"method": "validateAssertion", "params": {"assertion": at.provider.token(now=now, sub=f"user-{number}")}}
            for number in range(40)
        ]
        await at.ana.say(*(a_message("execute", at.ana.address, IDM, one, id_=n) for n, one in enumerate(bodies)))
        replies = [await at.ana.next() for _ in bodies]
        assert {reply["body"]["code"] for reply in replies} == {200}
        assert at.provider.asked[JWKS] == 2


async def test_keys_that_change_under_load_cost_one_question_each_time_and_no_good_assertion(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        for times in range(2, 8):
            old = at.provider.rotate()
            at.later(limits.KEYS_ASKED_AGAIN_SECONDS + 1)
            now = time.time()
            fresh = at.provider.token(now=now)
            assert (await at.validate(fresh))["body"]["code"] == 200
            assert (await at.validate(old.signed(at.provider.claims(now=now, sub=f"o-{times}"))))["body"]["code"] == 200
            assert at.provider.asked[JWKS] == times
        gone = at.provider.rotate(keeps=0)
        at.later(limits.KEYS_ASKED_AGAIN_SECONDS + 1)
        assert (await at.validate(at.provider.token(now=time.time())))["body"]["code"] == 200
        revoked = gone.signed(at.provider.claims(now=time.time()))
        assert code_and_reason(await at.validate(revoked)) == (401, "bad-assertion")  # not published any more


async def test_invented_keys_do_not_make_us_ask_again_and_again(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        for number in range(50):
            token = at.provider.signer.signed(at.provider.claims(now=time.time()), {"kid": f"invented-{number}"})
            assert code_and_reason(await at.validate(token)) == (401, "bad-assertion")
        assert at.provider.asked[JWKS] == 1


async def test_while_a_provider_is_down_its_keys_stay_for_a_day(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        keyring = at.services._keyring
        at.provider.is_down = True
        at.later(3_600)
        keyring.want(at.provider.issuer)
        await at.until(lambda: at.status["failures"] == 1)
        assert "http-status" in at.status["error"]
        assert (await at.validate(at.provider.token(now=time.time())))["body"]["code"] == 200
        at.later(limits.KEYS_KEPT_SECONDS)
        keyring.want(at.provider.issuer)
        await at.until(lambda: at.status["keys"] == 0)
        at.later(limits.KEYS_RETRY_MAX_SECONDS)
        assert code_and_reason(await at.validate(at.provider.token(now=time.time()))) == (401, "bad-assertion")
        at.provider.is_down = False
        at.later(limits.KEYS_RETRY_MAX_SECONDS)
        assert (await at.validate(at.provider.token(now=time.time())))["body"]["code"] == 200


@pytest.mark.parametrize(
    ("path", "document", "said"),
    [
        (
            DISCOVERY,
            b'{"issuer":"https://another.example","jwks_uri":"https://another.example/jwks"}',
            "not of this issuer",
        ),
        (DISCOVERY, b"<html>", "bad-reply"),
        (DISCOVERY, b"[]", "not of this issuer"),
        (DISCOVERY, b"ISSUER,'jwks_uri':5}", "names no"),
        (DISCOVERY, b"ISSUER,'jwks_uri':'http://127.0.0.1/jwks'}", "address-refused"),
        (DISCOVERY, b"ISSUER,'jwks_uri':'file:///etc/passwd'}", "address-refused"),
        (DISCOVERY, b"ISSUER,'jwks_uri':'https://10.0.0.1/jwks'}", "address-refused"),
        (DISCOVERY, b"[" * 400_000, "document-too-large"),
        (JWKS, b'{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"key-1"}]}', "shared secret"),
        (JWKS, b'{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA"}]}', "private"),
        (JWKS, b'{"keys":[]}', "no key"),
        (JWKS, b'{"keys":{}}', "not a JWK set"),
        (JWKS, b'{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}', "bad-reply"),
    ],
    ids=count(),
)
async def test_documents_that_cannot_be_right_give_no_keys(
    tmp_path: Path, authority: trustme.CA, path: str, document: bytes, said: str
) -> None:
    async with scene(tmp_path, authority, is_down=True) as at:
        await at.until(lambda: at.status["failures"] == 1)
        own = json.dumps({"issuer": at.provider.issuer})[:-1]
        at.provider.documents[path] = document.replace(b"'", b'"').replace(b"ISSUER", own.encode())
        at.provider.is_down = False
        at.later(limits.KEYS_RETRY_MAX_SECONDS)
        at.services._keyring.want(at.provider.issuer)
        await at.until(lambda: at.status["failures"] == 2)
        assert said in at.status["error"]
        assert at.status["keys"] == 0
        assert code_and_reason(await at.validate(at.provider.token(now=time.time()))) == (401, "bad-assertion")


async def test_a_provider_whose_certificate_nobody_vouches_for_is_not_believed(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority, trusts=False) as at:
        await at.until(lambda: at.status["failures"] == 1)
        assert "tls-failed" in at.status["error"]
        assert not at.provider.asked


async def test_ranges_that_are_not_opened_for_a_provider_are_refused(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority, allow_addresses=()) as at:
        await at.until(lambda: at.status["failures"] == 1)
        assert "address-refused" in at.status["error"]
        assert not at.provider.asked


# Sessions.


async def test_tokens_of_a_provider_open_sessions_when_the_settings_say_so_and_new_keys_count(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        runtime = f"runtime://{DOMAIN}/cy"

        async def opened() -> Json:
            token = at.provider.token(now=time.time(), runtime=runtime, roles=["guard"])
            cy = await at.rig.runtime()
            return await cy.open("cy", {"credentials": {"kind": "bearer", "token": token}})

        assert (await opened())["body"]["code"] == 200
        at.provider.rotate(keeps=0)
        at.later(limits.KEYS_ASKED_AGAIN_SECONDS + 1)
        assert code_and_reason(await opened()) == (401, "bad-token")  # the key is new here, and asked for now
        await at.fetched(2)
        assert (await opened())["body"]["code"] in (200, 409)
        token = at.provider.token(now=time.time(), roles=["guard"])
        looked = await at.ana.ask("execute", IDM, {"method": "introspect", "params": {"token": token}})
        assert looked["body"]["value"]["subject"] == "ana-7"
        assert looked["body"]["value"]["roles"] == ["guard"]


async def test_a_token_is_looked_at_for_our_own_runtimes_only(tmp_path: Path, authority: trustme.CA) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)

        async def introspected(token: str) -> object:
            reply = await at.ana.ask("execute", IDM, {"method": "introspect", "params": {"token": token}})
            return reply["body"]["value"]

        assert await introspected(f"{TOKEN} ana") == {"active": True, "subject": "", "roles": ["tester"]}
        for unknown in (
            "nobody's",
            at.provider.token(now=time.time() - 1_000),
            at.provider.token(now=time.time(), aud="x"),
        ):
            assert await introspected(unknown) == {"active": False}
        body = {"method": "introspect", "params": {"token": f"{TOKEN} ana"}}
        request = a_message("execute", f"runtime://{FOREIGN}/rt", IDM, body, id_=1)
        assert at.rig.bus.from_links.take(FOREIGN, [parsed(request)]) == [None]
        await at.until(lambda: bool(at.rig.domains.sent))
        (reply,) = at.rig.domains.take()
        assert code_and_reason(reply) == (403, "transit")


# What the domain says of itself.


async def test_the_keys_of_the_domain_and_the_profile_of_a_user_can_be_read(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        (key,) = keys_of_jwks(
            json.dumps((await at.ana.ask("read", IDM, {"resource": "/keys"}))["body"]["value"]).encode()
        )
        assert key.key_id == "node-1"
        hyperty = await at.ana.allocated("hyperty")
        user, guid = "user://idp.example/ana", "user-guid://kS3Qd0x"
        value = {"url": hyperty, "user": user, "guid": guid, "runtime": at.ana.address, "descriptor": "d"}
        await at.ana.ask("create", f"domain://registry.{DOMAIN}", {"value": value})
        for resource in (f"/users/{user}", f"/users/{guid}"):
            reply = await at.ana.ask("read", IDM, {"resource": resource})
            assert reply["body"]["value"] == {"userURL": user, "guid": guid, "status": "live"}
        for resource, expected in (
            ("/users/user://idp.example/bo", (404, "not-registered")),
            ("/users/", (400, "bad-body")),
            ("/secrets", (404, "no-such-service")),
        ):
            assert code_and_reason(await at.ana.ask("read", IDM, {"resource": resource})) == expected


# At the border.


async def test_who_sends_a_message_is_known_by_its_assertion_and_by_nothing_else(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority, domains=(FOREIGN,)) as at:
        await at.fetched(1)
        identify = at.services.identify
        assert identify is not None
        now = time.time()

        def asked(body: Json, *, type_: str = "create", domain: str = FOREIGN) -> Identified:
            return identify(
                parsed(a_message(type_, f"hyperty://{domain}/x", "hyperty://a/y", body, id_=1)), domain, now
            )

        token = at.provider.token(now=now)
        known = Identified(True, "ana-7", at.provider.issuer)
        assert asked({"idToken": token}) == known
        assert asked({"identity": {"assertion": token, "userProfile": {"username": "boss"}}}) == known
        unproved: Json
        for unproved in ({"auth": True, "assertedIdentity": "ana"}, {"idToken": "a.b.c"}, {}):
            with pytest.raises(PeerError) as caught:
                asked(unproved)
            assert caught.value.code is Code.BAD_ASSERTION
            assert asked(unproved, type_="response") == Identified()
            assert asked(unproved, domain="gamma.example") == Identified()
        assert asked({"idToken": token}, domain="gamma.example") == Identified()  # it speaks for another domain


async def test_who_opened_a_session_with_a_provider_s_token_is_known_without_an_assertion_in_each_message(
    tmp_path: Path, authority: trustme.CA
) -> None:
    async with scene(tmp_path, authority) as at:
        await at.fetched(1)
        cy = await at.rig.runtime()
        token = at.provider.token(now=time.time(), runtime=f"runtime://{DOMAIN}/cy", sub="cy 7")
        assert (await cy.open("cy", {"credentials": {"kind": "bearer", "token": token}}))["body"]["code"] == 200
        hyperty, of_ana = await cy.allocated("hyperty"), await at.ana.allocated("hyperty")
        identify = at.services.identify
        assert identify is not None
        for sender, known in (
            (cy.address, Identified(True, "cy 7", at.provider.issuer)),
            (f"{cy.address}/sm", Identified(True, "cy 7", at.provider.issuer)),
            (hyperty, Identified(True, "cy 7", at.provider.issuer)),
            (at.ana.address, Identified()),  # a token of the settings names nobody
            (of_ana, Identified()),
            (f"hyperty://{DOMAIN}/nobody", Identified()),
        ):
            body = {"identity": {"userProfile": {"username": "boss"}}}
            message = parsed(a_message("create", sender, f"hyperty://{FOREIGN}/x", body, id_=1))
            assert identify(message, DOMAIN, time.time()) == known, sender


@pytest.mark.parametrize(
    ("groups", "passes"), [(frozenset({"staff", "x"}), True), (frozenset({"staffer"}), False), (None, False)]
)
def test_rules_see_the_groups_of_who_was_verified(groups: frozenset[str] | None, *, passes: bool) -> None:
    rules = permit("staff", condition("identity.groups", "contains", "staff")), deny("rest")
    gate = Gate(one_policy(*rules, algorithm=Algorithm.FIRST_APPLICABLE))
    message = parsed(a_message("create", f"hyperty://{DOMAIN}/a", f"hyperty://{DOMAIN}/b", {}, id_=1))
    known = LocalGate(unrecorded(gate), lambda *_: Identified(True, "cy", "i", groups))
    assert (known.judge(message, frozenset()) is None) == passes


def test_rules_of_our_own_bus_see_who_was_verified() -> None:
    rule = permit("only-cy", condition("identity.user", "equals", "cy"))
    gate = Gate(one_policy(rule, deny("rest"), algorithm=Algorithm.FIRST_APPLICABLE))
    message = parsed(a_message("create", f"hyperty://{DOMAIN}/a", f"hyperty://{DOMAIN}/b", {}, id_=1))
    for who, passes in (
        (Identified(True, "cy", "i"), True),
        (Identified(), False),
        (Identified(False, "cy", "i"), False),
    ):

        def known(_message: Message, _domain: str, _now: float, who: Identified = who) -> Identified:
            return who

        assert (LocalGate(unrecorded(gate), known).judge(message, frozenset()) is None) == passes
