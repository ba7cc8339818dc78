"""Numbers of links and of nodes of our own domain: each is given once, and none is taken for one of the others."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Change, Journal, Table
from msg_node.kernel.links import NODES, LinkNumbers, LinkRow, is_node, node_name
from protofly.errors import Code, HostError


def test_links_get_numbers_below_zero_once_and_they_are_journalled() -> None:
    journal = Journal()
    numbers = LinkNumbers(journal)
    assert [numbers.number(domain) for domain in ("a.example", "b.example", "a.example")] == [-1, -2, -1]
    assert journal.take() == [
        Change(Table.LINK_NUMBERS, "a.example", LinkRow("a.example", -1)),
        Change(Table.LINK_NUMBERS, "b.example", LinkRow("b.example", -2)),
    ]
    assert [numbers.known_number(domain) for domain in ("b.example", "c.example")] == [-2, 0]
    assert [numbers.domain(number) for number in (-1, -2, -3)] == ["a.example", "b.example", ""]
    assert list(numbers) == [-1, -2]


def test_numbers_are_the_same_after_a_restart_and_new_ones_follow() -> None:
    numbers = LinkNumbers(Journal())
    rows = [LinkRow("a.example", -1), LinkRow("b.example", -2)]
    numbers.restore({row.domain: msgspec.json.encode(row) for row in rows})
    assert [numbers.known_number(row.domain) for row in rows] == [-1, -2]
    assert (numbers.domain(-2), numbers.number("c.example")) == ("b.example", -3)


def test_a_row_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(HostError, match=r"link_numbers/a\.example") as refused:
        LinkNumbers(Journal()).restore({"a.example": b"{}"})
    assert refused.value.code is Code.STORAGE


def test_nodes_get_numbers_and_names_that_no_domain_has_and_nothing_is_journalled() -> None:
    journal = Journal()
    numbers = LinkNumbers(journal)
    given = [numbers.of_node(name) for name in ("n1", "n2", "n1")]
    assert given == [NODES, NODES - 1, NODES]
    assert journal.take() == []
    assert [node_name(numbers.domain(number)) for number in given] == ["n1", "n2", "n1"]
    assert [is_node(number) for number in given] == [True] * 3
    assert numbers.known_number("@n1") == 0


@pytest.mark.parametrize("number", [7, 1, 0, -1, -2, -(1 << 32), NODES + 1])
def test_numbers_of_sessions_and_of_links_are_those_of_no_node(number: int) -> None:
    assert not is_node(number)
    assert node_name(LinkNumbers(Journal()).domain(number) or "a.example") == ""
