"""`domain://msg-node.<d>/stubs`, and what `<node>/status` says: which stubs this node hosts and how they are.

Both are for operators.

Source: message specification, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from federation.core.stub_status import StubStatus
from msg_node.kernel.directories import ListenerDirectory
from msg_node.kernel.service import Answer, Event, ServiceRequest
from protofly.address import canonical_key
from protofly.errors import Code, PeerError

Hosted = Callable[[], Iterable[StubStatus]]
"""Everything that is hosted now, or was to be."""

DESC_CHARS = 256


def state_events(status: StubStatus, node: str, listeners: ListenerDirectory) -> list[Event]:
    """Make the events for listeners of a stub's status, and of its node's; none if nobody listens.

    Args:
        status: The stub.
        node: Address of our node.
        listeners: Who listens.
    """
    body: dict[str, object] = {"value": status.state}
    if status.detail:
        body["desc"] = status.detail[:DESC_CHARS]
    events = [
        Event(status.url, f"{status.url}/status", body, has_id=False),
        Event(f"{node}/registry", f"{node}/status", {"resource": status.url, **body}, has_id=False),
    ]
    return [event for event in events if listeners.is_heard(canonical_key(event.to))]


class StubInventory:
    """Lists hosted stubs. It is made before the links are; until `connect` there are none."""

    def __init__(self) -> None:
        self._hosted: Hosted = tuple

    def connect(self, hosted: Hosted) -> None:
        """From now on the list comes from there."""
        self._hosted = hosted

    def __call__(self, request: ServiceRequest) -> Answer:
        """Serve `read`.

        Raises:
            PeerError: BAD_TYPE; POLICY for somebody who is no operator of this node.
        """
        if request.message.type != "read":
            raise PeerError(Code.BAD_TYPE, "this service knows read")
        if not request.caller.is_operator:
            raise PeerError(Code.POLICY, "the inventory of stubs is for operators")
        return Answer(value=[one.line() for one in sorted(self._hosted(), key=lambda one: one.domain)])
