"""What a stub is given when it starts. Source: docs/abi.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from sandbox.core.exchange import Event, GuestEvent


@dataclass(frozen=True, slots=True)
class StubSettings:
    """The settings that the event `start` gives the stub."""

    our_domain: str
    our_node: str
    stub_url: str
    peer_domain: str
    stream: str
    peer_stream: str
    delivered: int
    tokens: tuple[str, ...] = ()
    configuration: Mapping[str, object] = field(default_factory=dict)

    def start_event(self, endpoints: list[str]) -> GuestEvent:
        """The first event. Source: docs/abi.md."""
        members = {
            "abi": 1,
            "our_domain": self.our_domain,
            "our_node": self.our_node,
            "stub_url": self.stub_url,
            "peer_domain": self.peer_domain,
            "endpoints": endpoints,
            "stream": self.stream,
            "peer_stream": self.peer_stream,
            "delivered": self.delivered,
            "configuration": self.configuration,
            "tokens": self.tokens,
        }
        return GuestEvent(Event.START, 0, msgspec.json.encode(members))
