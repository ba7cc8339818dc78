"""What manifests say about records that are judged together, record by record. No Spark in here.

Segments may be small, and looking at a column costs the same for ten records as for ten thousand; so records of many
segments are judged at once, each beside what the manifest of its own segment says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protofly.records import SegmentManifest


@dataclass(slots=True, eq=False)
class Source:
    """A segment whose lines are being read.

    Attributes:
        manifest: What its records have to keep to.
        day: UTC day of lines without a good time.
        highest: Number of the last good record so far.
        days: Days of the good records so far, counted from 1970-01-01.
        good: How many lines are good records.
        bad: How many are not.
    """

    manifest: SegmentManifest
    day: str
    highest: int = field(init=False)
    days: set[int] = field(init=False, default_factory=set)
    good: int = field(init=False, default=0)
    bad: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.highest = self.manifest.first_seq - 1


class Claims:
    """Statements of segments about consecutive records.

    Args:
        sources: Segments, in the order of their records.
        counts: How many records of each there are.
    """

    def __init__(self, sources: Sequence[Source], counts: Sequence[int]) -> None:
        self.sources = sources
        self.owners: NDArray[np.int64] = np.repeat(np.arange(len(sources)), counts)
        """For each record the place of its segment among the sources."""
        self._counts = counts

    def numbers(self, of: Callable[[SegmentManifest], int]) -> NDArray[np.int64]:
        """For each record what its manifest says."""
        said = np.array([of(source.manifest) for source in self.sources], np.int64)
        return said[self.owners]

    def nodes(self) -> pa.DictionaryArray:
        """For each record the node of its segment."""
        names = pa.array([source.manifest.node for source in self.sources], pa.string())
        return names.dictionary_encode().take(pa.array(self.owners))

    def spans(self) -> Iterator[tuple[Source, slice]]:
        """Yield each segment with the slice of its records."""
        end = 0
        for source, count in zip(self.sources, self._counts, strict=True):
            start, end = end, end + count
            yield source, slice(start, end)
