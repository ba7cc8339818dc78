"""Counters are a closed table, and the page about them says what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.core import link_counts
from msg_node.kernel import counts
from msg_node.kernel.service import SessionEventName
from msg_node.requests.core.delivery_status import Status
from protofly.counters import CODES, Counted

PAGE = Path(__file__).parents[2] / "docs" / "counters.md"
TABLES = [
    one
    for module in (counts, link_counts)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Counted) and one is not Counted
]


def section(table: type[Counted]) -> str:
    """The section of the page about one table."""
    title, _, place = (table.__doc__ or "").partition(":")
    rows = [f"| `{one.value}` | {one.meaning}{labels_of(one)} |" for one in table]
    place = place.strip()
    return "\n".join([f"## {title}", "", place[0].upper() + place[1:], "", "| name | counts |", "|---|---|", *rows, ""])


def labels_of(one: Counted) -> str:
    """The labels of a counter, unless they are the codes of refusals."""
    return "" if not one.labels or set(CODES) <= set(one.labels) else f": `{'`, `'.join(one.labels)}`"


def test_the_page_has_every_counter_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page[page.index("## ") :] == "\n".join(section(table) for table in TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.__name__))
def test_every_name_stands_for_one_counter(table: type[Counted]) -> None:
    names = [name for one in table for name in one.names]
    assert len(set(names)) == len(names)
    assert table.__members__.keys() == {one.name for one in table}, "a name that stands twice"


def test_labels_are_the_values_that_are_counted() -> None:
    assert set(counts.NodeCount.ACTIONS.labels) == {one.value for one in Status}
    assert set(counts.NodeCount.SESSIONS.labels) == set(SessionEventName.__args__)  # type: ignore[attr-defined]
