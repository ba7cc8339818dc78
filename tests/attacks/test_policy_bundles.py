"""Bundles of policies that nobody signed, or signed for something else; one person who does the work of two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msg_node.admin.administration import Actor
from msg_node.admin.core.operations import AdminRequest
from msg_node.admin.policy_deployment import policies_of
from msg_node.settings.policy import PolicySettings
from policy.core.signed_bundle import PAYLOAD_TYPE, check_signature, sign_bundle
from policy.files import digest_of_files
from protofly.errors import Code, HostError, PeerError, SettingsError
from protofly.signatures import SigningKey, sign_envelope
from tests.support.admin_rig import PEP_ADDRESS, AdminRig, admin_rig, ask_admin
from tests.support.runtime_rig import DOMAIN, Json

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
        assert back["body"]["code"] == 200, back  # to what two had put in force before


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
