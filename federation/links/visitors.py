"""Which domains we talk to at all: asked before anything is looked up, answered or made for one of them."""

from __future__ import annotations

import time
from typing import Final

from federation.core.auth import Claims
from federation.links.decision_records import DecisionRecords, Judged
from federation.links.link_context import LinkContext, Refusal, refused_by
from policy.core.engine import Facts
from policy.core.gate import Gate, GateStep
from protofly.address import domain_of, valid_domain
from protofly.errors import Code, PeerError
from protofly.message import Message

_UNWELCOME: Final = "our policy does not talk to this domain"
_WHY: Final = {
    GateStep.LIST: "a block or a list of ours names this domain",
    GateStep.GATE: "an operator has shut the gate to this domain for a time",
    GateStep.DEFAULT: "no [[peer]] entry of ours permits this domain",
}
"""For people of our own domain. A stranger hears the same whatever the reason is."""


class Visitors:
    """Other nodes that have proved their domain and want a link.

    Args:
        decisions: Judges, and records what the gate `peer` decides.

    Attributes:
        is_draining: True when the node stops: nobody is admitted any more.
    """

    def __init__(self, context: LinkContext, decisions: DecisionRecords) -> None:
        self._rules = context.rules
        self._terms = context.terms
        self._decisions = decisions
        self.is_draining = False

    def check(self, claims: Claims) -> None:
        """Check that one of them may have a link.

        Raises:
            PeerError: AUTH_POLICY when our policy does not talk to that domain, DRAINING when this node stops.
        """
        self._check_way(claims.iss)
        decisions, domain = self._decisions, claims.iss
        if not may_talk(decisions, domain, greeting(claims.node, self._rules.ours.node), is_visit=True):
            raise _unwelcome(domain)

    def foresee(self, claims: Claims) -> None:
        """Raise what `check` would, rates aside; counts, records and changes nothing."""
        self._check_way(claims.iss)
        probe, gate = greeting(claims.node, self._rules.ours.node), self._decisions.gate
        if not gate.foresee(_peer_facts(gate, claims.iss, probe)).permitted:
            raise _unwelcome(claims.iss)

    def _check_way(self, domain: str) -> None:
        """Raises PeerError for a domain that comes another way, or comes when this node stops."""
        if self.is_draining:
            raise PeerError(Code.DRAINING, "this node stops", domain=domain)
        if self._rules.interworking.admission(domain) is not None:
            raise PeerError(Code.AUTH_POLICY, "this domain speaks through its interworking stub only", domain=domain)
        if domain in self._terms.chosen:
            raise PeerError(Code.AUTH_POLICY, "this domain speaks through the stub chosen here only", domain=domain)


def may_talk(decisions: DecisionRecords, domain: str, message: Message, *, is_visit: bool = False) -> bool:
    """True if we talk to a domain at all; see `judge_contact`."""
    return judge_contact(decisions, domain, message, is_visit=is_visit).verdict.permitted


def judge_contact(decisions: DecisionRecords, domain: str, message: Message, *, is_visit: bool = False) -> Judged:
    """Judge whether we talk to a domain at all: the gate `peer`, asked before anything is looked up or answered.

    Args:
        decisions: Judges, and records denials.
        domain: The foreign domain.
        message: The first one, or a greeting when there is none yet.
        is_visit: It comes to us; otherwise somebody here wants to go there.
    """
    facts = _peer_facts(decisions.gate, domain, message)
    group, source = ("visits", domain) if is_visit else ("first contacts", message.from_)
    return decisions.judge(facts, group=group, source=source)


def check_contact(decisions: DecisionRecords, domain: str, message: Message) -> None:
    """Check that a message may be the first one for a domain.

    Raises:
        PeerError: NAME_INVALID, DOMAIN_BLOCKED.
    """
    valid_domain(domain)
    verdict, msg_id = judge_contact(decisions, domain, message)
    if not verdict.permitted:
        raise PeerError(Code.DOMAIN_BLOCKED, _WHY.get(verdict.step, _UNWELCOME), domain=domain, msg_id=msg_id)


def _peer_facts(gate: Gate, domain: str, message: Message) -> Facts:
    from_domain, link_class = domain_of(message.from_), gate.class_of(domain)
    return Facts("peer", message, from_domain, domain, domain, len(message.raw), 0, time.time(), link_class=link_class)


def _unwelcome(domain: str) -> PeerError:
    return PeerError(Code.AUTH_POLICY, _UNWELCOME, domain=domain)


def greeting(sender: str, node: str) -> Message:
    """Make what the gate `peer` judges when there is no message yet: a domain comes to us, or we look it up."""
    return Message(None, "open", sender, node, b"", b"{}")


def refused_contact(decisions: DecisionRecords, domain: str, message: Message) -> Refusal | None:
    """A refusal when a message is for a domain that we do not talk to, or that has no such name."""
    try:
        check_contact(decisions, domain, message)
    except PeerError as exc:
        return refused_by(exc)
    return None
