"""Settings of deferred delivery: `[delivery]`.

Source: message specification, section 19.
"""

from __future__ import annotations

from msg_node.requests.core.delivery_state import DeliveryRules
from msg_node.requests.core.parking import Bounds
from msg_node.settings.tables.delivery import DeliverySettings
from protofly import limits


def build_delivery_rules(settings: DeliverySettings) -> DeliveryRules:
    """Turn the settings into rules of delivery."""
    return DeliveryRules(
        bounds=Bounds(
            settings.per_agent,
            settings.per_sender,
            settings.bytes,
            settings.longest_seconds,
            max(settings.bytes // limits.PARKED_SENDER_PART, min(settings.bytes, limits.FRAME_BYTES)),
        ),
        default_seconds=min(settings.expires_seconds, settings.longest_seconds),
        unanswered=settings.unanswered,
        inbox_seconds=settings.inbox_seconds,
        inbox_per_owner=settings.inbox_entries,
    )
