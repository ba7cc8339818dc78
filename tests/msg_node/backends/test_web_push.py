"""Waking runtimes that are away, with a push service over real HTTP."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwk, jwt

from msg_node.backends import web_push
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.web_push import PushKey, PushOptions, PushOrigin, WebPush
from msg_node.kernel.changes import Journal
from msg_node.kernel.counts import PushCount
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.requests.core.push_service import PushService
from msg_node.requests.core.push_targets import PushTarget, PushTargets
from msg_node.settings.load import load_settings
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import PUSH_TARGETS_PER_ADDRESS, PUSH_TARGETS_PER_RUNTIME
from tests.support.rest_server import Asked, RestServer, Said, rest_server
from tests.support.runtime_rig import (
    DOMAIN,
    PATIENCE_SECONDS,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

PUSH = f"domain://msg-node.{DOMAIN}/push"
BO = f"hyperty://{DOMAIN}/h-bo"
SUBJECT = "mailto:ops@alpha.example"


def no_tls() -> ssl.SSLContext:
    raise AssertionError("plain HTTP needs none")


def key_file(folder: Path, curve: ec.EllipticCurve | None = None, *, mode: int = 0o600) -> Path:
    pem = ec.generate_private_key(curve or ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "push.pem"
    path.write_bytes(pem)
    path.chmod(mode)
    return path


@dataclass
class Rig:
    bus: RuntimeRig
    server: RestServer
    push: WebPush
    key: PushKey

    def endpoint(self, name: str = "bo") -> str:
        return f"{self.server.url}/send/{name}?x=1"

    async def until(self, word: str, number: int = 1) -> None:
        """Wait until so many calls came to that."""
        with trio.fail_after(PATIENCE_SECONDS):
            while self.push.counters[word] < number:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def push_rig(folder: Path, statuses: list[int] | None = None, *, rest: float = 30.0) -> AsyncIterator[Rig]:
    answers = list(statuses or [])
    key = PushKey(key_file(folder), SUBJECT)

    def handler(_: Asked) -> Said:
        return Said(answers.pop(0) if answers else 201)

    async with rest_server(handler) as server, trio.open_nursery() as nursery:

        def at(state: NodeState) -> dict[str, Service]:
            return {PUSH: PushService(state, public_key=key.public, origins=[server.url])}

        async with runtime_rig(folder, services_at=at) as rig:
            rig.parks = lambda message, _roles, _domain: message.type == "create"
            push = WebPush(
                key,
                {server.url: PushOrigin(BackendHttp(server.url, no_tls, max_bytes=4096), 3.0)},
                rig.state.push,
                PushOptions(ttl_seconds=600, rest_seconds=rest),
                is_away=rig.bus.absences.is_away,
                keep=lambda: rig.bus.effects.publish_events([]),
            )
            rig.bus.parked_actions.recorder.on_parked = push.somebody_waits
            await nursery.start(push.run)
            yield Rig(rig, server, push, key)
        nursery.cancel_scope.cancel()


async def registered(made: Rig, *addresses: str, endpoint: str = "") -> Runtime:
    bo = await made.bus.opened("bo")
    await bo.subscribed(BO)
    value = {"endpoint": endpoint or made.endpoint(), "expirationTime": None, "keys": {"p256dh": "x", "auth": "y"}}
    body: Json = {"value": value, **({"resources": list(addresses)} if addresses else {})}
    assert code_and_reason(await bo.ask("create", PUSH, body)) == (200, "")
    return bo


async def away(made: Rig, runtime: Runtime, number: int = 1) -> None:
    await runtime.wire.cut()
    await made.bus.until("sessions lost", number)


async def invited(made: Rig, name: str = "ana", *, id_: int = 31) -> Json:
    ana = await made.bus.opened(name)
    await ana.say(a_message("create", ana.address, BO, {"value": {"name": "room"}}, id_=id_))
    return await ana.next()


async def test_who_is_away_is_woken_when_an_invitation_waits_and_then_gets_it(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        await away(made, bo)
        assert (await invited(made))["body"]["status"] == "pending"
        await made.until("sent")
        (asked,) = made.server.asked
        assert (asked.method, asked.target, asked.body) == ("POST", "/send/bo?x=1", b"")
        assert (asked.headers["ttl"], asked.headers["urgency"]) == ("600", "high")
        scheme, token, key = asked.headers["authorization"].replace(",", "").split()
        assert (scheme, key) == ("vapid", f"k={made.key.public}")
        claims = claims_of(token.removeprefix("t="), made.key.public)
        assert (claims["aud"], claims["sub"]) == (made.server.url, SUBJECT)
        assert 0 < claims["exp"] - time.time() <= 86_400
        again = await made.bus.runtime()
        again.address = bo.session_address
        await again.ask("re-open", "mn:/session")
        assert (await again.next())["to"] == BO


def claims_of(token: str, public: str) -> dict[str, Any]:
    """Checks the signature by the public key that runtimes receive."""
    point = base64.urlsafe_b64decode(public + "=" * (-len(public) % 4))
    assert (len(point), point[0]) == (65, 4)
    x, y = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (point[1:33], point[33:]))
    key = jwk.import_key({"kty": "EC", "crv": "P-256", "x": x, "y": y})
    return dict(jwt.decode(token, key, algorithms=["ES256"]).claims)


async def test_who_is_there_is_not_woken(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        ana = await made.bus.opened("ana")
        await ana.say(a_message("create", ana.address, BO, {"value": 1}, id_=1))
        assert (await bo.next())["to"] == BO
        assert made.server.asked == []


async def test_one_endpoint_is_called_once_in_a_while(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        await away(made, bo)
        for number in range(5):
            await invited(made, f"ana{number}", id_=number)
        await made.until("sent")
        assert len(made.server.asked) == 1


async def test_actions_for_an_agent_that_is_away_wake_it_as_well(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        await away(made, bo)
        ana = await made.bus.opened("ana")
        waits = await ana.ask("execute", BO, {"class": "action", "method": "ring"})
        assert waits["body"]["code"] == 202
        await made.until("sent")


@pytest.mark.parametrize("status", [404, 410])
async def test_a_subscription_that_is_no_more_is_forgotten(tmp_path: Path, status: int) -> None:
    async with push_rig(tmp_path, [status], rest=0.0) as made:
        bo = await registered(made, BO)
        await away(made, bo)
        await invited(made)
        await made.until("over")
        await invited(made, "eve")
        assert (len(made.server.asked), len(made.bus.state.push)) == (1, 0)
    async with push_rig(tmp_path) as made:
        assert len(made.bus.state.push) == 0


async def test_a_push_service_that_fails_for_now_is_asked_again_and_a_refusal_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_push, "_PAUSE_SECONDS", 0.0)
    async with push_rig(tmp_path, [503, 429, 201, 403, 500, 500, 500], rest=0.0) as made:
        bo = await registered(made, BO)
        await away(made, bo)
        for name, word, asked in (("ana", "sent", 3), ("eve", "refused", 4), ("joe", "failed", 7)):
            await invited(made, name)
            await made.until(word)
            assert len(made.server.asked) == asked


async def test_a_push_service_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_push, "_WAITING", 20)
    asked: list[str] = []
    answer = trio.Event()

    async def ask(_http: BackendHttp, _method: str, path: str, **_: object) -> SimpleNamespace:
        asked.append(path)
        if path.startswith("/stalled"):
            await answer.wait()
        return SimpleNamespace(status=201)

    monkeypatch.setattr(BackendHttp, "ask", ask)
    names = ["stalled.example", "other.example"]
    services = {
        f"https://{name}": PushOrigin(BackendHttp(f"https://{name}", no_tls, max_bytes=10), 3.0) for name in names
    }
    endpoints = [f"https://stalled.example/stalled/{number}" for number in range(50)]
    targets = {"crowd": endpoints, "one": ["https://other.example/one"]}

    def of(key: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(endpoint=endpoint) for endpoint in targets[key]]

    push = WebPush(
        cast("PushKey", SimpleNamespace(authorization=lambda _origin, _now: "")),
        services,
        cast("PushTargets", SimpleNamespace(of=of, sweep=lambda **_: None)),
        PushOptions(ttl_seconds=600, rest_seconds=30.0),
        is_away=lambda _key: True,
        keep=lambda: None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(push.run)
        push.somebody_waits("crowd")
        push.somebody_waits("one")
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(asked) == ["/one", *(f"/stalled/{number}" for number in range(8))]
        assert push.counters[PushCount.TOO_MANY] == 30
        answer.set()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(asked) == sorted(["/one", *(f"/stalled/{number}" for number in range(20))])
        assert push._queues == {}
        nursery.cancel_scope.cancel()


async def test_a_push_subscription_survives_the_node_and_ends_with_its_time(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        value = {"endpoint": made.endpoint("short"), "expirationTime": (time.time() + 3600) * 1000}
        assert code_and_reason(await bo.ask("create", PUSH, {"value": value})) == (200, "")
        shown = (await bo.ask("read", PUSH))["body"]["value"]
        assert shown["publicKey"] == made.key.public
        (kept,) = shown["subscriptions"]
        assert (kept["resource"], kept["endpoint"]) == (bo.address, made.endpoint("short"))
        assert 3500 < kept["expires"] - time.time() <= 3600
    async with push_rig(tmp_path) as made:
        assert len(made.bus.state.push) == 2
        made.bus.state.push.sweep(now=time.time() + 4000)
        assert [one.key for one in made.bus.state.push.of(BO)] == [BO]
        assert made.bus.state.push.of(bo.address) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, (400, "bad-body")),
        ({"value": {"endpoint": ""}}, (400, "bad-body")),
        ({"value": {"endpoint": "nonsense"}}, (400, "bad-body")),
        ({"value": {"endpoint": "https://u:p@push.example/x"}}, (400, "bad-body")),
        ({"value": {"endpoint": "https://push.example:99999/x"}}, (400, "bad-body")),
        ({"value": {"endpoint": "https://push.example/a b"}}, (400, "bad-body")),
        ({"value": {"endpoint": "https://push.example/\r\nHost: x"}}, (400, "bad-body")),
        ({"value": {"endpoint": "https://push.example/" + "x" * 2000}}, (400, "bad-body")),
        ({"value": {"endpoint": "http://169.254.169.254/latest"}}, (403, "policy")),
        ({"value": {"endpoint": "https://push.example/x"}}, (403, "policy")),
        ({"value": {"endpoint": "{url}/x", "expirationTime": 1000}}, (400, "bad-body")),
        ({"value": {"endpoint": "{url}/x"}, "resource": runtime_address("ana")}, (403, "not-owner")),
        ({"value": {"endpoint": "{url}/x"}, "resource": f"hyperty://{DOMAIN}/nobody"}, (403, "not-owner")),
        ({"value": {"endpoint": "{url}.evil.example/x"}}, (400, "bad-body")),
        ({"value": {"endpoint": "{url}@evil.example/x"}}, (400, "bad-body")),
    ],
)
async def test_nobody_makes_the_node_call_another_place_or_for_another_address(
    tmp_path: Path, body: Json, said: tuple[int, str]
) -> None:
    async with push_rig(tmp_path) as made:
        await made.bus.opened("ana")
        eve = await made.bus.opened("eve")
        written = json.loads(json.dumps(body).replace("{url}", made.server.url))
        assert code_and_reason(await eve.ask("create", PUSH, written)) == said
        assert len(made.bus.state.push) == 0


async def test_a_new_owner_of_an_address_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async with push_rig(tmp_path) as made:
        bo = await registered(made, BO)
        await bo.say(a_message("close", bo.address, "mn:/session", id_=1))
        await bo.close_code()
        ana = await made.bus.opened("ana")
        await ana.ask("subscribe", SM, {"resources": [BO], "source": BO})
        await ana.ask("create", PUSH, {"resource": BO, "value": {"endpoint": made.endpoint("ana")}})
        assert [one.endpoint for one in made.bus.state.push.of(BO)] == [made.endpoint("ana")]
        assert code_and_reason(await ana.ask("delete", PUSH, {"resource": BO})) == (200, "")
        assert len(made.bus.state.push) == 0


def test_an_address_has_so_many_subscriptions() -> None:
    targets = PushTargets(Journal())
    for number in range(PUSH_TARGETS_PER_ADDRESS):
        targets.add(PushTarget(BO, f"https://p/{number}", "runtime://x/y", 10.0))
    targets.add(PushTarget(BO, "https://p/0", "runtime://x/y", 20.0))
    with pytest.raises(PeerError) as refused:
        targets.add(PushTarget(BO, "https://p/new", "runtime://x/y", 10.0))
    assert refused.value.code is Code.QUOTA
    targets.sweep(now=15.0)
    assert [one.endpoint for one in targets.of(BO)] == ["https://p/0"]


def test_one_runtime_takes_no_room_from_others() -> None:
    targets = PushTargets(Journal())

    def add(name: str, number: int) -> None:
        targets.add(PushTarget(f"hyperty://{DOMAIN}/{name}{number}", "https://p/1", f"runtime://x/{name}", 10.0))

    for number in range(PUSH_TARGETS_PER_RUNTIME):
        add("eve", number)
    with pytest.raises(PeerError) as refused:
        add("eve", PUSH_TARGETS_PER_RUNTIME)
    assert refused.value.code is Code.QUOTA
    add("ana", 1)
    targets.remove(f"hyperty://{DOMAIN}/eve0")
    add("eve", PUSH_TARGETS_PER_RUNTIME)
    targets.gone("https://p/1")
    assert len(targets) == 0


# Settings.

HEAD = '[node]\ndomain = "alpha.example"\ndata_dir = "data"\n[listen]\ninsecure_plaintext = true\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('subject = "ops"\n[[push.service]]\nurl = "https://p.example"\n', "mailto:"),
        ('subject = "mailto:x"\n', "no push service"),
        ('subject = "mailto:x"\n[[push.service]]\nurl = "http://p.example"\n', "needs https://"),
        ('subject = "mailto:x"\n[[push.service]]\nurl = "https://p.example/send"\n', "an origin"),
    ],
)
def test_settings_that_wake_nobody_are_refused(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "node.toml").write_text(f'{HEAD}[push]\nkey = "push.pem"\n{text}')
    with pytest.raises(SettingsError, match=shown):
        load_settings(tmp_path / "node.toml")


def test_a_key_that_cannot_sign_for_push_services_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="open to others"):
        PushKey(key_file(tmp_path, mode=0o644), SUBJECT)
    with pytest.raises(SettingsError, match="P-256"):
        PushKey(key_file(tmp_path, ec.SECP384R1()), SUBJECT)
    (tmp_path / "push.pem").write_text("nonsense")
    with pytest.raises(SettingsError, match=r"push\.key"):
        PushKey(tmp_path / "push.pem", SUBJECT)
