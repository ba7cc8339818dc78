"""The list of changes that nobody can see: it names changes that there are, once each, with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.mutation.equivalents import Equivalent, equivalents_of, reasons, stale
from tests.mutation.targets import ROOT, Group, chosen, groups, module_name

by_group = pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)


@by_group
def test_every_entry_names_a_change_of_the_code_as_it_is(group: Group) -> None:
    """Who changes such a line looks whether the new one has the same reason, and corrects or deletes the entry."""
    assert stale(group) == []


@by_group
def test_no_change_is_listed_twice(group: Group) -> None:
    names = [name for one in equivalents_of(group) for name in one.names()]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_list_belongs_to_a_group() -> None:
    known = {group.name.replace("/", "-") for group in groups()}
    assert {path.stem for path in (Path(__file__).with_name("equivalents")).glob("*.toml")} <= known


def test_an_entry_without_a_reason_is_refused() -> None:
    entry = {"module": "a.b", "before": "x", "after": ["y"], "reason": "because"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(entry, Equivalent)


def test_an_entry_that_names_nothing_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    [group] = [one for one in groups() if one.name == "stubs_cache/core"]
    gone = Equivalent(module="stubs_cache.core.entry", before="x", after=["y"], reason="there was a line like this")
    monkeypatch.setattr("tests.mutation.equivalents.equivalents_of", lambda _: (gone,))
    assert stale(group) == ["stubs_cache.core.entry : x  ->  y"]
    assert list(reasons((gone,)).values()) == [gone.reason]


def test_modules_are_chosen_by_any_way_to_write_them() -> None:
    for words in (["federation/core/auth.py"], ["federation.core.auth"], ["federation/core/auth"]):
        [(group, paths)] = chosen(words)
        assert (group.name, [module_name(path) for path in paths]) == ("federation/core", ["federation.core.auth"])
    assert [group.name for group, _ in chosen([])] == [group.name for group in groups()]
    with pytest.raises(KeyError, match="nothing"):
        list(chosen(["protofly", "nothing"]))


PURE = ("*/core/*.py", "*/*/core/*.py", "protofly/*.py", "msg_node/kernel/*.py", "pipeline/columns/*.py")


def test_every_core_belongs_to_one_group() -> None:
    """`protofly/limits.py` only lists numbers."""
    cores = {path for pattern in PURE for path in ROOT.glob(pattern)} - {ROOT / "protofly" / "limits.py"}
    wanted = sorted(path for path in cores if path.stem != "__init__" and "tests" not in path.parts)
    assert sorted(path for group in groups() for path in group.paths()) == wanted
