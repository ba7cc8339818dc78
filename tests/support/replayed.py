"""What a gate was shown when it decided about one record."""

from __future__ import annotations

import msgspec

from policy.core.engine import Facts
from policy.core.recorded_facts import AlikeFacts
from protofly.records import MessageRecord


def facts_of(record: MessageRecord) -> Facts:
    packed = None if record.facts is None else msgspec.json.encode(record.facts)
    alike = AlikeFacts.read(record.role, record.src_domain, record.dst_domain, record.msg_type, packed)
    return alike.of(record.src_key, record.dst_key, record.size_in, record.size_wire, record.ts_us)
