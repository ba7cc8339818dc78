"""People between real nodes: b.example's messages need an assertion that holds, and a rule lets one person in."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from interop.laboratory import POLICIES
from interop.runtime_client import Answer
from tests.support.token_issuer import TokenIssuer

from .systems import running_system

ISSUER = "https://login.b.example"
AUDIENCE = "node.a.example"
STUB = "hyperty-catalogue://catalogue.b.example/.well-known/protocolstub/default"
PEOPLE = f"""
[identity]
demand = ["b.example"]
[[identity.provider]]
issuer = "{ISSUER}"
audience = ["{AUDIENCE}"]
domains = ["b.example"]
jwks = "keys.json"
stub_claim = "rethink_stub"
"""
RULE = """
[[rules]]
id = "only-bruno"
effect = "deny"
condition = { actionType = { equals = "execute" }, not = { identity.user = { equals = "bruno" } } }

[[rules]]
id = "no-long-journeys"
"""


@pytest.mark.long
async def test_only_a_person_who_is_vouched_for_gets_through(tmp_path: Path) -> None:
    provider, stranger = TokenIssuer(ISSUER), TokenIssuer("https://login.c.example")
    policies = tmp_path / "policies"
    shutil.copytree(POLICIES, policies)
    policy = policies / "a.example.policy.toml"
    policy.write_text(policy.read_text().replace('\n[[rules]]\nid = "no-long-journeys"\n', RULE))
    async with running_system(tmp_path / "laboratory", policies=policies) as system:
        anna, bruno = await system.couple()
        folder = system.a.folder.settings.parent
        (folder / "conf.d").mkdir()
        (folder / "conf.d" / "people.toml").write_text(PEOPLE)
        (folder / "keys.json").write_text(json.dumps(provider.jwks))
        await system.a.stop()
        await system.start(system.a)
        anna = await system.talker(system.a, "anna")

        async def asked(type_: str = "create", **body: object) -> tuple[int, str]:
            answer: Answer = await bruno.client.request(type_, bruno.hyperty, anna.hyperty, {"value": 1, **body})
            return answer.code, answer.reason

        def token(signer: TokenIssuer, subject: str, **changes: object) -> str:
            now = time.time()
            claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": int(now), "exp": int(now) + 300, **changes}
            return signer.signed(claims)

        bruno_is, carla_is = token(provider, "bruno"), token(provider, "carla")
        assert await asked(idToken=bruno_is) == (200, "")
        assert await asked("execute", identity={"assertion": bruno_is}) == (200, "")
        assert await asked("execute", idToken=carla_is) == (403, "policy")
        assert await asked(idToken=token(provider, "bruno", rethink_stub=STUB)) == (200, "")
        claimed = {"userProfile": {"username": "bruno"}}
        assert await asked("execute", idToken=carla_is, identity=claimed) == (403, "policy")
        for body in (
            {},
            {"auth": True, "assertedIdentity": "bruno", "identity": claimed},
            {"idToken": token(stranger, "bruno")},
            {"idToken": token(stranger, "bruno", iss="https://login.c.example")},
            {"idToken": token(provider, "bruno", aud="node.c.example")},
            {"idToken": token(provider, "bruno", exp=int(time.time()) - 3_600)},
            {"idToken": token(provider, "bruno", rethink_stub=STUB.replace("b.example", "c.example"))},
            {"idToken": 5},
        ):
            assert await asked(**body) == (401, "bad-assertion"), body
        assert (await system.whole_status(system.a))["backends"]["identity"] == []  # its keys are in a file
        assert (await anna.ask(bruno.hyperty)).is_ok  # what bruno answers needs none
