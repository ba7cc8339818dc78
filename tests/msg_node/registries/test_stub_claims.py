"""What an identity provider says about the stub of a user's domain, against where that stub is got from."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.own_names import OwnNames
from msg_node.node_state import make_state
from msg_node.registries.core.stub_claims import names_stub_of
from msg_node.settings.load import load_settings
from msg_node.wiring.identity import IdentityServices
from protofly.documents import SigningKey
from tests.support.sides import Bus, Pair, inbound, text
from tests.support.token_issuer import TokenIssuer

DOMAIN = "b.example"
USED = f"https://{DOMAIN}/.well-known/rethink-mn"
PLACE = "https://mn.elsewhere.example:8443/.well-known/rethink-mn"
STREAM = "5" * 32


@pytest.mark.parametrize(
    ("claim", "used", "fits"),
    [
        (USED, USED, True),
        (f"https://{DOMAIN}/.well-known/protocolstub/default", USED, True),
        (f"https://{DOMAIN}:443/.well-known/rethink-mn/manifest/default", USED, True),
        (f"https://{DOMAIN.upper()}/.well-known/rethink-mn", USED, True),
        (f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/protocolstub/default", USED, True),
        (f"HYPERTY-CATALOGUE://{DOMAIN}/protostub/BNodeStub", USED, True),
        ("https://mn.elsewhere.example:8443/.well-known/protocolstub/default", PLACE, True),
        (USED, PLACE, False),
        (f"https://evil.example/.well-known/rethink-mn?{DOMAIN}", USED, False),
        (f"https://{DOMAIN}.evil.example/.well-known/rethink-mn", USED, False),
        (f"https://{DOMAIN}@evil.example/.well-known/rethink-mn", USED, False),
        (f"https://evil@{DOMAIN}/.well-known/rethink-mn", USED, False),
        (f"http://{DOMAIN}/.well-known/rethink-mn", USED, False),
        (f"https://{DOMAIN}:8443/.well-known/rethink-mn", USED, False),
        (f"https://{DOMAIN}/stubs/default", USED, False),
        (f"hyperty-catalogue://{DOMAIN}/.well-known/hyperty/Chat", USED, False),
        (f"hyperty-catalogue://x.{DOMAIN}/.well-known/protocolstub/default", USED, False),
        ("hyperty-catalogue://evil.example/.well-known/protocolstub/b.example", USED, False),
        ("https://[::1", USED, False),
        ("https://b.example:99999/.well-known/x", USED, False),
        ("", USED, False),
        (DOMAIN, USED, False),
    ],
)
def test_a_claim_names_the_place_that_is_used_or_it_does_not(claim: str, used: str, fits: bool) -> None:
    assert names_stub_of(claim, DOMAIN, used) is fits


@given(st.text(max_size=60) | st.text("htps:/.bexaml@[]#?%", max_size=40))
def test_no_claim_makes_it_fail_and_none_fits_by_chance(claim: str) -> None:
    assert names_stub_of(claim, DOMAIN, USED) is False or DOMAIN in claim.lower()


def services(folder: Path, issuer: TokenIssuer, *, claim: str = "rethink_stub", place: str = "") -> IdentityServices:
    (folder / "keys.json").write_text(json.dumps(issuer.jwks))
    where = f'well_known_url = "{place}"\n' if place else ""
    (folder / "node.toml").write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'
        f'[[peer]]\ndomain = "{DOMAIN}"\n{where}'
        f'[[identity.provider]]\nissuer = "{issuer.issuer}"\naudience = ["node.a.example"]\n'
        f'domains = ["{DOMAIN}"]\njwks = "keys.json"\nstub_claim = "{claim}"\n'
    )
    settings = load_settings(folder / "node.toml")
    return IdentityServices(settings, make_state(OwnNames.of({"a.example"})), SigningKey.from_seed("test", bytes(32)))


@pytest.mark.parametrize(
    ("stub", "place", "passes"),
    [
        (None, "", True),
        (USED, "", True),
        (USED, PLACE, False),
        (PLACE, PLACE, True),
        (PLACE, "", False),
        (7, "", True),  # an assertion that does not hold proves nobody, and none is demanded here
    ],
)
def test_a_message_whose_provider_names_another_stub_does_not_cross_the_border(
    tmp_path: Path, stub: object, place: str, passes: bool
) -> None:
    issuer = TokenIssuer(f"https://login.{DOMAIN}")
    identify = services(tmp_path, issuer, place=place).identify
    now = int(time.time())
    claims = {"iss": issuer.issuer, "aud": "node.a.example", "sub": "bo", "iat": now, "exp": now + 300}
    token = issuer.signed(claims if stub is None else {**claims, "rethink_stub": stub})
    pair = Pair(a=Bus("a.example", identify=identify))
    said = text(body=json.dumps({"idToken": token}))
    pair.to_b.inbound(inbound(said, said), STREAM)  # the verdict is remembered, and with it what the provider says
    assert len(pair.a.delivered) == (2 if passes else 0)
    outcomes = {(record.outcome, record.outcome_code) for record in pair.a.message_records}
    assert outcomes == {("delivered", None)} if passes else outcomes == {("rejected", "bad-assertion")}


def test_without_the_setting_the_claim_is_not_looked_at(tmp_path: Path) -> None:
    issuer = TokenIssuer(f"https://login.{DOMAIN}")
    identify = services(tmp_path, issuer, claim="").identify
    now = int(time.time())
    claims = {"iss": issuer.issuer, "aud": "node.a.example", "sub": "bo", "exp": now + 300, "rethink_stub": PLACE}
    pair = Pair(a=Bus("a.example", identify=identify))
    pair.to_b.inbound(inbound(text(body=json.dumps({"idToken": issuer.signed(claims)}))), STREAM)
    assert len(pair.a.delivered) == 1
