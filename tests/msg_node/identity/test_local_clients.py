"""Clients that operators manage: how they are named, what opens their sessions, and what a device gets for its code."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from msg_node.identity.core.local_clients import ENROLLING, ROLES, Enrolled, LocalClient, new_client, read_roles
from msg_node.kernel.credentials import Credential
from protofly.errors import Code, PeerError

NOW = 1000.0
RUNTIME = "runtime://a.example/lamp"
LAMP = LocalClient(name="lamp", kind="device", runtime=RUNTIME, roles=("light",))
WITH_TOKEN = replace(LAMP, digest="of the token")
WITH_CODE = replace(LAMP, code="of the code", code_ends_at=NOW)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("", ()),
        (" , ,", ()),
        ("guard", ("guard",)),
        (" guard ,light, guard", ("guard", "light")),
        ("A.b_c:d-9", ("A.b_c:d-9",)),
        ("r" * 64, ("r" * 64,)),
        (",".join(f"r{number}" for number in range(ROLES)), tuple(f"r{number}" for number in range(ROLES))),
        (",".join(["guard"] * (ROLES + 1)), ("guard",)),
    ],
)
def test_roles_are_words_with_commas_between_them_each_once(text: str, roles: tuple[str, ...]) -> None:
    assert read_roles(text) == roles


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("guard light", "'guard light'"),
        ("guard,.light", "'.light'"),
        ("r" * 65, repr("r" * 64)),
        (f"guard,{ENROLLING}", repr(ENROLLING)),
        (",".join(f"r{number}" for number in range(ROLES + 1)), f"at most {ROLES}"),
    ],
)
def test_roles_that_nobody_may_have_are_refused_and_named(text: str, named: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY) as caught:
        read_roles(text)
    assert named in caught.value.detail


@pytest.mark.parametrize("name", ["a", "7", "lamp-1", "a.b_c-d", "n" * 64])
@pytest.mark.parametrize("runtime", [RUNTIME, "runtime://alias.example/lamp-*", "runtime://a.example/*"])
def test_a_client_is_made_for_addresses_of_our_domains_and_has_no_token_yet(name: str, runtime: str) -> None:
    client = new_client(name, "device", runtime, ("light",), ("a.example", "alias.example"))
    assert client == LocalClient(name=name, kind="device", runtime=runtime, roles=("light",))
    assert list(client.credentials()) == []


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        *((name, RUNTIME) for name in ("", "Lamp", "-lamp", "lamp.", "la mp", "lämp", "n" * 65)),
        *(("lamp", runtime) for runtime in ("*", "", "lamp", "user://a.example/lamp", "runtime://a.example/")),
        *(("lamp", runtime) for runtime in ("runtime://b.example/lamp", "runtime://a.example.evil/lamp")),
    ],
)
def test_a_client_with_another_name_or_of_another_domain_is_refused(name: str, runtime: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        new_client(name, "device", runtime, (), ("a.example",))


@pytest.mark.parametrize(
    ("client", "credentials"),
    [
        (LAMP, []),
        (WITH_TOKEN, [Credential("of the token", RUNTIME, frozenset({"device", "light"}))]),
        (replace(WITH_TOKEN, ends_at=7.0), [Credential("of the token", RUNTIME, frozenset({"device", "light"}), 7.0)]),
        (WITH_CODE, [Credential("of the code", RUNTIME, frozenset({ENROLLING}), NOW)]),
        (replace(WITH_TOKEN, is_disabled=True), []),
        (replace(WITH_CODE, is_disabled=True), []),
    ],
)
def test_a_token_has_the_roles_of_its_client_and_a_code_only_that_of_enrolling(
    client: LocalClient, credentials: list[Credential]
) -> None:
    assert list(client.credentials()) == credentials


@pytest.mark.parametrize(("token_seconds", "ends_at"), [(None, None), (60.0, NOW + 60.0)])
def test_a_device_gets_its_token_and_the_code_counts_no_longer(
    token_seconds: float | None, ends_at: float | None
) -> None:
    enrolled = replace(WITH_CODE, token_seconds=token_seconds).enrolled("of the token", NOW)
    assert (enrolled.ends_at, enrolled.changed_at, enrolled.code_ends_at) == (ends_at, NOW, 0.0)
    assert [one.digest for one in enrolled.credentials()] == ["of the token"]
    assert enrolled.state(NOW) == "enabled"


@pytest.mark.parametrize(
    ("client", "state"),
    [
        (LAMP, "expired"),
        (WITH_TOKEN, "enabled"),
        (replace(WITH_TOKEN, ends_at=NOW + 1), "enabled"),
        (replace(WITH_TOKEN, ends_at=NOW), "expired"),
        (WITH_CODE, "expired"),
        (replace(WITH_CODE, code_ends_at=NOW + 1), "to be enrolled"),
        (replace(WITH_TOKEN, ends_at=NOW, code="of the code", code_ends_at=NOW + 1), "to be enrolled"),
        (replace(WITH_TOKEN, code="of the code", code_ends_at=NOW + 1), "enabled"),
        (replace(WITH_TOKEN, is_disabled=True), "disabled"),
        (replace(WITH_CODE, is_disabled=True, code_ends_at=NOW + 1), "disabled"),
    ],
)
def test_operators_see_whether_a_client_can_open_sessions(client: LocalClient, state: str) -> None:
    assert client.state(NOW) == state


def test_a_token_is_not_shown_where_the_answer_comes_into_a_log() -> None:
    assert repr(Enrolled("secret", LAMP)) == "Enrolled('lamp')"
