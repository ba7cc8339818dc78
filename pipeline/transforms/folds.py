"""Folds: two numbers that stand for a whole set of messages, whatever the order in which they came.

Each member is hashed to 64 bits; the set has the exclusive or of all hashes, and their sum modulo 2⁶⁴. Equal sets have
equal folds. Different sets almost never do by accident, but the hash is no secret: somebody who wants two sets to fold
alike can make them. Against that there are signed manifests and, in final statements, SHA-256.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_LOW = (1 << 32) - 1


def fold_columns(member: Column) -> tuple[Column, Column, Column]:
    """Aggregates over a long Column of hashes, nulls left out: `set_xor`, and the halves that `set_sum` is made of."""
    low, high = _low(member), _low(F.shiftright(member, 32))
    nothing = F.lit(0).cast("long")
    return (
        F.coalesce(F.bit_xor(member), nothing).alias("set_xor"),
        F.coalesce(F.sum(low), nothing).alias("sum_low"),
        F.coalesce(F.sum(high), nothing).alias("sum_high"),
    )


def set_sum(sum_low: Column, sum_high: Column) -> Column:
    """The sum modulo 2⁶⁴ out of the sums of the 32-bit halves; nothing here can overflow, which ANSI mode forbids."""
    high = sum_high + F.shiftrightunsigned(sum_low, 32)
    return F.shiftleft(high, 32).bitwiseOR(_low(sum_low)).alias("set_sum")


def _low(value: Column) -> Column:
    return value.bitwiseAND(F.lit(_LOW))
