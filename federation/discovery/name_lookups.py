"""One look-up in DNS: asks what the resolution of a domain wants to know, within a time limit.

Source: trust and hosts, section 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from federation.core.discovery_errors import Attempt, DiscoveryStep, Failure
from federation.core.name_questions import Answer, Question
from federation.core.resolution import Resolution, Resolved, step_of
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.name_client import NameClient
from protofly import limits
from protofly.errors import Code


class NameLookups:
    """Asks name servers for the places of domains; remembers nothing but counts.

    Args:
        names: Asks name servers.
        log: Where attempts are written.
        draw: Random numbers in [0, 1).

    Attributes:
        lookups: Made since the start.
        queries: Questions of them.
    """

    def __init__(self, names: NameClient, log: AttemptLog, draw: Callable[[], float]) -> None:
        self._names = names
        self._log = log
        self._draw = draw
        self.lookups = 0
        self.queries = 0

    async def look_up(self, domain: str) -> Resolved | Failure:
        """The place of a domain, or the reason why there is none, after `DISCOVERY_SECONDS` at the latest."""
        self.lookups += 1
        resolution = Resolution(domain, draw=self._draw)
        with trio.move_on_after(limits.DISCOVERY_SECONDS):
            while questions := resolution.questions():
                await self._ask_all(resolution, domain, questions)
            return self._with_notes(domain, resolution.outcome())
        detail = f"no answers within {limits.DISCOVERY_SECONDS:.0f} s"
        return Failure(domain, DiscoveryStep.TXT, Code.DNS_FAILED, detail)

    async def _ask_all(self, resolution: Resolution, domain: str, questions: Iterable[Question]) -> None:
        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(self._ask, resolution, domain, question)

    async def _ask(self, resolution: Resolution, domain: str, question: Question) -> None:
        self.queries += 1
        with self._log.attempt(domain, step_of(question), str(question)) as attempt:
            answer = await self._names.ask(question)
            attempt.outcome, attempt.detail = answer.status.value, _described(answer)
        resolution.receive(question, answer)

    def _with_notes(self, domain: str, outcome: Resolved | Failure) -> Resolved | Failure:
        if isinstance(outcome, Resolved):
            for note in outcome.notes:
                self._log.add(domain, Attempt(DiscoveryStep.TXT, "records", "ignored", note, self._log.clock()))
        return outcome


def _described(answer: Answer) -> str:
    """Describe an answer for the attempt log."""
    services = [f"{record.priority} {record.target or '.'}:{record.port or '-'}" for record in answer.services]
    return answer.detail or ", ".join([*answer.texts, *services, *answer.addresses])[: limits.DNS_TXT_CHARS]
