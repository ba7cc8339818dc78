"""What a link counts, with the name and the meaning of every number. `docs/counters.md` lists them."""

from __future__ import annotations

from protofly.counters import Counted


class LinkCount(Counted):
    """Messages of one link: `links` in the status, with `_` for blanks."""

    SENT = "sent", "messages that the stub was given"
    ACCEPTED = "accepted", "messages that the other node acknowledged"
    RECEIVED = "received", "messages of the other node that were delivered"
    DENIED = "denied", "messages that policy denied, in both directions"
    REFUSED = "refused", "messages of ours that the link did not take"
    OVERFLOWED = "overflowed", "messages of ours that were refused with `overload`, since too many wait for the link"
    LOST_EVENTS = "lost events", "of these, messages that expect no answer: only the audit records have their refusal"
    EXPIRED = "expired", "messages that expired while they waited"
    TRAPPED = "trapped", "messages that were put aside since the stub failed on them"
    REJECTED = "rejected", "messages that the stub or the other node refused"
    UNDELIVERABLE = "undeliverable", "messages that had no recipient"
    BROKEN = "broken", "frames of the other node that are no message"
    SPOOFED = "spoofed", "messages in a name that the other node may not use"
    UNHEARD_ACKNOWLEDGEMENTS = "unheard acknowledgements", "acknowledgements of events that nobody waits for"
    DUPLICATES = "duplicates", "messages of the other node that had come before"
    LATE_REPLIES = "late replies", "replies that came after the timeout"
    TIMEOUTS = "timeouts", "requests that got no reply in time"
    STUB_FAULTS = "stub faults", "times that the stub failed"
    STALLS = "stalls", "times that the other node stopped acknowledging"
