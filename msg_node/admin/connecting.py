"""Signs of life of other domains, for operators: over the link that is up, or over one that is opened for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from federation.core.round_trip import question
from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.plan import Plan
from msg_node.admin.evaluation import facts_at
from policy.core.model import Hook
from protofly.errors import Code, PeerError

_GATES: Final[tuple[Hook, ...]] = ("peer", "out")


async def ping(node: Administered, arguments: Mapping[str, Value]) -> dict[str, object]:
    """Send a message to the node of a domain, over the link that is up, and wait for its answer.

    Raises:
        PeerError: NOT_CONNECTED without a link; else as `_made_trip`.
    """
    domain = str(arguments["domain"])
    if not node.bus.send_queues.links.is_live(domain):
        detail = f"no link to {domain} is up; `peer connect` opens one, and so does the next message of a user"
        raise PeerError(Code.NOT_CONNECTED, detail)
    return await _made_trip(node, domain)


def connect(node: Administered, arguments: Mapping[str, Value], _by: str) -> Plan:
    """Plan to send the same message when no link is up: it opens one, as a message of a user does.

    Raises:
        PeerError: BAD_BODY for our own domain; the code by which a gate keeps such a message back.
    """
    domain = str(arguments["domain"])
    if domain in node.settings().own_domains:
        raise PeerError(Code.BAD_BODY, f"{domain} is our own domain")
    _check_gates(node, domain)
    found = next((link for link in node.federation.links if link.domain == domain), None)
    is_live = node.bus.send_queues.links.is_live(domain)
    before = "live" if is_live else "none" if found is None else found.state
    after = "live" if is_live else "connecting"
    return Plan({"link": before}, {"link": after}, lambda: None, wait=partial(_made_trip, node, domain))


def _check_gates(node: Administered, domain: str) -> None:
    asked, now = question(node.bus.refusals.node, domain, "0"), time.time()
    for gate in _GATES:
        verdict = node.gate.explain(facts_at(node.gate, asked, gate, frozenset(), now=now)).verdict
        if not verdict.permitted:
            code = Code.DOMAIN_BLOCKED if gate == "peer" else verdict.code or Code.POLICY
            by = f"rule {verdict.rule_id}" if verdict.rule_id else verdict.step.value
            detail = f"our gate `{gate}` keeps messages to {domain} back ({by}): `node evaluate` says why"
            raise PeerError(code, detail)


async def _made_trip(node: Administered, domain: str) -> dict[str, object]:
    """Raises PeerError: what `RoundTrips.make` raises; the code of our own link, if that answers in their place."""
    answer, seconds = await node.bus.refusals.own_requests.trips.make(domain)
    if answer.is_ours:
        code = next((one for one in Code if one.word == answer.reason), Code.NOT_CONNECTED)
        raise PeerError(code, "our own node answered in its place: the message did not arrive")
    return {"domain": domain, "milliseconds": round(seconds * 1000, 3), "code": answer.code, "reason": answer.reason}


PLANNERS: Final[Mapping[str, Callable[[Administered, Mapping[str, Value], str], Plan]]] = {"peer connect": connect}
"""Changes by the name of their operation."""
