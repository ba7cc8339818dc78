"""The shell of a laboratory that is kept: be its runtimes, and end and start its nodes, line by line.

What runtimes hear is shown when it comes. Every runtime answers every request with 200. Lines that cannot be done say
why, and are counted; nothing ends the shell but `quit`, and the end of its input.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any, Final, TypeAlias

import msgspec
import trio

from interop.lab.kept import STOP_SECONDS, KeptLab
from interop.runtime_client import Answer, Incoming, UnexpectedAnswerError
from interop.talker import Talker
from protofly.errors import HostError, TransportError

Show: TypeAlias = Callable[[str], None]
ReadLine: TypeAlias = Callable[[], str]
"""The next line; "" at the end of the input. Blocks."""
Words: TypeAlias = Sequence[str]
MOST_WAIT_SECONDS: Final = 3600.0
_SHOWN_CHARS: Final = 300
_MANY: Final = 10_000


class UnusableLineError(Exception):
    """A line cannot be done: its text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the shell.

    Attributes:
        usage: Its words.
        meaning: One sentence.
        fewest: Words that it needs after its own.
        do: Does it, with these words.
        most: Words that it takes.
    """

    usage: str
    meaning: str
    fewest: int
    do: Callable[[Words], Awaitable[None]]
    most: int = _MANY


class ShellRuntimes:
    """The runtimes of a shell.

    Args:
        lab: Whose nodes they connect to.
        nursery: Holds their sessions.
        show: Takes each line that is to be shown.
    """

    def __init__(self, lab: KeptLab, nursery: trio.Nursery, show: Show) -> None:
        self._lab = lab
        self._nursery = nursery
        self._show = show
        self._talkers: dict[str, Talker] = {}
        self._opened = 0

    @property
    def commands(self) -> list[Command]:
        """The commands that it takes."""
        return [
            Command("open NAME [DOMAIN]", "opens a runtime with a hyperty, or a dropped one again", 1, self.open, 2),
            Command("close NAME", "closes its session", 1, self.close, 1),
            Command("drop NAME", "lets its connection go without a word", 1, self.drop, 1),
            Command("who", "shows the runtimes", 0, self.who, 0),
            Command("ask NAME TO TEXT", "sends a request; TO is a NAME, or an address", 3, self.ask),
            Command("write NAME TO TEXT", "sends an event", 3, self.write),
            Command("send NAME TYPE TO [JSON]", "sends any request, with this body", 3, self.send, 4),
        ]

    async def who(self, _words: Words) -> None:
        """Show the runtimes."""
        for name, talker in self._talkers.items():
            self._show(f"{name}: {talker.hyperty} of {talker.client.runtime}, has heard {len(talker.heard)}")

    async def open(self, words: Words) -> None:
        """Open a runtime with a hyperty, or one again that was dropped."""
        name = words[0]
        domain = words[1] if len(words) > 1 else self._lab.domains[0]
        talker = self._talkers.get(name)
        if talker is None:
            if domain not in self._lab.domains:
                raise UnusableLineError(f"there is no domain {domain}; there are {', '.join(self._lab.domains)}")
            runtime = f"runtime://{domain}/{name}-{token_hex(4)}"
            talker = Talker(self._lab.access_point(domain, self._opened), runtime)
            self._opened += 1
            self._nursery.start_soon(self._listen, name, talker)
        elif not talker.client.closed.is_set():
            raise UnusableLineError(f"{name} is open; take another name, or `drop {name}` first")
        try:
            await talker.open(self._nursery)
        except* UnexpectedAnswerError:  # its session is gone: the next `open` makes another one
            self._talkers.pop(name, None)
            raise
        self._talkers[name] = talker
        self._show(f"{name}: {talker.hyperty}")

    async def _listen(self, name: str, talker: Talker) -> None:
        shown: list[Incoming] = []
        while True:
            await talker.wait_for(lambda: len(talker.heard) > len(shown), seconds=math.inf)
            for message in talker.heard[len(shown) :]:
                self._show(f"  {name} hears {self._message(message)}")
                shown.append(message)

    def _message(self, message: Incoming) -> str:
        names = {one.hyperty: name for name, one in self._talkers.items()}
        return f"{message.type} from {names.get(message.from_, message.from_)}: {_text(dict(message.body))}"

    async def close(self, words: Words) -> None:
        """Close the session of a runtime."""
        await self._talker(words[0]).client.close()
        del self._talkers[words[0]]

    async def drop(self, words: Words) -> None:
        """Let the connection of a runtime go without a word."""
        self._talker(words[0]).client.drop()

    async def ask(self, words: Words) -> None:
        """Send a request, and show its answer."""
        talker = self._talker(words[0])
        body = {"value": " ".join(words[2:])}
        self._answer(await talker.client.request("create", talker.hyperty, self._address(words[1]), body))

    async def write(self, words: Words) -> None:
        """Send an event."""
        talker = self._talker(words[0])
        await talker.client.notify("create", talker.hyperty, self._address(words[1]), {"value": " ".join(words[2:])})

    async def send(self, words: Words) -> None:
        """Send any request to any address."""
        talker, body = self._talker(words[0]), {}
        if len(words) > 3:
            try:
                body = msgspec.json.decode(words[3], type=dict[str, Any])
            except msgspec.DecodeError as exc:
                raise UnusableLineError(f"the body is no JSON object: {exc}") from exc
        self._answer(await talker.client.request(words[1], talker.hyperty, self._address(words[2]), body))

    def _answer(self, answer: Answer) -> None:
        rest = {name: value for name, value in answer.body.items() if name not in ("code", "reason", "desc")}
        reason = f" {answer.reason}" if answer.reason else ""
        self._show(f"{answer.code}{reason} after {answer.taken_ns / 1e6:.1f} ms: {_text(rest)}")

    async def leave(self) -> None:
        """Close all sessions."""
        for talker in self._talkers.values():
            try:
                await talker.client.close()
            except TransportError:
                continue  # its node does not run, or it was dropped

    def _talker(self, name: str) -> Talker:
        talker = self._talkers.get(name)
        if talker is None:
            raise UnusableLineError(f"there is no runtime {name}; `open {name} {self._lab.domains[0]}` makes one")
        return talker

    def _address(self, word: str) -> str:
        """The hyperty of a runtime of this shell, or an address as it is."""
        talker = self._talkers.get(word)
        if talker is None and ":" not in word:
            raise UnusableLineError(f"{word}: no runtime of this shell, and no address")
        return word if talker is None else talker.hyperty


class ShellNodes:
    """The nodes of a shell's laboratory."""

    def __init__(self, lab: KeptLab, show: Show) -> None:
        self._lab = lab
        self._show = show

    @property
    def commands(self) -> list[Command]:
        """The commands that it takes."""
        return [
            Command("status", "shows the nodes, and their links", 0, self.status, 0),
            Command("stop NODE", "ends a node in order; NODE is a domain, or as `status` shows it", 1, self.stop, 1),
            Command("kill NODE", "kills it", 1, self.kill, 1),
            Command("start", "starts what does not run", 0, self.start, 0),
            Command("node NODE COMMAND", "a command of `trapezoid node`: `node a.example links`", 2, self.node),
        ]

    async def status(self, _words: Words) -> None:
        """Show the nodes."""
        for one in await self._lab.states():
            links = ", ".join(f"{domain} {state}" for domain, state in one.links.items())
            self._show(f"{one.domain}: {one.state}{f', links: {links}' if links else ''}")

    async def stop(self, words: Words) -> None:
        """End a node in order."""
        end = partial(self._lab.node(words[0]).end, seconds=STOP_SECONDS)
        self._show(f"{words[0]}: {await trio.to_thread.run_sync(end)}")

    async def kill(self, words: Words) -> None:
        """Kill a node."""
        self._show(f"{words[0]}: {await trio.to_thread.run_sync(self._lab.node(words[0]).kill)}")

    async def start(self, _words: Words) -> None:
        """Start what does not run, and have it reach all others."""
        started = await self._lab.up(lambda done: self._show(f"{done.taken_ms:8.0f} ms  {done.title}"))
        for one in await self._lab.exchange(started):
            self._show(f"{one.source} asks {one.target}: {one.code} {one.problem}".rstrip())

    async def node(self, words: Words) -> None:
        """Give a command of an operator to a node."""
        settings = self._lab.settings_of(words[0])
        command = [sys.executable, "-m", "trapezoid", "node", *words[1:], "--config", settings]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        for line in (done.stdout + done.stderr).decode(errors="replace").splitlines():
            self._show(line)
        if done.returncode:
            raise UnusableLineError(f"exit code {done.returncode}")


class LabShell:
    """One sitting at a laboratory.

    Args:
        lab: It need not run.
        nursery: Holds the sessions of runtimes.
        show: Takes each line that is to be shown.

    Attributes:
        failed: How many lines could not be done.
        is_over: `quit` was said.
    """

    def __init__(self, lab: KeptLab, nursery: trio.Nursery, show: Show) -> None:
        self.failed = 0
        self.is_over = False
        self.runtimes = ShellRuntimes(lab, nursery, show)
        self._show = show
        own = [
            Command("help", "shows this", 0, self.help, 0),
            Command("wait SECONDS", "waits", 1, self.wait, 1),
            Command("quit", "leaves; the laboratory goes on", 0, self.quit, 0),
        ]
        commands = [own[0], *ShellNodes(lab, show).commands, *self.runtimes.commands, *own[1:]]
        self._commands = {one.usage.partition(" ")[0]: one for one in commands}

    async def do(self, line: str) -> None:
        """Do what one line says, or show why not."""
        try:
            words = shlex.split(line, comments=True)
            if words:
                await self._do(words)
        except* (UnusableLineError, ValueError, UnexpectedAnswerError, HostError) as group:
            self.failed += 1
            for exc in leaves(group):
                self._show(f"error: {exc}")

    async def _do(self, words: Words) -> None:
        command = self._commands.get(words[0])
        if command is None:
            raise UnusableLineError(f"{words[0]}: there are {', '.join(self._commands)}")
        if not command.fewest <= len(words) - 1 <= command.most:
            raise UnusableLineError(f"usage: {command.usage}")
        await command.do(words[1:])

    async def help(self, _words: Words) -> None:
        """Show all commands."""
        width = max(len(one.usage) for one in self._commands.values())
        for one in self._commands.values():
            self._show(f"{one.usage:{width}}  {one.meaning}")

    async def wait(self, words: Words) -> None:
        """Wait."""
        seconds = float(words[0])
        if not 0 <= seconds <= MOST_WAIT_SECONDS:
            raise UnusableLineError(f"0 to {MOST_WAIT_SECONDS:g} seconds")
        await trio.sleep(seconds)

    async def quit(self, _words: Words) -> None:
        """Leave; the laboratory goes on."""
        self.is_over = True


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """The single errors of a group, however deep they are."""
    for one in group.exceptions:
        yield from leaves(one) if isinstance(one, BaseExceptionGroup) else (one,)


def _text(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


async def run_shell(lab: KeptLab, read_line: ReadLine, show: Show) -> int:
    """Do what lines say until there are no more.

    Returns:
        How many could not be done.
    """
    async with trio.open_nursery() as nursery:
        shell = LabShell(lab, nursery, show)
        while not shell.is_over and (line := await trio.to_thread.run_sync(read_line, abandon_on_cancel=True)):
            await shell.do(line)
        await shell.runtimes.leave()
        nursery.cancel_scope.cancel()
    return shell.failed
