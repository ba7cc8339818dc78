"""Statements as bytes and as text: the same however they were stored, and harmless to a terminal."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.statement_text import statements_text
from pipeline.partners.statements import canonical_statements, plain_statement

COUNTS = st.integers(0, 2**63 - 1)
WORDS = st.text(max_size=8)


def statement(**members: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "our_domain": "a.example",
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "role": "out",
        "messages": 1234,
        "delivered": 1200,
        "denied": 30,
        "failed": 4,
        "bytes_in": 2_000_000,
        "bytes_wire": None,
        "outcomes": {"delivered": 1200, "denied": 30, "timeout": 4},
        "denials": {"rule-1": 20, "": 10},
        "latency": {80: 1000, 96: 200},
        "p50_us": 33,
        "p95_us": 1_500_000,
        "p99_us": 2_000_000,
        "dt": "2026-03-02",
        "status": "final",
        "version": 1,
        "set_digest": "0123456789abcdef" * 4,
        "complete_until_us": 1_772_496_000_000_000,
    }
    return row | members


def shuffled(row: dict[str, Any], order: random.Random) -> dict[str, Any]:
    """The same row as Arrow hands it over, its members and maps in another order."""
    shown: dict[str, Any] = {
        name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()
    }
    for value in shown.values():
        if isinstance(value, list):
            order.shuffle(value)
    names = list(shown)
    order.shuffle(names)
    return {name: shown[name] for name in names}


@given(
    st.lists(
        st.builds(
            statement,
            dst_domain=WORDS,
            messages=COUNTS,
            denials=st.dictionaries(WORDS, COUNTS),
            latency=st.dictionaries(st.integers(-2, 1007), COUNTS),
            set_digest=st.none() | WORDS,
        )
    ),
    st.randoms(use_true_random=False),
)
def test_equal_statements_are_the_same_bytes_in_whatever_order_and_form_they_come(
    rows: list[dict[str, Any]], order: random.Random
) -> None:
    content = canonical_statements(rows)
    again = [shuffled(row, order) for row in rows]
    order.shuffle(again)
    assert canonical_statements(again) == content
    lines = content.splitlines(keepends=True)
    assert lines == sorted(lines)
    back = sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)
    assert back == sorted(json.dumps(plain_statement(row), sort_keys=True) for row in rows)


def test_files_of_two_periods_sorted_together_are_the_file_of_both() -> None:
    first = [statement(dt="2026-03-01"), statement(dst_domain="c.example")]
    second = [statement(dt="2026-03-09")]
    lines = [*canonical_statements(first).splitlines(), *canonical_statements(second).splitlines()]
    assert sorted(lines) == canonical_statements([*first, *second]).splitlines()


def test_how_far_proofs_reached_is_not_part_of_what_is_compared() -> None:
    assert canonical_statements([statement()]) == canonical_statements(
        [statement(complete_until_us=0, input_version=7)]
    )


def test_a_table_has_the_state_units_and_reasons() -> None:
    text = statements_text([plain_statement(statement()) | {"complete_until_us": 1_772_496_000_000_000}], [])
    assert text.splitlines() == [
        "a.example on 2026-03-02: final, version 1; our records are complete until 2026-03-03 00:00:00 UTC",
        "partner    way  messages  delivered  denied  failed  bytes given  bytes on wire  p50 ms    p95 ms    p99 ms  "
        "digest of delivered",
        "b.example  out     1,234      1,200      30       4    2,000,000              -    0.03  1,500.00  2,000.00  "
        "0123456789abcdef…",
        "  b.example out denied by: no rule 10, rule-1 20; failed: timeout 4",
    ]


def test_a_draft_is_marked_and_so_is_a_sum_with_one_in_it() -> None:
    final = statement()
    draft = statement(dt="2026-03-03", status="draft", set_digest=None, complete_until_us=0)
    total = {name: value for name, value in final.items() if name not in {"dt", "status", "version", "set_digest"}}
    text = statements_text([final, draft], [total])
    assert "a.example on 2026-03-03: DRAFT, may still change; nothing proves it complete\n" in text
    assert "a.example, 2 days from 2026-03-02 to 2026-03-03 added up, 1 of them DRAFT\n" in text
    assert text.count("digest of delivered") == 1


def test_names_out_of_records_do_not_steer_a_terminal() -> None:
    hostile = statement(dst_domain="b\x1b[2Jexample", denials={"\x9b31m": 1})
    text = statements_text([hostile], [])
    assert all(sign.isprintable() for sign in text.replace("\n", ""))
    assert "b·[2Jexample" in text
