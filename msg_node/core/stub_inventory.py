"""`domain://msg-node.<d>/stubs`: which stubs this node hosts, for operators.

Source: message specification, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from federation.core.stub_status import StubStatus
from msg_node.core.service import Answer, ServiceRequest
from protofly.errors import Code, PeerError

Hosted = Callable[[], Iterable[StubStatus]]
"""Everything that is hosted now, or was to be."""


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
