"""The steps that messages of sessions pass, made again when settings or policies have changed.

A step whose settings are as before stays as it is: a session that has used up its rate has so after a reload as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from federation.links.decision_records import DecisionRecords
from federation.links.link_context import UNIDENTIFIED, Identify, Refusal
from msg_node.bus import middleware
from msg_node.bus.middleware import MessageStep, Stack, make_stack
from msg_node.node_state import NodeState
from msg_node.registries.policy_documents import PolicyDocuments
from msg_node.registries.validation import Validation
from msg_node.settings.middleware import active_steps
from msg_node.settings.model import Settings
from msg_node.settings.rates import type_rates
from msg_node.settings.tables.middleware import StepName
from policy.core.gate import narrow
from policy.core.model import Facts
from protofly.address import domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

_NOTHING: Final = object()


class LocalGate:
    """The gate on our own bus: asked only when it has something to say, since otherwise it lets everything pass.

    Attributes:
        decisions: The gate, and what records its decisions.
        identify: Checks assertions; None without identity providers. Another one counts from the next message on.
    """

    __slots__ = ("decisions", "identify")

    def __init__(self, decisions: DecisionRecords, identify: Identify | None = None) -> None:
        self.decisions = decisions
        self.identify = identify

    def judge(self, message: Message, roles: frozenset[str], sid: int = 0) -> Refusal | None:
        """See `middleware.JudgeLocal`."""
        decisions = self.decisions
        if not decisions.gate.judges_own_bus:
            return None
        try:
            facts = self._facts(message, roles)
        except PeerError as exc:
            return Refusal(exc.code)
        verdict, msg_id = decisions.judge(facts, group="sessions", source=str(sid))
        if verdict.permitted:
            if decisions.gate.has_policies:
                message.judged(verdict.is_permitted_by_rule)
            return None
        return Refusal(verdict.code or Code.POLICY, verdict.details_of(msg_id), verdict.instead)

    def concerns(self, message: Message) -> bool:
        """True if the policy of an object here has something to say about a message."""
        objects = self.decisions.gate.objects
        return objects is not None and bool(objects.about(message))

    def narrow(self, message: Message, roles: frozenset[str], *, is_from_abroad: bool) -> Refusal | None:
        """Apply the policies of objects here to a message that the gates of another node let pass; None lets it pass.

        Args:
            message: As it came from there.
            roles: Those of its sender's session.
            is_from_abroad: It came over a link of that node: its sender is not given the rule that denies it.
        """
        gate = self.decisions.gate
        if not self.concerns(message):
            return None
        try:
            facts = self._facts(message, roles)
        except PeerError as exc:
            return Refusal(exc.code)
        if is_from_abroad:
            domain = facts.from_domain
            facts = replace(facts, hook="in", link_domain=domain, link_class=gate.class_of(domain))
        verdict = narrow(gate, facts)
        if verdict is None:
            return None
        msg_id = self.decisions.note(facts, verdict, group="nodes", source=message.from_)
        code = verdict.code or Code.POLICY
        if is_from_abroad:
            return Refusal(code, {"msgId": msg_id} if msg_id else None)
        return Refusal(code, verdict.details_of(msg_id))

    def _facts(self, message: Message, roles: frozenset[str]) -> Facts:
        """Raises PeerError."""
        now, identify = time.time(), self.identify
        from_domain, to_domain = domain_of(message.from_), domain_of(message.to)
        who = UNIDENTIFIED if identify is None else identify(message, from_domain, now)
        size, known = len(message.raw), self.decisions.recipients
        return Facts("local", message, from_domain, to_domain, "", size, 0, now, *who, roles, recipients=known)


class Onlooker(Protocol):
    """Sees every message that passes the node, and refuses none: taps, the recorder."""

    @property
    def name(self) -> str:
        """Of its step."""

    @property
    def is_looking(self) -> bool:
        """True while messages of sessions have to pass it."""

    @property
    def step(self) -> MessageStep:
        """Sees what a session sends."""

    def from_domain(self, domain: str, messages: Sequence[Message]) -> None:
        """Sees what another domain brings."""

    def over_answers(self, answer: Callable[[Message], None]) -> Callable[[Message], None]:
        """The same way for what our links answer in place of other domains, seen by it."""


class SessionSteps:
    """Makes the steps, as the settings order them; those who look on come first.

    Args:
        gate: On our own bus.
        state: The sessions.
        onlookers: Those whom the settings want.
        validation: Of changes against schemas, where the settings want it.
        documents: Learn which policies owners name for their objects, None where the settings want none.
    """

    def __init__(
        self,
        gate: LocalGate,
        state: NodeState,
        onlookers: Sequence[Onlooker] = (),
        validation: Validation | None = None,
        documents: PolicyDocuments | None = None,
    ) -> None:
        self.gate = gate
        self._state = state
        self._onlookers = tuple(onlookers)
        self._validation = validation
        self._documents = documents
        if documents is not None:
            documents.connect(partial(gate.decisions.gate.narrow_by, documents))
        self._made: dict[StepName, tuple[object, MessageStep]] = {}

    def stack(self, settings: Settings) -> Stack:
        """The steps that these settings want, together with the policies in force."""
        names = active_steps(settings, has_policies=self.gate.decisions.gate.judges_own_bus)
        looking = [one for one in self._onlookers if one.is_looking]
        steps: list[tuple[str, MessageStep]] = [(one.name, one.step) for one in looking]
        steps += [(name, self._step(name, settings)) for name in names]
        if self._documents is not None:
            steps.append(("documents", self._documents.step))  # what is refused names nothing
        return make_stack(steps, self.gate.judge, [one.from_domain for one in looking])

    def _step(self, name: StepName, settings: Settings) -> MessageStep:
        chosen, wanted = settings.middleware, _settings_of(name, settings)
        made_for, step = self._made.get(name, (_NOTHING, None))
        if step is not None and made_for == wanted:
            return step
        makers: dict[StepName, Callable[[], MessageStep]] = {
            "logging": lambda: middleware.log(chosen.logging.every),
            "authentication": lambda: middleware.authentication(self._state.sessions, chosen.authentication.open_to),
            "rate": lambda: middleware.rate(
                chosen.rate.limit, type_rates(chosen.rate.by_type), max_sessions=settings.limits.sessions
            ),
            "authorisation": lambda: middleware.authorisation(self.gate.judge, self._state.guests.domain),
            "schema": self._schema_step,
        }
        self._made[name] = wanted, makers[name]()
        return self._made[name][1]

    def _schema_step(self) -> MessageStep:
        assert self._validation is not None, "a node makes what its settings may ask for"
        return self._validation.step


def _settings_of(name: StepName, settings: Settings) -> object:
    """The settings from which a step is made."""
    chosen = settings.middleware
    return {
        "logging": chosen.logging,
        "authentication": chosen.authentication,
        "rate": (chosen.rate, settings.limits.sessions),
        "authorisation": None,
        "schema": chosen.schema,
    }[name]
