"""The queue between the message path, which appends, and the thread that writes records."""

from __future__ import annotations

from protofly.record_runs import MessageRun, Recorded, count_records


class RecordQueue:
    """Records and runs of records that wait for the writer's thread.

    One thread appends, the other takes. Every single operation is atomic, and only one of the two counts each figure.

    Args:
        room_records: So many may wait; a run that begins below the bound is taken whole.
    """

    def __init__(self, room_records: int) -> None:
        self.room_records = room_records
        self._recorded: list[Recorded] = []
        self._appended = self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._recorded)

    def __len__(self) -> int:
        """Records that wait."""
        return max(0, self._appended - self._taken)

    @property
    def is_full(self) -> bool:
        """True when no more should be appended."""
        return self._appended - self._taken >= self.room_records

    def append(self, recorded: Recorded) -> None:
        """Add a record or a run, whether there is room or not."""
        self._recorded.append(recorded)
        self._appended += len(recorded) if isinstance(recorded, MessageRun) else 1

    def take(self) -> tuple[list[Recorded], int]:
        """Take all that waits; returns it, and how many records it is."""
        taken = self._recorded[:]
        count = count_records(taken)
        del self._recorded[: len(taken)]
        self._taken += count
        return taken, count
