"""Performs operations that came by message: the connector behind `domain://msg-node.<d>/admin`."""

from __future__ import annotations

import msgspec

from msg_node.admin.administration import Actor, Administration
from msg_node.admin.core.admin_service import AdminQuestion
from msg_node.kernel.credentials import OPERATOR
from msg_node.sessions.core.sessions import Sessions
from protofly.errors import Code, PeerError


class AdminMessages:
    """Answers questions of the admin service.

    Args:
        administration: Performs the operations.
        sessions: Who asks.
        most_bytes: A reply that is longer is refused, since no runtime could take it.
    """

    def __init__(self, administration: Administration, sessions: Sessions, most_bytes: int) -> None:
        self._administration = administration
        self._sessions = sessions
        self._most_bytes = most_bytes

    async def __call__(self, question: AdminQuestion) -> object:
        """Perform one operation; returns its result as plain values.

        Raises:
            PeerError: POLICY for what was not sent in the name of the runtime itself, and for a session that has ended,
                or lost its role, since it asked; TOO_LARGE.
            HostError: See `Administration.perform`.
        """
        session = self._sessions.get(question.number)
        if session is None or session.is_guest or session.proof.roles.isdisjoint({OPERATOR, question.role}):
            raise PeerError(Code.POLICY, f"this is for sessions with the role {question.role}")
        if question.from_key != session.runtime_key:
            raise PeerError(Code.POLICY, f"operators ask as {session.runtime}, not in the name of what runs there")
        actor = Actor(session.runtime, "message", session.proof.credential)
        result = await self._administration.perform(question.request, actor)
        raw = msgspec.json.encode(result)
        if len(raw) > self._most_bytes:
            detail = f"the reply has {len(raw)} bytes, more than a message may have; ask for fewer rows with `limit`"
            raise PeerError(Code.TOO_LARGE, detail)
        return msgspec.Raw(raw)
