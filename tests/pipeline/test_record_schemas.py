"""The lake is pinned to what nodes write: no member of a record can be dropped silently."""

from __future__ import annotations

import types
from typing import Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, ShortType, StringType, StructType

import protofly.records
from pipeline import schemas
from protofly.records import RECORD_TYPES, GateFacts, RecordKind

SCHEMAS: dict[RecordKind, StructType] = {
    RecordKind.MESSAGE: schemas.MESSAGE_RECORD,
    RecordKind.DECISION: schemas.DECISION_RECORD,
    RecordKind.STUB: schemas.STUB_EVENT,
    RecordKind.LINK: schemas.LINK_EVENT,
    RecordKind.POLICY: schemas.POLICY_EVENT,
    RecordKind.SESSION: schemas.SESSION_EVENT,
}

BRONZE = {
    RecordKind.MESSAGE: schemas.BRONZE_MDR,
    RecordKind.DECISION: schemas.BRONZE_DECISION,
    RecordKind.STUB: schemas.BRONZE_STUB_EVENT,
    RecordKind.LINK: schemas.BRONZE_LINK_EVENT,
    RecordKind.POLICY: schemas.BRONZE_POLICY_EVENT,
    RecordKind.SESSION: schemas.BRONZE_SESSION_EVENT,
}


def column_types(annotation: object) -> tuple[type, ...]:
    """Types of columns that may hold what a member holds."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(annotation) if one is not type(None))
        return column_types(inner)
    if origin is Literal or annotation in (str, GateFacts):
        return (StringType,)
    if origin is tuple:
        return (ArrayType,)
    return {int: (ShortType, IntegerType, LongType), bool: (BooleanType,)}[annotation]  # type: ignore[index]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_member_of_a_record_has_its_column_in_the_same_order_and_of_a_fitting_type(kind: RecordKind) -> None:
    record_type, schema = RECORD_TYPES[kind], SCHEMAS[kind]
    hints = get_type_hints(record_type, vars(protofly.records))
    assert [field.encode_name for field in msgspec.structs.fields(record_type)] == schema.fieldNames()
    for field in schema.fields:
        assert isinstance(field.dataType, column_types(hints[field.name])), field.name


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_raw_table_begins_with_the_record(kind: RecordKind) -> None:
    names = SCHEMAS[kind].fieldNames()
    assert BRONZE[kind].schema.fieldNames()[: len(names)] == names
    assert schemas.TABLES[BRONZE[kind].name] is BRONZE[kind]
