"""Logins at a real node process that is killed: what was answered stays true."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.runtime_rig import DOMAIN, SESSION, Json, Runtime, code_and_reason
from tests.support.token_issuer import TokenIssuer
from trapezoid.commands import app

from .one_node import SETTINGS, serving

IDM = f"domain://idm.{DOMAIN}"
PROVIDER = TokenIssuer("https://login.alpha.example")
PEOPLE = f"""
[[identity.provider]]
issuer = "{PROVIDER.issuer}"
audience = ["node"]
jwks = "provider.json"
[identity.tokens]
keys_dir = "keys"
"""


async def logged_in(runtime: Runtime, subject: str) -> str:
    now = int(time.time())
    claims = {"iss": PROVIDER.issuer, "aud": "node", "sub": subject, "iat": now, "exp": now + 300}
    reply = await asked(runtime, "login", credentials={"kind": "assertion", "assertion": PROVIDER.signed(claims)})
    return str(reply["body"]["value"]["token"])


async def asked(runtime: Runtime, method: str, **params: object) -> Json:
    reply = await runtime.ask("execute", IDM, {"method": method, "params": params})
    assert code_and_reason(reply) == (200, ""), reply["body"]
    return reply


def bearer(token: str) -> Json:
    return {"credentials": {"kind": "bearer", "token": token}}


@pytest.mark.long
async def test_a_killed_node_remembers_which_tokens_are_over(tmp_path: Path) -> None:
    (tmp_path / "provider.json").write_text(json.dumps(PROVIDER.jwks))
    made = CliRunner().invoke(app, ["keys", "token", "--keys", str(tmp_path / "keys")])
    assert made.exit_code == 0, made.output
    settings = SETTINGS.format(grace=120) + PEOPLE
    async with serving(tmp_path, settings) as node:
        ana, bo, cy = await node.opened("ana"), await node.opened("bo"), await node.opened("cy")
        revoked, old, good = await logged_in(ana, "ana"), await logged_in(bo, "bo"), await logged_in(cy, "cy")
        for runtime, token in ((ana, revoked), (bo, old), (cy, good)):
            name = runtime.address.rpartition("/")[2]
            assert code_and_reason(await runtime.open(name, bearer(token))) == (200, "")
        assert (await node.status())["backends"]["tokens"]["logins"] == 3
        new = (await asked(bo, "refresh", token=old))["body"]["value"]["token"]
        await asked(ana, "revoke", token=revoked)
        node.kill()  # at once: the sweeper has not ended ana's session yet, or has just
        await node.child.wait()

    async with serving(tmp_path, settings) as node:
        assert (await node.returned(ana))[1] == 500
        assert (await node.returned(cy))[1] == 200
        for name, token, expected in (
            ("ana", revoked, (401, "bad-token")),
            ("bo", old, (401, "bad-token")),
            ("bo", new, (200, "")),
        ):
            runtime = await node.runtime()
            assert code_and_reason(await runtime.open(name, bearer(token))) == expected, name
        dee = await node.opened("dee")
        again = await dee.ask("execute", IDM, {"method": "refresh", "params": {"token": old}})
        assert code_and_reason(again) == (401, "bad-token")  # another runtime: no sign of a copy
        bo_again = await node.runtime()
        assert code_and_reason(await bo_again.open("bo", bearer(new))) == (200, "")
        replay = await bo_again.ask("execute", IDM, {"method": "refresh", "params": {"token": old}})
        assert code_and_reason(replay) == (401, "bad-token")
        assert await bo_again.close_code() == 4401  # both holders of the copy are out
        late = await node.runtime()
        assert code_and_reason(await late.ask("open", SESSION, bearer(new), from_=bo_again.address)) == (
            401,
            "bad-token",
        )
