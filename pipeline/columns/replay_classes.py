"""Which records a gate without limits decides alike: those that policies cannot distinguish.

Of records that are equal in everything else, addresses differ, sizes and times. A rule does not see an address: it sees
what its comparisons with it say. It does not see a size either, but on which side of some bounds it lies. So addresses
for which all comparisons say the same are one class, sizes between the same bounds are one, and the gate is asked once
for each class that occurs, instead of once for each record.

Where that cannot be said, every address, size or time is a class of its own: comparisons that look at both addresses at
once, or are too many to be tried on every address; hashed addresses, once any rule reads addresses; stubs between two
runtimes, which gates look for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.columns.groups import Numbers, codes, column, dense, numbers
from policy.core.attributes import ATTRIBUTES, AttributeKind
from policy.core.closures import Predicate, compile_test, tests_of
from policy.core.engine import CompiledPolicies, Facts, Operator, Test
from policy.core.parameters import number_parameter
from protofly.address import P2P_STUBS
from protofly.errors import SettingsError
from protofly.message import Message

_READ: Final = {"src_key": frozenset({"msgFrom", "srcScheme"}), "dst_key": frozenset({"msgTo", "dstScheme"})}
_READ_BOTH: Final = frozenset({"msgType", "dstStatus", "dstPresence"})
_TIMES: Final = frozenset(
    name
    for name, attribute in ATTRIBUTES.items()
    if attribute.kind in (AttributeKind.TIME, AttributeKind.DATE, AttributeKind.WEEKDAY)
)
_MOST_TESTS: Final = 200
"""A gate asks an index which rules a message may meet at all; here every comparison is tried on every address."""
_KNOWN_ADDRESSES: Final = 1 << 18


class ReplayClasses:
    """Classes of records that are alike but for addresses, size and time.

    Args:
        policies: All that decide.
        is_hashed: Whether a key stands for an address that is hidden.
    """

    def __init__(self, policies: Iterable[CompiledPolicies], is_hashed: Callable[[str], bool]) -> None:
        tests = {test for one in policies for test in _tests_in(one)}
        read = {test.attribute for test in tests}
        self._has_times = not read.isdisjoint(_TIMES)
        self._bounds = _bounds_of([test for test in tests if test.attribute == "size"])
        self._addresses = {
            name: _AddressClasses(tests, attributes, is_hashed=is_hashed, is_open=read.isdisjoint(_READ_BOTH))
            for name, attributes in _READ.items()
        }

    def keys(self, records: pa.Table, size_bytes: Numbers) -> list[tuple[Numbers, int]]:
        """Compute the key columns by which records belong to one class, for `groups.group_numbers`.

        Args:
            records: The columns `src_key`, `dst_key` and `ts_us`.
            size_bytes: The size that a gate was shown.
        """
        keys = [classes.of(column(records, name)) for name, classes in self._addresses.items()]
        if self._bounds is None:
            keys.append(dense(size_bytes))
        else:
            keys.append((np.searchsorted(self._bounds, size_bytes, side="right"), len(self._bounds) + 1))
        if self._has_times:
            keys.append(dense(numbers(records, "ts_us")))
        return keys


class _AddressClasses:
    """Numbers of classes of addresses of one side."""

    def __init__(
        self, tests: Iterable[Test], attributes: frozenset[str], *, is_hashed: Callable[[str], bool], is_open: bool
    ) -> None:
        chosen = [test for test in tests if test.attribute in attributes]
        self._is_read = bool(chosen) or not is_open
        self._tests: Sequence[Predicate] | None = None
        if is_open and len(chosen) <= _MOST_TESTS:
            self._tests = [compile_test(test) for test in chosen]
        self._is_hashed = is_hashed
        self._numbers: dict[object, int] = {}
        self._known: dict[str, int] = {}

    def of(self, addresses: pa.Array) -> tuple[Numbers, int]:
        """The class of each of these, and how many there may be."""
        if len(self._known) >= _KNOWN_ADDRESSES:
            self._known.clear()
            self._numbers.clear()
        found, places = codes(addresses)
        return np.array([self._number(word or "") for word in found], np.int64)[places], len(self._numbers)

    def _number(self, address: str) -> int:
        number = self._known.get(address)
        if number is None:
            number = self._numbers.setdefault(self._what_is_seen(address), len(self._numbers))
            self._known[address] = number
        return number

    def _what_is_seen(self, address: str) -> object:
        is_hidden = self._is_read and "://" not in address  # what a rule is shown of it depends on its domain
        if self._tests is None or is_hidden or any(f"/{name}/" in address for name in P2P_STUBS):
            return address
        facts = Facts("out", Message(None, "", address, address, b"", b""), "", "", "", 0, 0, 0.0)
        return self._is_hashed(address), tuple(test(facts) for test in self._tests)


def _tests_in(policies: CompiledPolicies) -> Iterable[Test]:
    for policy_set in policies.sets:
        yield from tests_of(policy_set.target)
        for policy in policy_set.policies:
            yield from tests_of(policy.target)
            for rule in policy.rules:
                yield from tests_of(rule.target)
                yield from tests_of(rule.condition)


def _bounds_of(tests: Iterable[Test]) -> Numbers | None:
    """Sizes at which a comparison may begin to say something else; None: wherever."""
    found = set[int]()
    for test in tests:
        if test.operator is Operator.PRESENT:
            continue
        try:
            found |= {number_parameter(word) for one in test.parameters for word in str(one).split() if word != "*"}
        except SettingsError:
            return None
    bounds = {bound + after for bound in found for after in (0, 1)}
    highest = np.iinfo(np.int64).max
    return np.array(sorted(bound for bound in bounds if -highest <= bound <= highest), np.int64)
