"""What a partner case is: steps of the partner, and what the node under test has to do, as data.

Each case is played with a domain of its own, `<id>.partner.example`, which the node has never met. Texts may hold
names in braces, filled in for each run: `{a}` the node's domain, `{b}` the partner's, `{c}` a third one, `{ana}` a
hyperty at the node, `{bo}` one of the partner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from interop.partner.stage import Stage

CASE_SECONDS: Final = 100.0


class PartnerStep(Protocol):
    """Something that the partner does, or that has to happen to it."""

    async def play(self, stage: Stage) -> None:
        """Do it.

        Raises:
            NodeFaultError: The node did something else.
            NoAnswerError: Something had to come and did not.
            TransportError: The node takes no runtime.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerCase:
    """One case.

    Attributes:
        id: Unique; a label of a domain name.
        group: Chapter of the report.
        section: Where the rule is: a section of docs/spec/trust-and-hosts.md, or another page with its section.
        says: The rule.
        steps: What happens, in order.
        seconds: Longest time that it may take, without the waits for documents to be fetched again.
        waits: How often it waits for that.
        domain: Another domain than its own.
    """

    id: str
    group: str
    section: str
    says: str
    steps: tuple[PartnerStep, ...]
    seconds: float = CASE_SECONDS
    waits: int = 0
    domain: str = ""
