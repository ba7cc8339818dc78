"""Policies of single objects: their owners name a document, and it narrows what the gates permit.

A document comes out of a catalogue, and any owner of an object may name it, so it is trusted with nothing: it is small,
it has no obligations, and it is asked last, about messages that all else lets pass. What it denies, or cannot judge,
does not pass; what it permits passes only because everything before it did.
Source: message specification, section 1.3 (`body.policy`); feature row PE-23.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from policy.core.engine import CompiledPolicies, Effect, Facts, compile_policies
from policy.core.model import DOCUMENT_PREFIX
from policy.core.text import PolicyText, parse_policy_file
from protofly.errors import Code, SettingsError
from protofly.limits import POLICY_DOCUMENT_RULES
from protofly.message import Message

_PASSES: Final = (Effect.PERMIT, Effect.NOT_APPLICABLE)


class ObjectPolicy(NamedTuple):
    """The document of one object that a message is about.

    Attributes:
        document: Its address.
        policies: What it says; None while it is not here.
        is_needed: Whether the message may not pass without it: somebody else than the owner asks for the object.
    """

    document: str
    policies: CompiledPolicies | None
    is_needed: bool


class ObjectPolicies(Protocol):
    """Knows the documents of objects."""

    def about(self, message: Message, /) -> Sequence[ObjectPolicy]:
        """Those of the objects that a message is from, for, or subscribes to. Never raises."""


class Denial(NamedTuple):
    """Denial by a document: the rule that the verdict names, and the code."""

    rule_id: str
    code: Code


def denial_of(known: ObjectPolicies, facts: Facts) -> Denial | None:
    """Ask the documents about a message that all else lets pass; None: they do as well. Never raises."""
    for document, policies, is_needed in known.about(facts.message):
        if policies is None:
            if is_needed:
                return Denial(DOCUMENT_PREFIX + document, Code.POLICY_UNAVAILABLE)
            continue
        decision = policies.decide(facts)
        if decision.effect not in _PASSES:
            rule = f" {decision.rule_id}" if decision.rule_id else ""
            return Denial(f"{DOCUMENT_PREFIX}{document}{rule}", Code.POLICY)
    return None


def settles(known: ObjectPolicies, facts: Facts) -> bool:
    """True if what the documents say about a message holds for all messages of its flow."""
    return all(one.policies is None or one.policies.settles(facts) for one in known.about(facts.message))


def compile_document(text: str, name: str) -> CompiledPolicies:
    """Compile the text of a document (JSON) and run its tests.

    Raises:
        SettingsError: It is no policy file, has too many rules, or wants more than to permit and to deny.
    """
    sets = parse_policy_file(PolicyText(name, text, "json")).sets
    policies = [policy for policy_set in sets for policy in policy_set.policies]
    rules = [rule for policy in policies for rule in policy.rules]
    if len(rules) > POLICY_DOCUMENT_RULES:
        raise SettingsError(f"{name}: a document has at most {POLICY_DOCUMENT_RULES} rules, this one {len(rules)}")
    owed = (one.obligations for ones in (sets, policies, rules) for one in ones)
    if any(owed):
        raise SettingsError(f"{name}: a document permits and denies; obligations are for the policies of the domain")
    return compile_policies(sets)
