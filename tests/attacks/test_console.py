"""The console and those who have no token: other pages in the operator's browser, strangers, and hostile texts."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest

from msg_node.admin.core.console_sessions import IDLE_SECONDS, LIFE_SECONDS, LOG_INS, ConsoleSessions
from msg_node.kernel.restrictions import Restricted, Restriction
from protofly.records import DecisionRecord
from tests.support.admin_rig import AdminRig, admin_site

PAGES = ["/", "/partners", "/partners/b.example", "/sessions", "/policies", "/decisions"]
UNBLOCK = "/partners/c.example/unblock"


def blocked(at: AdminRig) -> bool:
    return at.rig.state.restrictions.find(Restricted.PEER, "c.example") is not None


def block(at: AdminRig) -> None:
    at.rig.state.restrictions.set(
        Restriction(what=Restricted.PEER, subject="c.example", reason="", by="ops", since=time.time())
    )


async def logged_in(client: httpx.AsyncClient, token: str) -> str:
    """Log in; the word that forms carry."""
    answer = await client.post("/login", data={"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    page = await client.get("/sessions")
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found is not None
    return found[1]


async def test_strangers_see_the_log_in_page_and_nothing_else(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, _token):
        block(at)
        for path in PAGES:
            for cookies in ({}, {"trapezoid-console": "guess"}, {"trapezoid-console": ""}):
                client.cookies = httpx.Cookies(cookies)
                answer = await client.get(path)
                assert (answer.status_code, answer.headers["location"], answer.text) == (303, "/login", ""), path
        client.cookies = httpx.Cookies()
        assert "alpha.example" not in (await client.get("/login")).text
        for path in (UNBLOCK, "/policies", "/logout"):
            assert (await client.post(path, data={"confirmed": "yes", "csrf": ""})).headers["location"] == "/login"
        assert (blocked(at), at.events) == (True, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"X-Forwarded-For": "127.0.0.1"},
    ],
)
async def test_forms_of_other_pages_are_refused_even_with_cookie_and_word(
    fields: dict[str, str], tmp_path: Path
) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        block(at)
        csrf = await logged_in(client, token)
        answer = await client.post(UNBLOCK, data={"confirmed": "yes", "csrf": csrf}, headers=fields)
        assert (answer.status_code, blocked(at), at.events) == (403, True, [])


async def test_forms_without_the_word_of_their_log_in_are_refused(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        block(at)
        csrf = await logged_in(client, token)
        other = await logged_in(client, token)
        for word in ("", "x", csrf, other + "x", other.swapcase()):
            answer = await client.post(UNBLOCK, data={"confirmed": "yes", "csrf": word})
            assert (answer.status_code, blocked(at)) == (403, True)
        answer = await client.post(f"{UNBLOCK}?csrf={other}", content=b"confirmed=yes")
        assert (answer.status_code, blocked(at)) == (403, True)
        answer = await client.get(UNBLOCK)
        assert (answer.status_code, blocked(at)) == (405, True)
        assert at.events == []

        tried = await client.post(UNBLOCK, data={"csrf": other})
        assert (tried.status_code, "Nothing has changed yet" in tried.text, blocked(at)) == (200, True, True)
        done = await client.post(UNBLOCK, data={"csrf": other, "confirmed": "yes"})
        assert (done.status_code, blocked(at)) == (303, False)
        [event] = at.events
        assert (event.actor, event.way) == ("console at 127.0.0.1", "https")


async def test_the_cookie_is_for_pages_of_this_host_only_and_opens_no_api(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (_at, client, token):
        answer = await client.post("/login", data={"token": token})
        flags = {one.strip().lower() for one in answer.headers["set-cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/"} <= flags
        assert "domain" not in answer.headers["set-cookie"].lower()
        assert (await client.get("/sessions")).status_code == 200
        assert (await client.get("/api")).status_code == 401
        assert (await client.post("/api", json={"operation": "sessions"})).status_code == 401


async def test_a_log_in_ends_when_it_logs_out_and_when_the_token_changes(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (_at, client, token):
        csrf = await logged_in(client, token)
        kept = dict(client.cookies)
        await client.post("/logout", data={"csrf": csrf})
        client.cookies = httpx.Cookies(kept)
        assert (await client.get("/sessions")).status_code == 303
        await logged_in(client, token)
        (tmp_path / "admin-token").write_text("another token that is long enough")
        assert (await client.get("/sessions")).status_code == 303
        answer = await client.post("/login", data={"token": token})
        assert (answer.status_code, "not the token" in answer.text) == (401, True)


def test_log_ins_end_with_time_and_there_is_room_for_a_few() -> None:
    sessions = ConsoleSessions()
    sessions.open("idle", "w", b"t", 0.0)
    assert sessions.find("idle", b"t", IDLE_SECONDS) is not None
    assert sessions.find("idle", b"t", 2 * IDLE_SECONDS + 1) is None
    sessions.open("busy", "w", b"t", 0.0)
    times = [number * IDLE_SECONDS for number in range(int(LIFE_SECONDS / IDLE_SECONDS) + 2)]
    seen = [sessions.find("busy", b"t", now) for now in times]
    assert (seen[-2] is None, seen[-1] is None, seen[-3] is None) == (False, True, False)
    for number in range(LOG_INS + 5):
        sessions.open(f"many {number}", "w", b"t", 0.0)
    assert len(sessions) == LOG_INS
    assert sessions.find("many 4", b"t", 1.0) is None
    assert sessions.find("many 5", b"t", 1.0) is not None
    assert sessions.find("many 6", b"", 1.0) is None


async def test_texts_of_others_are_shown_as_texts_and_pages_run_no_script_of_their_own(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    async with admin_site(tmp_path) as (at, client, token):
        record = DecisionRecord(
            ts_us=int(time.time() * 1e6),
            hook="local",
            effect="deny",
            permitted=False,
            policy_rev="",
            src_domain="",
            dst_domain="",
            src_key=hostile,
            dst_key=hostile,
            msg_type=hostile,
            rule_id=hostile,
        )
        at.administration._node.traffic.observe([record], time.time())
        await logged_in(client, token)
        filtered = [f"/decisions?where=from%3D{hostile}", f"/sessions?where={hostile}"]
        for path in ["/decisions", "/policies", "/login", *filtered]:
            answer = await client.get(path)
            assert "alert(1)</script>" not in answer.text, path
            assert "<img src=x" not in answer.text, path
            assert re.findall(r"<script(?! src=\"/console.js\" defer></script>)", answer.text) == []
            assert not re.search(r"\son\w+=|style=|javascript:", answer.text.replace("onerror=alert", "")), path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        assert "&lt;script&gt;" in (await client.get("/decisions")).text


async def test_forms_that_are_none_are_refused(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (_at, client, token):
        csrf = await logged_in(client, token)
        for body in (b"\xff\xfe", b"a=1&" * 100, b"csrf=" + csrf.encode() + b"&x=" + b"y" * 70_000):
            assert (await client.post("/policies", content=body)).status_code in {400, 403, 413}
        answer = await client.post("/policies", data={"csrf": csrf, "from": "x", "to": "", "type": "", "body": "["})
        assert (answer.status_code, "message bad" in answer.text) == (200, True)
        for after in ("x", "-1", "9" * 30, "²"):
            assert (await client.get("/sessions", params={"after": after})).status_code in {200, 400}


async def test_a_gate_is_set_after_it_is_confirmed_and_strange_forms_set_none(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        csrf = await logged_in(client, token)
        gate = {"csrf": csrf, "from": "a.example", "to": "*", "for": "1h", "reason": "<b>trial</b>"}
        asked = await client.post("/policies/gates/set", data=gate)
        assert (asked.status_code, "deny a.example &gt; *, for 1h" in asked.text) == (200, True)
        assert not list(at.rig.state.restrictions)
        for form, path in (
            ({**gate, "confirmed": "yes", "csrf": "guess"}, "set"),
            ({**gate, "confirmed": "yes", "from": "a b"}, "set"),
            ({**gate, "confirmed": "yes", "for": ""}, "set"),
            ({**gate, "confirmed": "yes"}, "open"),
        ):
            assert (await client.post(f"/policies/gates/{path}", data=form)).status_code in {400, 403, 404}
        assert not list(at.rig.state.restrictions)
        done = await client.post("/policies/gates/set", data={**gate, "confirmed": "yes"})
        assert (done.status_code, done.headers["location"]) == (303, "/policies")
        shown = (await client.get("/policies")).text
        assert "&lt;b&gt;trial&lt;/b&gt;" in shown
        assert "<b>trial" not in shown
        await client.post(
            "/policies/gates/unset", data={"csrf": csrf, "from": "a.example", "to": "*", "confirmed": "yes"}
        )
        assert not list(at.rig.state.restrictions)


LOOK_ALIKE = "\u202egna\u202c\u2066\u2028\x85\x9b31m\u200b\U000e0041"


async def test_text_of_strangers_cannot_look_like_another_one(tmp_path: Path) -> None:
    async with admin_site(tmp_path) as (at, client, token):
        csrf = await logged_in(client, token)
        stranger = await at.rig.opened(f"ana{LOOK_ALIKE}")
        gate = {"csrf": csrf, "from": "a.example", "to": "*", "for": "1h", "reason": LOOK_ALIKE}
        asked = await client.post("/policies/gates/set", data=gate)
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked.text))
        assert fields["reason"] == LOOK_ALIKE, "a field is sent back as it was typed"
        await client.post("/policies/gates/set", data={**gate, "confirmed": "yes"})
        for path in PAGES:
            page = (await client.get(path)).text
            assert page.replace("\n", "").isprintable(), path
        assert r"ana\u202egna\u202c" in (await client.get("/sessions")).text
        assert at.has_session(stranger.address.rpartition("/")[2]), "and it is served as ever"
