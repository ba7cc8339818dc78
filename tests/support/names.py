"""Name services for tests: one in memory under our interface, one real on loopback."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from federation.core.name_questions import Answer, AnswerStatus, Question, RecordKind
from federation.discovery.name_client import DnsClient, NameClient
from interop.name_server import Fault, NameServer, Records

NO_NAME = Answer(AnswerStatus.NO_NAME, detail="no such name")
SILENCE = Answer(AnswerStatus.FAILED, detail="no answer")


class ScriptedNames(NameClient):
    """Answers from a table; each question in it may have several answers, taken in turn. The rest does not exist.

    Attributes:
        gate: No question is answered before it.
        stalled: No question for a name with `silent-` is answered before it.
    """

    def __init__(self, answers: Mapping[str, Answer | Sequence[Answer]] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[str] = []
        self.default = NO_NAME
        self.gate: trio.Event | None = None
        self.stalled: trio.Event | None = None

    async def ask(self, question: Question) -> Answer:
        self.asked.append(str(question))
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.stalled is not None and "silent-" in str(question):
            await self.stalled.wait()
        answers = self.answers.get(str(question), self.default)
        if isinstance(answers, Answer):
            return answers
        turn = self.asked.count(str(question)) - 1
        return answers[min(turn, len(answers) - 1)]


def found_addresses(*addresses: str, ttl_seconds: float = 300.0) -> Answer:
    return Answer(AnswerStatus.FOUND, addresses=addresses, ttl_seconds=ttl_seconds)


def names_with_addresses(**hosts: Sequence[str]) -> ScriptedNames:
    """Names with A and AAAA records; `_` in a keyword stands for a dot."""
    names = ScriptedNames()
    for host, addresses in hosts.items():
        name = host.replace("_", ".")
        fours, sixes = [a for a in addresses if ":" not in a], [a for a in addresses if ":" in a]
        for kind, some in ((RecordKind.A, fours), (RecordKind.AAAA, sixes)):
            names.answers[f"{kind.value} {name}"] = (
                found_addresses(*some) if some else Answer(AnswerStatus.NO_DATA, ttl_seconds=300.0)
            )
    return names


@asynccontextmanager
async def name_service(
    records: Mapping[str, Records],
    *,
    faults: Mapping[str, Fault] | None = None,
    is_validating: bool = False,
    believes_ad: bool = False,
) -> AsyncIterator[tuple[NameServer, DnsClient]]:
    """A real name server on loopback, and a client that asks it."""
    server = NameServer(records, faults=faults or {}, is_validating=is_validating)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.run)
        yield server, DnsClient([f"127.0.0.1:{port}"], believes_ad=believes_ad)
        nursery.cancel_scope.cancel()
