"""Marks of logins that the nodes of one domain share, in a real PostgreSQL."""

from __future__ import annotations

import time

import msgspec
import pytest

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import REVOKED, IssuedTokens, TokenMark
from msg_node.identity.core.login_service import LoginService
from msg_node.identity.core.session_tokens import RenewedBeforeError, SessionTokens, TokenLife, own_rules
from msg_node.identity.engine_token_marks import EngineTokenMarks
from msg_node.identity.mark_keeper import MarkKeeper, announced, announcement
from msg_node.kernel.own_names import OwnNames
from msg_node.node_state import make_state
from msg_node.storage.engine import Engine
from protofly.documents import SigningKey
from tests.support.postgres import Postgres

RUNTIME = "runtime://a.example/ana"
NOW = 1_000.0
RENEWED = TokenMark("login", "op ana", 1, NOW + 60)


def marks_of_two_nodes(postgres: Postgres) -> tuple[EngineTokenMarks, EngineTokenMarks]:
    options = postgres.options(postgres.new_database())
    return EngineTokenMarks(Engine(options)), EngineTokenMarks(Engine(options))


def test_of_two_nodes_that_renew_one_token_one_is_refused_and_a_revocation_stands_above_both(
    postgres: Postgres,
) -> None:
    one, other = marks_of_two_nodes(postgres)
    assert one.keep(RENEWED, now=NOW)
    assert not other.keep(RENEWED, now=NOW)
    revoked = msgspec.structs.replace(RENEWED, least=REVOKED)
    assert other.keep(revoked, now=NOW)
    assert not one.keep(msgspec.structs.replace(RENEWED, least=2), now=NOW)
    assert one.load() == other.load() == [revoked]
    one.close()
    other.close()


async def test_a_token_that_two_nodes_renew_ends_its_login_at_both(postgres: Postgres) -> None:
    keys, clock = [SigningKey.from_seed("token", bytes(32))], time.time()
    keepers, tokens = [], []
    for marks in marks_of_two_nodes(postgres):
        life = TokenLife(60, 600)
        tokens.append(SessionTokens(own_rules("a.example", ["a.example"]), keys, life, IssuedTokens(), believes=bool))
        transitions = make_state(OwnNames.of({"a.example"})).transitions
        keepers.append(MarkKeeper(marks, LoginService(transitions, tokens[-1])))
    text, _ = tokens[0].begin(Asserted("ana", "ana", "op", clock + 60, {}), RUNTIME, login="login", now=clock)
    new_ones = [node.renew(text, RUNTIME, now=clock) for node in tokens]  # neither has heard of the other
    await keepers[0].keep(new_ones[0][2])
    with pytest.raises(RenewedBeforeError):
        await keepers[1].keep(new_ones[1][2])
    assert [one.least for one in keepers[0]._marks.load()] == [REVOKED]
    for keeper in keepers:
        keeper.close()


def test_marks_are_kept_when_the_engine_was_away_meanwhile(postgres: Postgres) -> None:
    one, other = marks_of_two_nodes(postgres)
    assert one.keep(RENEWED, now=NOW)
    postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trapezoid test'")
    assert one.keep(msgspec.structs.replace(RENEWED, login="another"), now=NOW)
    other.close()
    one.close()


def test_a_mark_is_read_as_it_was_announced_and_one_that_is_too_long_has_all_of_them_read() -> None:
    assert announced([announcement(RENEWED)]) == [RENEWED]
    for unreadable in (announcement(msgspec.structs.replace(RENEWED, user="x" * 8_000)), '{"least": "?"}'):
        assert announced([announcement(RENEWED), unreadable]) is None
