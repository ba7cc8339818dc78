"""Messages in quarantine: listed, read, released and removed by operators; erased with a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msg_node.records.quarantine import Quarantine, copy_of
from msg_node.records.quarantined import about, find_all, kept_messages
from policy.core.gate import GateStep, GateVerdict
from policy.core.model import Facts
from policy.core.temporary import make_gate
from protofly.errors import Code, PeerError
from protofly.limits import QUARANTINE_BYTES
from protofly.message import Message
from tests.support.admin_rig import AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, FOREIGN, Json, a_message, parsed

ANA, BO, FAR = f"hyperty://{DOMAIN}/ana", f"hyperty://{DOMAIN}/bo", f"hyperty://{FOREIGN}/far"


def facts_of(hook: str, message: Message, domain: str = "") -> Facts:
    return Facts(hook, message, "", "", domain, len(message.raw), 0, 1_800_000_000.0)  # type: ignore[arg-type]


def keep_copy(folder: Path, name: str, facts: Facts, *, permitted: bool = False) -> str:
    """Keep a copy of a message as a rule wants it; returns its name."""
    quarantine = Quarantine(folder / "quarantine", lambda domain: domain == FOREIGN)
    code = None if permitted else Code.POLICY
    text = copy_of(facts, GateVerdict(permitted, code, "border/odd", "0" * 16, 0.0, GateStep.POLICY))
    place = quarantine.place(facts)
    assert quarantine.copy(place, {f"{name}.json": text})
    return f"rules/{place}/{name}.json"


def keep_killer(folder: Path, message: Json) -> str:
    """Keep a message that killed a stub."""
    place = folder / "quarantine" / FOREIGN
    place.mkdir(parents=True)
    entry = {"domain": FOREIGN, "msg_id": "ab", "ts_us": 1, "message": message}
    (place / "ab.json").write_text(json.dumps(entry))
    return f"{FOREIGN}/ab.json"


def created(from_: str, to: str, **body: object) -> Json:
    return a_message("create", from_, to, body or {"value": "a secret"}, id_=5)


async def changed(at: AdminRig, operation: str, message: str, **body: Any) -> Json:
    ops = await at.operator()
    return await ask_admin(ops, operation, arguments={"message": message}, **body)


async def test_messages_are_listed_without_and_shown_with_what_they_say(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        copy = keep_copy(tmp_path, "1", facts_of("in", parsed(created(FAR, BO)), FOREIGN))
        killer = keep_killer(tmp_path, created(ANA, FAR))
        (tmp_path / "quarantine" / FOREIGN / "torn.json").write_bytes(b'{"domain":')
        ops = await at.operator()
        page = (await ask_admin(ops, "quarantine", "read"))["value"]
        assert "secret" not in json.dumps(page)
        rows = {row["message"]: (row["why"], row["from"], row["to"], row["type"]) for row in page["rows"]}
        assert rows == {
            killer: ("it killed a stub", ANA, FAR, "create"),
            f"{FOREIGN}/torn.json": ("it killed a stub", "", "", ""),
            copy: ("border/odd", FAR, BO, "create"),
        }
        found = (await ask_admin(ops, "quarantine show", "read", arguments={"message": copy}))["value"]
        assert json.loads(found["entry"])["message"]["body"] == {"value": "a secret"}
        assert [(one.operation, one.arguments) for one in at.events] == [
            ("quarantine show", json.dumps({"message": copy}, separators=(",", ":")))
        ]


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(
    "name", ["../state.sqlite", "/etc/passwd", "local/../../x.json", "rules/local/../local/1.json", ""]
)
async def test_a_name_that_is_none_of_those_listed_reaches_no_file(tmp_path: Path, name: str) -> None:
    async with admin_rig(tmp_path) as at:
        keep_copy(tmp_path, "1", facts_of("local", parsed(created(ANA, BO))))
        before = files_below(tmp_path)
        ops = await at.operator()
        for operation, type_ in (("show", "read"), ("release", "execute"), ("delete", "execute")):
            reply = await ask_admin(ops, f"quarantine {operation}", type_, arguments={"message": name})
            assert reply["code"] in (400, 404), reply
        assert [one for one in before if not one.exists()] == []


async def test_only_operators_see_and_change_what_is_kept(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        name = keep_copy(tmp_path, "1", facts_of("local", parsed(created(ANA, BO))))
        plain = await at.operator(token="plain")
        for operation, type_ in (("quarantine show", "read"), ("quarantine delete", "execute")):
            reply = await ask_admin(plain, operation, type_, arguments={"message": name})
            assert (reply["code"], reply["reason"]) == (403, "policy")
        assert len(list(kept_messages(tmp_path))) == 1


async def test_what_is_deleted_is_gone_alone_or_with_its_folder(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        names = [keep_copy(tmp_path, str(number), facts_of("local", parsed(created(ANA, BO)))) for number in range(3)]
        other = keep_copy(tmp_path, "1", facts_of("in", parsed(created(FAR, BO)), FOREIGN))
        ops = await at.operator()

        async def delete(name: str, **body: Any) -> Json:
            reply = await ask_admin(ops, "quarantine delete", arguments={"message": name}, **body)
            assert reply["code"] == 200, reply
            value: Json = reply["value"]
            return value

        assert (await delete(names[0], dryRun=True))["before"]["messages"] == 1
        assert len(list(kept_messages(tmp_path))) == 4
        await delete(names[0])
        assert (await delete("rules/local/*"))["before"]["messages"] == 2
        assert [one.name for one in kept_messages(tmp_path)] == [other]
        assert [one.operation for one in at.events] == ["quarantine delete"] * 2


@pytest.mark.parametrize("hook", ["local", "in"])
async def test_a_released_message_reaches_its_recipient_once_and_is_kept_no_more(tmp_path: Path, hook: str) -> None:
    async with admin_rig(tmp_path) as at:
        bo = await at.rig.opened("bo")
        to = await bo.allocated("hyperty")
        from_, domain = (FAR, FOREIGN) if hook == "in" else (ANA, "")
        name = keep_copy(tmp_path, "1", facts_of(hook, parsed(created(from_, to)), domain))
        tried = await changed(at, "quarantine release", name, dryRun=True)
        assert tried["code"] == 200, tried
        assert await bo.heard() == []
        done = await changed(at, "quarantine release", name)
        assert done["value"]["after"]["outcome"] == "sent"
        (message,) = await bo.heard()
        assert (message["from"], message["to"], message["body"]["value"]) == (from_, to, "a secret")
        assert list(kept_messages(tmp_path)) == []
        assert [one.operation for one in at.events] == ["quarantine release"]


async def test_a_message_that_killed_a_stub_goes_to_its_domain_again(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        name = keep_killer(tmp_path, created(ANA, FAR))
        assert (await changed(at, "quarantine release", name))["code"] == 200
        assert [one["to"] for one in at.rig.domains.take()] == [FAR]
        assert list(kept_messages(tmp_path)) == []


@pytest.mark.parametrize(("hook", "from_", "domain"), [("in", FAR, FOREIGN), ("local", ANA, "")])
async def test_a_message_that_nobody_takes_stays(tmp_path: Path, hook: str, from_: str, domain: str) -> None:
    async with admin_rig(tmp_path) as at:
        name = keep_copy(tmp_path, "1", facts_of(hook, parsed(created(from_, BO)), domain))
        done = await changed(at, "quarantine release", name)
        assert done["value"]["after"]["outcome"] != "sent"
        assert len(list(kept_messages(tmp_path))) == 1


async def test_what_gates_deny_today_is_not_released(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        name = keep_copy(tmp_path, "1", facts_of("in", parsed(created(FAR, BO)), FOREIGN))
        at.node.gate.set_temporary([make_gate(FOREIGN, DOMAIN, "deny")])
        refused = await changed(at, "quarantine release", name)
        assert (refused["code"], refused["reason"]) == (403, "policy")
        assert "gate: deny" in refused["description"]
        assert len(list(kept_messages(tmp_path))) == 1


@pytest.mark.parametrize(
    ("to", "permitted", "reason"), [(BO, True, "already-final"), (f"domain://registry.{DOMAIN}", False, "bad-body")]
)
async def test_what_has_passed_or_is_not_whole_is_not_released(
    tmp_path: Path, to: str, reason: str, *, permitted: bool
) -> None:
    async with admin_rig(tmp_path) as at:
        name = keep_copy(tmp_path, "1", facts_of("local", parsed(created(ANA, to))), permitted=permitted)
        assert (await changed(at, "quarantine release", name))["reason"] == reason


async def test_a_person_is_erased_from_headers_and_bodies_and_nobody_else(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        person = f"user://{DOMAIN}/ana"
        for number, (from_, to, value) in enumerate(
            [
                (person, BO, ""),
                (f"{person}/x", BO, ""),
                (BO, person.upper().replace("ANA", "ana"), ""),
                (BO, FAR, f"write to {person}, soon"),
                (f"{person}bel", BO, ""),
                (BO, FAR, f"{person}-maria"),
            ]
        ):
            keep_copy(tmp_path, str(number), facts_of("local", parsed(created(from_, to, value=value))))
        ops = await at.operator()
        tried = await ask_admin(ops, "erase", arguments={"person": person}, dryRun=True)
        assert tried["value"]["before"] == {"quarantined_messages": 4}
        assert (await ask_admin(ops, "erase", arguments={"person": person}))["code"] == 200
        assert [one.path.name for one in kept_messages(tmp_path)] == ["4.json", "5.json"]


def test_hostile_files_are_listed_and_never_followed(tmp_path: Path) -> None:
    place = tmp_path / "quarantine" / "rules" / "others"
    place.mkdir(parents=True)
    (place / "deep.json").write_bytes(b"[" * 100_000)
    (place / "list.json").write_bytes(b"[1]")
    (place / "odd.json").write_bytes(b'{"ts_us":1e300,"from":7,"message":"x","rule":null}')
    with (place / "large.json").open("wb") as file:
        file.truncate(QUARANTINE_BYTES + 1)
    found = {one.path.name: (one.header("from"), one.message) for one in kept_messages(tmp_path)}
    assert found == dict.fromkeys(("deep.json", "large.json", "list.json", "odd.json"), ("", {}))
    assert len(about(tmp_path, frozenset({"x://y/z"}))) == 3
    assert about(tmp_path, frozenset()) == []
    with pytest.raises(PeerError):
        find_all(tmp_path, "rules/*")
