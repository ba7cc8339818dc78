"""Bundles of policies that nobody signed, or signed for something else; one person who does the work of two."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from msg_node.admin import admin_socket
from msg_node.admin.administration import Actor
from msg_node.admin.core.operations import AdminRequest
from msg_node.admin.core.pages import Page
from msg_node.admin.core.proposals import (
    PROPOSAL_SECONDS,
    PROPOSALS,
    Author,
    Proposal,
    Proposals,
    proposal_of,
)
from msg_node.admin.policy_deployment import policies_of
from msg_node.kernel.changes import Journal
from msg_node.settings.tables.policy import PolicySettings
from policy.core.signed_bundle import PAYLOAD_TYPE, check_signature, sign_bundle
from policy.files import digest_of_files
from protofly.errors import Code, HostError, PeerError, SettingsError
from protofly.limits import POLICY_SIGNATURE_BYTES
from protofly.signatures import SigningKey, sign_envelope
from tests.support.admin_rig import PEP_ADDRESS, AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, PATIENCE_SECONDS, Json

FILES = {"open.toml": 'id = "open"\n[[rules]]\nid = "all"\neffect = "permit"\n'}
BROKEN = {"open.toml": "[[["}
DIGEST = digest_of_files(FILES)
KEY, STRANGER = (SigningKey.from_seed("policy-1", bytes([number]) * 32) for number in (1, 2))
SIGNED = PolicySettings(keys=(KEY.record().pub,))
TWO_PERSONS = PolicySettings(two_persons=True)


def statement(**changed: object) -> bytes:
    return json.dumps({"spec": "policy-bundle/1", "domain": DOMAIN, "sha256": DIGEST, **changed}).encode()


async def perform(at: AdminRig, operation: str, arguments: Json, credential: str = "user 0") -> Json:
    """Ask as the holder of a credential; raises what the operation raises."""
    request = AdminRequest(operation=operation, arguments=arguments, dry_run=False)
    found = await at.administration.perform(request, Actor("ops", "socket", credential))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        (b"", "sign the bundle"),
        (b"{", "no signature"),
        (b"x" * 9_000, "at most"),
        (sign_bundle(DOMAIN, DIGEST, [STRANGER]), "no key"),
        (sign_bundle(DOMAIN, DIGEST, [KEY]).replace(b"policy-1", b"policy-2").replace(b'"sig":"', b'"sig":"A'), "no"),
        (sign_bundle("b.example", DIGEST, [KEY]), "signed for b.example"),
        (sign_bundle(DOMAIN, "0" * 64, [KEY]), "other files"),
        (sign_envelope(statement(), "application/vnd.rethink.root.v1+json", [KEY]), "no key"),
        (sign_envelope(statement(spec="policy-bundle/2"), PAYLOAD_TYPE, [KEY]), "no statement"),
        (sign_envelope(statement(more=1), PAYLOAD_TYPE, [KEY]), "no statement"),
        (sign_envelope(b"[" * 4_000, PAYLOAD_TYPE, [KEY]), "no"),
    ],
)
def test_a_signature_of_something_else_counts_for_nothing(signature: bytes, words: str) -> None:
    with pytest.raises(PeerError, match=words) as caught:
        check_signature(signature, keys=SIGNED.keys, domain=DOMAIN, digest=DIGEST)
    assert caught.value.code is Code.POLICY_UNSIGNED


def test_one_of_several_keys_is_enough_and_the_order_of_files_counts() -> None:
    both = (STRANGER.record().pub, KEY.record().pub)
    check_signature(sign_bundle(DOMAIN, DIGEST, [KEY]), keys=both, domain=DOMAIN, digest=DIGEST)
    assert digest_of_files({"a.toml": "1", "b.toml": "2"}) != digest_of_files({"b.toml": "2", "a.toml": "1"})


async def decided(is_so: Callable[[], bool]) -> None:
    """Wait until the task of a node has decided about what another one let pass."""
    with trio.fail_after(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  another task decides
            await trio.sleep(0.01)


async def test_an_unsigned_bundle_is_refused_before_its_files_are_parsed(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=SIGNED) as at:
        for files in (FILES, BROKEN):
            with pytest.raises(PeerError) as caught:
                await perform(at, "policy add", {"files": files})
            assert caught.value.code is Code.POLICY_UNSIGNED
        broken = sign_bundle(DOMAIN, digest_of_files(BROKEN), [KEY]).decode()
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy add", {"files": BROKEN, "signature": broken})
        assert caught.value.code is Code.POLICY_INVALID  # signed, so it was read
        signature = sign_bundle(DOMAIN, DIGEST, [KEY]).decode()
        await perform(at, "policy add", {"files": FILES, "signature": signature})
        await perform(at, "policy activate", {"bundle": DIGEST[:8]})
        assert at.node.policies.in_force.active.bundle == DIGEST


async def test_a_bundle_that_was_kept_without_a_signature_is_not_put_in_force_once_keys_are_set(tmp_path: Path) -> None:
    async with admin_rig(tmp_path) as at:
        await perform(at, "policy add", {"files": FILES})
        await perform(at, "policy activate", {"bundle": DIGEST[:8]})
        store, active = at.node.policy_store, at.node.policies.in_force.active
    with pytest.raises(HostError) as caught:
        policies_of(SIGNED, DOMAIN, store, active)
    assert caught.value.code is Code.POLICY_UNSIGNED
    async with admin_rig(tmp_path, policy=SIGNED) as at:
        with pytest.raises(PeerError) as refused:
            await perform(at, "policy activate", {"bundle": DIGEST[:8]})
        assert refused.value.code is Code.POLICY_UNSIGNED


async def test_a_signature_that_was_changed_on_the_disk_is_noticed(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=SIGNED) as at:
        await perform(at, "policy add", {"files": FILES, "signature": sign_bundle(DOMAIN, DIGEST, [KEY]).decode()})
        (path,) = (tmp_path / "policies").glob(f"{DIGEST}.json")
        kept = json.loads(path.read_bytes())
        path.write_text(json.dumps({**kept, "signature": sign_bundle(DOMAIN, DIGEST, [STRANGER]).decode()}))
        with pytest.raises(PeerError, match="no key"):
            await perform(at, "policy activate", {"bundle": DIGEST[:8]})
        path.write_text(json.dumps({**kept, "files": {"open.toml": "id = 1"}}))
        with pytest.raises((PeerError, SettingsError)):
            await perform(at, "policy activate", {"bundle": DIGEST[:8]})
        assert at.node.policies.in_force.active.bundle == ""


async def test_one_credential_does_not_add_and_activate_whatever_way_it_comes(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        manager = await at.rig.runtime(bearer="manager")
        await manager.open("boss")
        created = await manager.ask("create", PEP_ADDRESS, {"resource": "/bundles", "value": {"files": FILES}})
        assert created["body"]["code"] == 200, created
        for _ in range(2):  # adding it again changes nothing
            refused = await manager.ask("update", PEP_ADDRESS, {"resource": "/active", "value": {"bundle": DIGEST}})
            assert (refused["body"]["code"], refused["body"]["reason"]) == (403, "second-person")
            await manager.ask("create", PEP_ADDRESS, {"resource": "/bundles", "value": {"files": FILES}})
        ops = await at.operator()
        reply = await ask_admin(ops, "policy activate", arguments={"bundle": DIGEST})
        assert reply["code"] == 200, reply
        back = await manager.ask("execute", PEP_ADDRESS, {"method": "roll-back"})
        assert back["body"]["value"]["proposal"]
        assert at.node.policies.in_force.active.bundle == DIGEST


async def test_one_credential_is_the_same_one_under_another_name_and_on_another_way(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        await perform(at, "policy add", {"files": FILES}, "token 1")
        request = AdminRequest(operation="policy activate", arguments={"bundle": DIGEST}, dry_run=False)
        for actor in (Actor("somebody else", "message", "token 1"), Actor("console at ::1", "https", "token 1")):
            with pytest.raises(PeerError) as caught:
                await at.administration.perform(request, actor)
            assert caught.value.code is Code.SECOND_PERSON


async def test_a_bundle_of_before_the_rule_of_two_has_to_be_added_again(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        await perform(at, "policy add", {"files": FILES}, "user 0")
        (path,) = (tmp_path / "policies").glob(f"{DIGEST}.json")
        kept = json.loads(path.read_bytes())
        del kept["facts"]["credential"]
        path.write_text(json.dumps(kept))
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy activate", {"bundle": DIGEST}, "user 1")
        assert caught.value.code is Code.SECOND_PERSON
        await perform(at, "policy add", {"files": FILES}, "user 0")
        await perform(at, "policy activate", {"bundle": DIGEST}, "user 1")


GATE = {"from": "b.example", "to": DOMAIN, "for": "2h"}
CHANGES: list[tuple[str, Json]] = [
    ("policy roll-back", {}),
    ("policy activate", {"bundle": "settings"}),
    ("group create", {"group": "more"}),
    ("group add", {"group": "staff", "member": "ana"}),
    ("group take", {"group": "staff", "member": "bo"}),
    ("group remove", {"group": "staff"}),
    ("gate set", GATE),
    ("gate unset", {"from": "c.example", "to": DOMAIN}),
]


async def both(at: AdminRig, operation: str, arguments: Json) -> Json:
    """Have one person propose a change and another one confirm it."""
    proposed = await perform(at, operation, arguments, "user 1")
    return await perform(at, "policy confirm", {"proposal": proposed["proposal"]}, "user 2")


async def with_policies(at: AdminRig) -> None:
    await perform(at, "policy add", {"files": FILES}, "user 1")
    await perform(at, "policy activate", {"bundle": DIGEST}, "user 2")
    await both(at, "group create", {"group": "staff"})
    await both(at, "group add", {"group": "staff", "member": "bo"})
    await both(at, "gate set", {**GATE, "from": "c.example"})


def state_of(at: AdminRig) -> object:
    """What decides about messages."""
    gates = [one.subject for one in at.rig.state.restrictions]
    return at.node.policies.in_force.active.bundle, at.node.policy_store.groups(), gates


@pytest.mark.parametrize(("operation", "arguments"), CHANGES, ids=[name for name, _ in CHANGES])
async def test_no_change_of_policies_is_made_by_one_person(tmp_path: Path, operation: str, arguments: Json) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        await with_policies(at)
        before = state_of(at)
        proposed = await perform(at, operation, arguments, "user 1")
        confirmation = {"proposal": proposed["proposal"]}
        again = await perform(at, operation, arguments, "user 1")  # this is no second person
        assert again["proposal"] == proposed["proposal"]
        for credential in ("user 1", ""):
            with pytest.raises(PeerError) as caught:
                await perform(at, "policy confirm", confirmation, credential)
            assert caught.value.code is Code.SECOND_PERSON
        assert state_of(at) == before
        await perform(at, "policy confirm", confirmation, "user 2")
        assert state_of(at) != before
        (done,) = [one for one in at.events if one.operation == operation and one.code is None][-1:]
        said = json.loads(done.arguments)
        assert (said["proposal"], said["proposed_by"]) == (proposed["proposal"], "ops by socket")
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy confirm", confirmation, "user 3")
        assert caught.value.code is Code.NOT_REGISTERED


async def test_a_proposal_is_checked_listed_and_withdrawn_and_each_step_is_recorded(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        with pytest.raises(PeerError):
            await perform(at, "group remove", {"group": "nobody"})
        manager = await at.rig.runtime(bearer="manager")
        await manager.open("boss")
        params = {"groupName": "staff"}
        reply = await manager.ask("execute", PEP_ADDRESS, {"method": "createGroup", "params": params})
        name = reply["body"]["value"]["proposal"]
        listed = await manager.ask("read", PEP_ADDRESS, {"resource": "/proposals"})
        (row,) = listed["body"]["value"]["rows"]
        assert (row["proposal"], row["operation"], row["arguments"]) == (name, "group create", '{"group":"staff"}')
        own = await manager.ask("execute", PEP_ADDRESS, {"method": "confirm", "params": {"proposal": name}})
        assert (own["body"]["code"], own["body"]["reason"]) == (403, "second-person")
        gone = await manager.ask("execute", PEP_ADDRESS, {"method": "withdraw", "params": {"proposal": name}})
        assert gone["body"]["code"] == 200, gone
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy confirm", {"proposal": name})
        assert caught.value.code is Code.NOT_REGISTERED
        assert [(one.operation, one.code) for one in at.events] == [
            ("group remove", "not-registered"),
            ("policy propose", None),
            ("policy confirm", "second-person"),
            ("policy withdraw", None),
            ("policy confirm", "not-registered"),
        ]
        assert at.node.policy_store.groups() == {}


async def test_a_roll_back_is_not_confirmed_once_it_would_lead_elsewhere(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        await with_policies(at)
        proposed = await perform(at, "policy roll-back", {}, "user 1")
        other = {"open.toml": FILES["open.toml"].replace("permit", "deny")}
        await perform(at, "policy add", {"files": other}, "user 1")
        await perform(at, "policy activate", {"bundle": digest_of_files(other)}, "user 2")
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy confirm", {"proposal": proposed["proposal"]}, "user 2")
        assert caught.value.code is Code.RECORD_OUTDATED
        assert at.node.policies.in_force.active.bundle == digest_of_files(other)


async def test_a_dry_run_proposes_and_confirms_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        request = AdminRequest(operation="group create", arguments={"group": "staff"}, dry_run=True)
        tried = await at.administration.perform(request, Actor("ops", "socket", "user 1"))
        assert isinstance(tried, dict)
        assert "proposal" not in tried
        proposed = await perform(at, "group create", {"group": "staff"}, "user 1")
        for operation in ("policy confirm", "policy withdraw"):
            request = AdminRequest(operation=operation, arguments={"proposal": proposed["proposal"]}, dry_run=True)
            shown = await at.administration.perform(request, Actor("ops", "socket", "user 2"))
            assert isinstance(shown, dict)
            assert shown["dry_run"] is True
        assert at.node.policy_store.groups() == {}
        await perform(at, "policy confirm", {"proposal": proposed["proposal"]}, "user 2")
        assert at.node.policy_store.groups() == {"staff": ()}


def proposed_by(credential: str, number: int = 0, *, at: float = 10.0) -> Proposal:
    result = {"before": None, "after": None}
    return proposal_of("group create", {"group": f"g{number}"}, result, Author("ops", credential), at)


def test_proposals_expire_and_have_a_bound() -> None:
    journal = Journal()
    waiting = Proposals(journal)
    for number in range(PROPOSALS):
        waiting.add(proposed_by("user 1", number), 10.0)
    waiting.add(proposed_by("user 1", 0, at=11.0), 11.0)  # the same again
    more = proposed_by("user 1", PROPOSALS, at=20.0)
    with pytest.raises(PeerError) as caught:
        waiting.add(more, 20.0)
    assert caught.value.code is Code.QUOTA
    waiting.add(more, 11.0 + PROPOSAL_SECONDS)
    assert waiting.waiting(11.0 + PROPOSAL_SECONDS) == [more]
    assert kept(journal, {}) == {f"{more.id} "}


def kept(journal: Journal, rows: dict[str, bytes]) -> set[str]:
    """The keys of what is stored once all changes are."""
    for change in journal.take():
        if change.row is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = msgspec.json.encode(change.row)
    return set(rows)


def test_a_proposal_says_by_whom_and_not_what_proved_them() -> None:
    journal = Journal()
    waiting = Proposals(journal, "runtime://a.example/mn-1")
    waiting.add(proposed_by("token 4711"), 10.0)
    rows: dict[str, bytes] = {}
    kept(journal, rows)
    (row,) = rows.values()
    assert b"4711" not in row
    again = Proposals(Journal(), "runtime://a.example/mn-1")
    again.restore(rows)
    (found,) = again.waiting(11.0)
    assert again.is_ours(found)
    for digest in ("", found.credential):
        with pytest.raises(PeerError):
            found.check_person(digest, "")
    found.check_person(Author("", "token 4712").digest, "")


@pytest.mark.parametrize(
    ("confirms", "is_taken"),
    [
        (Author("bo by socket", "user 2", "m1"), True),
        (Author("ana by socket", "user 1", "m1"), False),
        (Author("ana by socket", "user 1", "m2"), False),  # the same number, on another machine
        (Author("ana by socket", "user 2", "m2"), False),  # she may have another number there
        (Author("bo by message", "jwt https://login.a.example bo"), True),
        (Author("holder by https", "holder"), True),
        (Author("nobody", ""), False),
        (Author("nobody", "", "m2"), False),
    ],
)
def test_a_user_of_one_machine_confirms_nothing_of_a_user_of_another(confirms: Author, is_taken: bool) -> None:
    author = Author("ana by socket", "user 1", "m1")
    proposal = proposal_of("group create", {"group": "g"}, {}, author, 10.0)
    if is_taken:
        proposal.check_person(confirms.digest, confirms.machine)
        return
    with pytest.raises(PeerError) as caught:
        proposal.check_person(confirms.digest, confirms.machine)
    assert caught.value.code is Code.SECOND_PERSON


def test_users_of_two_machines_propose_the_same_change_by_two_names_and_processes_of_one_by_one() -> None:
    authors = [Author("ana by socket", "user 1", machine) for machine in ("m1", "m1", "m2", "")]
    names = [proposal_of("group create", {"group": "g"}, {}, one, 10.0).id for one in authors]
    assert (names[0] == names[1], len(set(names))) == (True, 3)


async def test_a_change_that_was_confirmed_on_another_machine_is_checked_again_where_it_is_made(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as here, trio.open_nursery() as nursery:
        request = AdminRequest(operation="group create", arguments={"group": "staff"})
        said = await here.administration.perform(request, Actor("ana", "socket", "user 1", "m1"))
        assert isinstance(said, dict)
        (waits,) = here.node.proposals.waiting(time.time())
        assert waits.machine == "m1"
        bo = Author("bo by socket", "user 2", "m2")
        forged = msgspec.structs.replace(waits, confirmed_by=bo.by, confirmed_with=bo.digest, confirmed_on=bo.machine)
        here.node.proposals.follow(f"{waits.id} {waits.node}", msgspec.json.encode(forged))
        await nursery.start(here.administration.run)
        await decided(lambda: len(here.node.proposals) == 0)
        nursery.cancel_scope.cancel()
    assert here.node.policy_store.groups() == {}


def test_a_machine_is_named_by_its_id_and_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_socket, "MACHINE_ID", tmp_path / "machine-id")
    names = [admin_socket.this_machine()]  # a container without an id
    for text in (b"one\n", b"two\n", b"\xff"):
        (tmp_path / "machine-id").write_bytes(text)
        names.append(admin_socket.this_machine())
    assert names[0] == names[3]
    assert len(set(names)) == 3
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert admin_socket.this_machine() not in names
    assert len(names[0]) == 16


def test_what_was_made_while_another_node_confirmed_it_is_not_made_again() -> None:
    journal = Journal()
    here, there = Proposals(journal, "runtime://a.example/mn-1"), Proposals(Journal(), "runtime://a.example/mn-2")
    here.add(proposed_by("user 1"), 10.0)
    rows: dict[str, bytes] = {}
    kept(journal, rows)
    there.follow_all(rows)
    (proposal,) = here.find(proposed_by("user 1").id, 11.0)
    here.remove(proposal)
    assert kept(journal, rows) == set()
    late = msgspec.structs.replace(proposal, confirmed_by="ops", confirmed_with=Author("", "user 2").digest)
    here.follow(f"{proposal.id} {proposal.node}", msgspec.json.encode(late))
    assert here.confirmed() == []
    rows[f"{proposal.id} {proposal.node}"] = msgspec.json.encode(late)
    here.expire(12.0)
    assert kept(journal, rows) == set()


async def test_proposals_survive_the_process_and_another_person_confirms_them(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        proposed = await perform(at, "group create", {"group": "staff"}, "user 1")
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        listed = await at.administration.perform(
            AdminRequest(operation="policy proposals"), Actor("ops", "socket", "user 1")
        )
        assert isinstance(listed, Page)
        assert [row["proposal"] for row in listed.rows] == [proposed["proposal"]]
        confirmation = {"proposal": proposed["proposal"]}
        with pytest.raises(PeerError) as caught:
            await perform(at, "policy confirm", confirmation, "user 1")
        assert caught.value.code is Code.SECOND_PERSON
        await perform(at, "policy confirm", confirmation, "user 2")
        assert at.node.policy_store.groups() == {"staff": ()}
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at:
        assert len(at.node.proposals) == 0


async def test_what_was_proposed_at_another_node_is_made_there(tmp_path: Path) -> None:
    for name in ("here", "there"):
        await trio.Path(tmp_path / name).mkdir()
    async with (
        admin_rig(tmp_path / "here", policy=TWO_PERSONS) as here,
        admin_rig(tmp_path / "there", policy=TWO_PERSONS) as there,
        trio.open_nursery() as nursery,
    ):
        elsewhere = Proposals(Journal(), "runtime://a.example/mn-2")
        elsewhere.add(proposed_by("user 1", at=time.time()), time.time())
        (row,) = elsewhere.waiting(time.time())
        key = f"{row.id} {row.node}"
        here.node.proposals.follow(key, msgspec.json.encode(row))
        with pytest.raises(PeerError):
            await perform(here, "policy confirm", {"proposal": row.id}, "user 1")
        said = await perform(here, "policy confirm", {"proposal": row.id}, "user 2")
        assert said["after"]["made_at"] == [row.node]
        assert here.node.policy_store.groups() == {}
        (confirmed,) = here.node.proposals.find(row.id, time.time())
        # The other node hears of it.
        name = min(there.rig.state.own.nodes)
        ours = msgspec.structs.replace(confirmed, node=name)
        there.node.proposals.follow(f"{row.id} {name}", msgspec.json.encode(ours))
        await nursery.start(there.administration.run)
        await decided(lambda: there.node.policy_store.groups() != {})
        nursery.cancel_scope.cancel()
    (made,) = [one for one in there.events if one.operation == "group create"]
    assert json.loads(made.arguments)["proposed_by"] == "ops"


async def test_a_confirmation_by_the_same_person_that_another_node_let_pass_makes_nothing(tmp_path: Path) -> None:
    async with admin_rig(tmp_path, policy=TWO_PERSONS) as at, trio.open_nursery() as nursery:
        await perform(at, "group create", {"group": "staff"}, "user 1")
        (row,) = at.node.proposals.waiting(time.time())
        forged = msgspec.structs.replace(row, confirmed_by="ops", confirmed_with=row.credential)
        at.node.proposals.follow(f"{row.id} {row.node}", msgspec.json.encode(forged))
        await nursery.start(at.administration.run)
        await decided(lambda: len(at.node.proposals) == 0)
        nursery.cancel_scope.cancel()
        assert at.node.policy_store.groups() == {}


@pytest.mark.parametrize(("length", "words"), [(0, "no signature"), (1, "at most")])
def test_a_signature_is_read_up_to_its_bound_and_no_further(length: int, words: str) -> None:
    raw = b"x" * (POLICY_SIGNATURE_BYTES + length)
    with pytest.raises(PeerError, match=words, check=lambda error: error.code is Code.POLICY_UNSIGNED):
        check_signature(raw, keys=SIGNED.keys, domain=DOMAIN, digest=DIGEST)
