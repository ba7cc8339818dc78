"""One session, by itself."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.node_figures import FiguresBoard
from msg_node.kernel.proof import Proven
from msg_node.kernel.session import Dialect, Session

RUNTIME = "runtime://alpha.example/rt"


def session(*, proof_ends: float | None = None, lease_ends: float | None = None) -> Session:
    proof = Proven("c", frozenset({"b", "a"}), proof_ends, login="l")
    return Session(
        7, RUNTIME, RUNTIME, "digest", proof, Dialect.QUERY, True, 3, 50.0, lease_ends=lease_ends, wants_late=True
    )


@pytest.mark.parametrize(
    ("proof_ends", "lease_ends", "ends"),
    [(None, None, None), (10.0, None, 10.0), (None, 20.0, 20.0), (10.0, 20.0, 10.0), (30.0, 20.0, 20.0)],
)
def test_a_session_ends_with_its_proof_or_its_lease_whichever_is_first(
    proof_ends: float | None, lease_ends: float | None, ends: float | None
) -> None:
    assert session(proof_ends=proof_ends, lease_ends=lease_ends).ends == ends


@pytest.mark.parametrize(("ends", "is_over"), [(None, False), (9.0, True), (10.0, True), (10.5, False)])
def test_a_proof_is_over_at_its_end(ends: float | None, is_over: bool) -> None:
    assert session(proof_ends=ends, lease_ends=1.0).is_proof_over(10.0) is is_over


def test_a_session_is_parked_after_a_restart_with_the_roles_that_its_credential_has_now() -> None:
    before = session(proof_ends=99.0)
    again = before.row().parked_session(frozenset({"z"}), now=60.0)
    assert before.row().roles == ("a", "b")
    assert (before.is_live, again.is_live, again.heard_at) == (True, False, 60.0)
    assert again.proof == Proven("c", frozenset({"z"}), 99.0, login="l")
    assert again.row() == msgspec.structs.replace(before.row(), roles=("z",))


def test_a_node_that_has_said_nothing_yet_counts_nothing() -> None:
    figures = FiguresBoard().newest
    assert {name: getattr(figures, name) for name in figures.__struct_fields__} == dict.fromkeys(
        figures.__struct_fields__, 0
    )


def test_published_stubs_of_the_reference_nodes_speak_all_but_https_and_mqtt() -> None:
    assert {one for one in Dialect if not one.is_of_old_nodes} == {Dialect.HTTPS, Dialect.MQTT}
