"""Which links are held, for how long, and what goes on when they are not any more."""

from __future__ import annotations

from msg_node.bus.core.held_links import HeldLinks

DOMAIN, OTHER = "beta.example", "gamma.example"


def test_a_domain_is_held_until_the_last_of_what_it_waits_for_has_come() -> None:
    held = HeldLinks()
    held.hold(DOMAIN, 1)
    held.hold(DOMAIN, 2)
    assert held.release(DOMAIN, 2) is None
    assert DOMAIN in held
    assert held.release(DOMAIN, 1) == []
    assert DOMAIN not in held


def test_two_questions_are_waited_for_one_by_one() -> None:
    held = HeldLinks()
    first, second = held.hold_for_answer(DOMAIN), held.hold_for_answer(DOMAIN)
    assert held.release(DOMAIN, first) is None
    assert held.release(DOMAIN, second) == []


def test_what_was_not_waited_for_releases_nothing() -> None:
    held = HeldLinks()
    assert held.release(DOMAIN, 1) is None
    held.hold(DOMAIN, 1)
    assert held.release(OTHER, 1) is None
    assert held.release(DOMAIN, 7) is None
    assert (DOMAIN in held, OTHER in held) == (True, False)


def test_marks_that_wait_come_in_their_order_with_the_release_and_once() -> None:
    held = HeldLinks()
    held.hold(DOMAIN, 1)
    held.hold(OTHER, 2)
    for mark in (b"first", b"second"):
        held.keep_mark(DOMAIN, mark)
    held.keep_mark(OTHER, b"of another domain")
    assert held.release(DOMAIN, 1) == [b"first", b"second"]
    held.hold(DOMAIN, 3)
    assert held.release(DOMAIN, 3) == []
