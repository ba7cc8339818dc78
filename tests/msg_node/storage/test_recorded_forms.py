"""Nodes of the last release and of this version read each other's rows and words: what a rolling upgrade rests on."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from msg_node.kernel.changes import Table
from tests.msg_node.storage.recorded_forms import RECORDED, ROWS, breaks, forms


def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def test_what_the_last_release_wrote_is_read_and_what_is_written_it_reads() -> None:
    assert list(breaks(recorded(), forms())) == []


def test_every_table_has_its_row_here() -> None:
    assert ROWS.keys() == set(Table)


LEASE = "leases.Lease"


@pytest.mark.parametrize(
    ("member", "change", "broken"),
    [
        ("members", {"added": "int"}, []),
        ("members", {"sid": "str"}, [f"{LEASE}.sid is gone, or of another kind: the other version cannot read it"]),
        ("required", ["added"], [f"{LEASE}.added has no default: rows of before have none"]),
    ],
)
def test_a_member_with_a_default_is_all_that_a_row_may_gain(member: str, change: Any, broken: list[str]) -> None:
    old, new = forms(), copy.deepcopy(forms())
    of_row = new["forms"][LEASE][member]
    if isinstance(change, list):
        of_row += change
    else:
        of_row |= change
    assert list(breaks(old, new)) == broken


def test_what_is_gone_or_refused_is_found() -> None:
    old, new = forms(), copy.deepcopy(forms())
    del new["forms"][LEASE]
    new["tables"]["inbox"] = LEASE
    new["schema_version"] += 1
    new["bus_version"] += 1
    form = new["forms"]["parked.ParkedRow"]
    form["required"].remove("number")
    old["forms"]["runs._HeadText"]["is_closed"] = True
    new["forms"]["runs._HeadText"]["members"]["added"] = "int"
    assert sorted(breaks(old, new)) == sorted(
        [
            "the tables of the engine are others",
            "nodes speak another version to each other",
            "table inbox has other rows",
            "parked.ParkedRow.number may be left out: the version before needs it",
            f"{LEASE} is gone",
            "runs._HeadText has more members, which the version before refuses",
        ]
    )
