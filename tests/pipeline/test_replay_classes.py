"""Classes of records that a replay decides once: records differ in whatever a policy reads, and in nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pipeline.columns import replay_classes
from pipeline.columns.groups import group_numbers
from pipeline.columns.replay_classes import ReplayClasses
from policy.core.engine import compile_canonical
from policy.core.text import PolicyText, load_policies

ANA, BOB, EVE = "hyperty://a.example/ana", "hyperty://b.example/bob", "hyperty://c.example/eve"
RECORDS = pa.table({"src_key": [ANA, ANA, EVE, ANA], "dst_key": [BOB, BOB, BOB, EVE], "ts_us": [1, 2, 1, 1]})
SIZES = np.array([10, 10, 10, 2_000], np.int64)


def classes_of(condition: str) -> list[int]:
    """The class of each of the four records, where one rule has this condition; the first record's is 0."""
    text = f'id = "border"\n[[rules]]\nid = "one"\neffect = "deny"\ncondition = {{ {condition} }}\n'
    policies = compile_canonical(load_policies([PolicyText("border.toml", text, "toml")]).canonical)
    classes = ReplayClasses([policies], lambda address: "://" not in address)
    numbers, _ = group_numbers(classes.keys(RECORDS, SIZES))
    order: dict[int, int] = {}
    return [order.setdefault(int(number), len(order)) for number in np.broadcast_to(numbers, len(RECORDS))]


def test_classes_of_many_addresses_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_classes, "_KNOWN_ADDRESSES", 10)
    text = 'id = "border"\n[[rules]]\nid = "one"\neffect = "deny"\ncondition = { msgFrom = { like = "*/eve" } }\n'
    policies = compile_canonical(load_policies([PolicyText("border.toml", text, "toml")]).canonical)
    classes = ReplayClasses([policies], lambda address: "://" not in address)
    most = []
    for start in range(0, 60, 4):
        hashes = [f"hyperty:{number:024x}" for number in range(start, start + 4)]  # each is a class of its own
        records = pa.table({"src_key": hashes, "dst_key": [BOB] * 4, "ts_us": [1] * 4})
        numbers, possible = classes.keys(records, SIZES)[0]
        assert len(set(numbers.tolist())) == 4
        most.append(possible)
    assert most[:6] == [5, 9, 13, 5, 9, 13]  # with one for no address


@pytest.mark.parametrize(
    ("condition", "classes"),
    [
        ('actionType = { equals = "read" }', [0, 0, 0, 0]),
        ('msgFrom = { like = "*/eve" }', [0, 0, 1, 0]),
        ('msgTo = { like = "*/eve" }', [0, 0, 0, 1]),
        ("size = { moreThan = 1000 }", [0, 0, 0, 1]),
        ('time = { between = "22:00 06:00" }', [0, 1, 0, 0]),
        ('weekday = { equals = "monday" }', [0, 1, 0, 0]),
        ('date = { lessThan = "2026-03-01" }', [0, 1, 0, 0]),
    ],
)
def test_records_are_of_one_class_unless_they_differ_in_what_a_rule_reads(condition: str, classes: list[int]) -> None:
    assert classes_of(condition) == classes
