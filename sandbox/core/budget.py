"""What one stub may spend: the smaller of what its manifest needs and what this node allows.

Source: docs/abi.md, "Budgets"; trust and hosts, section 3.4 (the smaller of needs and policy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, Self

from protofly import limits
from protofly.errors import MisuseError

PAGE_BYTES: Final = 64 << 10
MILLISECONDS_PER_SECOND: Final = 1000
_WIRE: Final = Struct("<IIQIIIfd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Ceilings of one instance and of one call, and what its calls may take of a core over time.

    Fuel is the engine's unit, roughly one per instruction.
    """

    memory_bytes: int = limits.MEMORY_BYTES
    table_elements: int = limits.TABLE_ELEMENTS
    fuel_instantiate: int = limits.FUEL_INSTANTIATE
    fuel_per_event: int = limits.FUEL_PER_EVENT
    fuel_per_input_byte: int = limits.FUEL_PER_INPUT_BYTE
    cpu_milliseconds: int = int(limits.CPU_BACKSTOP_SECONDS * MILLISECONDS_PER_SECOND)
    batch_seconds: float = limits.BATCH_SECONDS
    cpu_share: float = limits.STUB_CPU_SHARE

    def lowered_to(self, *, memory_bytes: int | None = None, call_ms: int | None = None) -> Self:
        """The budget of a stub whose manifest needs this much; None or more than we allow means our own limit.

        Memory is rounded up to whole WebAssembly pages of 64 KiB, CPU time is at least one millisecond.
        """
        memory = self.memory_bytes if memory_bytes is None else max(memory_bytes, 1)
        pages = -(-memory // PAGE_BYTES)
        return replace(
            self,
            memory_bytes=min(pages * PAGE_BYTES, self.memory_bytes),
            cpu_milliseconds=min(max(call_ms or self.cpu_milliseconds, 1), self.cpu_milliseconds),
        )

    @property
    def is_granted_somewhere(self) -> bool:
        """True when the settings of a node can give a stub this much."""
        most = type(self)()
        return (
            self.memory_bytes <= most.memory_bytes
            and self.table_elements <= most.table_elements
            and self.fuel_instantiate <= most.fuel_instantiate
            and self.fuel_per_event <= most.fuel_per_event
            and self.fuel_per_input_byte <= most.fuel_per_input_byte
            and self.cpu_milliseconds <= most.cpu_milliseconds
            and 0.0 < self.batch_seconds < math.inf
            and 0.0 < self.cpu_share <= 1.0
        )

    def fuel_of_call(self, event_count: int, input_bytes: int) -> int:
        """Fuel for one call with this many events and bytes."""
        return self.fuel_per_event * event_count + self.fuel_per_input_byte * input_bytes

    def to_bytes(self) -> bytes:
        """For the worker, `_WIRE` long."""
        return _WIRE.pack(
            self.memory_bytes,
            self.table_elements,
            self.fuel_instantiate,
            self.fuel_per_event,
            self.fuel_per_input_byte,
            self.cpu_milliseconds,
            self.batch_seconds,
            self.cpu_share,
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """The inverse of `to_bytes`.

        Raises:
            MisuseError: these bytes are no budget.
        """
        if len(raw) != WIRE_BYTES:
            raise MisuseError(f"a budget of {len(raw)} bytes")
        memory, table, instantiate, per_event, per_byte, cpu, batch, share = _WIRE.unpack(raw)
        return cls(
            memory_bytes=memory,
            table_elements=table,
            fuel_instantiate=instantiate,
            fuel_per_event=per_event,
            fuel_per_input_byte=per_byte,
            cpu_milliseconds=cpu,
            batch_seconds=batch,
            cpu_share=share,
        )


WIRE_BYTES: Final = _WIRE.size
