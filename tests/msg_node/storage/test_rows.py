"""Rows are written later than they are handed in, in another thread: nothing that they hold may change until then."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

import msg_node
from msg_node.kernel.changes import Table

_READ = re.compile(r"decode_row\(\w+, (?P<row>\w+), table=Table\.(?P<table>\w+)")
_CONSTANT = (
    inspect.BoolType,
    inspect.EnumType,
    inspect.FloatType,
    inspect.IntType,
    inspect.NoneType,
    inspect.RawType,
    inspect.StrType,
)


def _row_types() -> dict[Table, type[msgspec.Struct]]:
    """What is read back from each table."""
    found = {}
    package = Path(msg_node.__file__).parent
    for path in package.rglob("*.py"):
        for read in _READ.finditer(path.read_text()):
            module = import_module(".".join(("msg_node", *path.relative_to(package).with_suffix("").parts)))
            found[Table[read["table"]]] = getattr(module, read["row"])
    return found


def _is_constant(kind: inspect.Type) -> bool:
    match kind:
        case inspect.UnionType():
            return all(map(_is_constant, kind.types))
        case inspect.VarTupleType():
            return _is_constant(kind.item_type)
        case inspect.NamedTupleType():
            return all(_is_constant(field.type) for field in kind.fields)
        case _:
            return isinstance(kind, _CONSTANT)


def test_every_table_that_is_used_has_its_row() -> None:
    assert set(Table) == _row_types().keys()


@pytest.mark.parametrize("row", _row_types().values(), ids=lambda row: row.__name__)
def test_rows_are_frozen_and_hold_nothing_that_changes(row: type[msgspec.Struct]) -> None:
    assert row.__struct_config__.frozen
    kind = inspect.type_info(row)
    assert isinstance(kind, inspect.StructType)
    assert [field.name for field in kind.fields if not _is_constant(field.type)] == []


def test_rows_that_could_change_are_distinguished() -> None:
    class Listed(msgspec.Struct, frozen=True):
        names: list[str]

    class Nested(msgspec.Struct, frozen=True):
        pairs: tuple[dict[str, int], ...]

    for row in (Listed, Nested):
        kind = inspect.type_info(row)
        assert isinstance(kind, inspect.StructType)
        assert not any(_is_constant(field.type) for field in kind.fields)
