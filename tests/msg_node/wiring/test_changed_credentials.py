"""Credentials that change under open sessions: what counts from then on, and which sessions end."""

from __future__ import annotations

from pathlib import Path

import pytest

from msg_node.kernel.bearer_tokens import IssuerRules
from msg_node.kernel.credentials import Credential, Credentials, digest_of
from msg_node.wiring.changed_credentials import sessions_without_proof, take_credentials_over
from policy.core.session_class import SessionClass
from tests.support.runtime_rig import RuntimeRig, code_and_reason, runtime_address, runtime_rig

OPERATOR = frozenset({"operator"})
REMOVED = 4403


def credential(name: str, token: str, roles: frozenset[str] = frozenset()) -> Credential:
    return Credential(digest_of(token), runtime_address(name), roles)


def has_session(rig: RuntimeRig, name: str) -> bool:
    return rig.state.sessions.by_runtime(runtime_address(name)) is not None


async def opened(rig: RuntimeRig, name: str, token: str) -> tuple[int, str]:
    runtime = await rig.runtime(bearer=token)
    return code_and_reason(await runtime.open(name))


async def test_sessions_of_a_token_that_is_gone_end_with_what_they_hold_and_the_others_go_on(tmp_path: Path) -> None:
    before = [credential("ana", "leaked"), credential("bob", "good"), credential("cy", "leaked too")]
    async with runtime_rig(tmp_path, credentials=Credentials(before, allows_anonymous=False)) as rig:
        ana, bob, cy = [await rig.runtime(bearer=one) for one in ("leaked", "good", "leaked too")]
        for runtime, name in ((ana, "ana"), (bob, "bob"), (cy, "cy")):
            assert code_and_reason(await runtime.open(name)) == (200, "")
        held = await ana.allocated()
        await cy.wire.cut()  # parked, with a token to come back
        after = Credentials([credential("bob", "good"), credential("ana", "new")], allows_anonymous=False)
        assert len(sessions_without_proof(rig.state, after)) == 2
        assert has_session(rig, "ana")  # asking has changed nothing
        take_credentials_over(rig.state, rig.bus, after)
        assert await ana.close_code() == REMOVED
        assert (has_session(rig, "ana"), has_session(rig, "bob"), has_session(rig, "cy")) == (False, True, False)
        assert rig.state.owners.owner(held) is None
        assert (await bob.ask("ping", "mn:/session"))["type"] == "pong"
        assert await opened(rig, "ana", "leaked") == (401, "bad-token")
        assert await opened(rig, "ana", "new") == (200, "")


async def test_roles_change_for_sessions_that_are_open(tmp_path: Path) -> None:
    before = [credential("ops", "secret", OPERATOR), credential("bob", "good")]
    async with runtime_rig(tmp_path, credentials=Credentials(before)) as rig:
        for name, token in (("ops", "secret"), ("bob", "good")):
            assert await opened(rig, name, token) == (200, "")
        take_credentials_over(
            rig.state, rig.bus, Credentials([credential("ops", "secret"), credential("bob", "good", OPERATOR)])
        )
        assert rig.port_of("ops").roles == SessionClass.PROVED.alone
        assert rig.port_of("bob").roles == OPERATOR | SessionClass.OPERATOR.alone
        roles = {one.runtime: one.proof.roles for one in rig.state.sessions}
        assert roles == {runtime_address("ops"): frozenset(), runtime_address("bob"): OPERATOR}


async def test_without_guests_their_sessions_end_and_ours_go_on(tmp_path: Path) -> None:
    bo = "runtime://beta.example/rt-bo"
    held = Credentials([credential("ana", "good"), Credential(digest_of("g"), bo)])
    async with runtime_rig(tmp_path, credentials=held, allows_guests=True) as rig:
        assert await opened(rig, "ana", "good") == (200, "")
        guest = await rig.runtime(bearer="g")
        assert code_and_reason(await guest.ask("open", "mn:/session", from_=bo)) == (200, "")
        assert len(sessions_without_proof(rig.state, held)) == 0
        assert len(sessions_without_proof(rig.state, held, takes_guests=False)) == 1
        take_credentials_over(rig.state, rig.bus, held, takes_guests=False)
        assert await guest.close_code() == REMOVED
        assert has_session(rig, "ana")
        assert rig.state.sessions.by_runtime(bo) is None


async def test_without_anonymous_sessions_those_that_are_open_end(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, credentials=Credentials([credential("bob", "good")])) as rig:
        ana = await rig.opened("ana")
        assert await opened(rig, "bob", "good") == (200, "")
        take_credentials_over(rig.state, rig.bus, Credentials([credential("bob", "good")], allows_anonymous=False))
        assert await ana.close_code() == REMOVED
        assert has_session(rig, "bob")
        assert await opened(rig, "eve", "") == (401, "no-credentials")


@pytest.mark.parametrize(("was_of_settings", "is_kept"), [(False, True), (True, False)])
def test_keys_that_were_fetched_stay_and_those_of_the_settings_are_read_anew(
    was_of_settings: bool, is_kept: bool
) -> None:
    def accepted() -> Credentials:
        return Credentials(issuers=[IssuerRules(issuer="idp", audience="us", runtimes=("*",))])

    credentials = accepted()
    credentials.set_issuer_keys("idp", ["key"], are_of_settings=was_of_settings)  # type: ignore[list-item]
    credentials.replace(accepted())
    assert list(credentials._keys) == (["idp"] if is_kept else [])
    credentials.replace(Credentials())
    assert credentials._keys == {}
