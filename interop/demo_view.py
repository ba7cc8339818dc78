"""The demo on a terminal: what happens while it happens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from interop.domain_folders import Preparation
from interop.group_chat import ChatStep
from interop.ledger import Ledger
from interop.participant import CHAT
from protofly.printable import escaped

_REFRESH_PER_SECOND: Final = 10
TITLE: Final = "The trapezoid: two domains, two nodes, one foreign stub in a sandbox"


class DemoView:
    """Prints each finished step once, and keeps what is going on below; without a terminal only the former."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._ledger: Ledger | None = None
        self._doing = "starting"
        self._steps = 0
        self._began = time.monotonic()
        self._live = Live(
            get_renderable=self._current,
            console=console,
            refresh_per_second=_REFRESH_PER_SECOND,
            transient=True,
            auto_refresh=console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._console.rule(f"[bold]{TITLE}")
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def doing(self, what: str) -> None:
        """Say what goes on from now on."""
        self._doing = what
        self._steps += 1

    @property
    def at(self) -> str:
        """The words that `doing` was last called with."""
        return self._doing

    def progress(self) -> tuple[int, int, int]:
        """Finished steps, and messages sent and delivered: another value whenever something has moved."""
        totals = Ledger().totals() if self._ledger is None else self._ledger.totals()
        return self._steps, totals.sent, totals.delivered

    def watch(self, ledger: Ledger) -> None:
        """Show the progress of this ledger."""
        self._ledger = ledger

    def prepared(self, done: Preparation) -> None:
        """One preparation is finished."""
        self._line("[dim]set-up[/]", done.title, "", done.taken_ms)

    def stepped(self, step: ChatStep) -> None:
        """One step of the conversation is finished."""
        self._line("[green]✓[/]", step.title, step.detail, step.taken_ms)

    def note(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text)

    def _line(self, mark: str, title: str, detail: str, taken_ms: float) -> None:
        self._steps += 1
        said = f"{escape(escaped(title))} [dim]{escape(escaped(detail))}[/]"
        self._console.print(f"{mark} {said}  [cyan]{shown_ms(taken_ms)}[/]", highlight=False)

    def _current(self) -> RenderableType:
        seconds = time.monotonic() - self._began
        parts: list[RenderableType] = [Spinner("dots", text=f"{self._doing}  [dim]{seconds:.0f} s[/]")]
        if self._ledger is not None:
            parts.append(self._progress(self._ledger))
        return Group(*parts)

    @staticmethod
    def _progress(ledger: Ledger) -> RenderableType:
        progress = Progress(TextColumn("  {task.description}"), BarColumn(30), MofNCompleteColumn())
        for flow in ledger.flows:
            if flow.subject == CHAT and flow.crosses and flow.due:
                total = max(flow.sent, 1)
                progress.add_task(f"{flow.speaker} ▸ {flow.receiver}", total=total, completed=flow.delivered)
        return progress


def shown_ms(milliseconds: float) -> str:
    """A time for people: µs, ms or s."""
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def trapezoid_picture(domains: tuple[str, str], pids: Mapping[str, int], worker: int | None) -> RenderableType:
    """The picture of the specification, with the processes that stand for its corners."""
    first, second = domains
    grid = Table.grid(padding=(0, 0))
    for justify in ("center", "center", "center"):
        grid.add_column(justify=justify)
    node = "bold white on blue"
    grid.add_row(
        Text.assemble((f" MN-A  {first} ", node), f"\npid {pids.get(first, '–')} · gate in · gate out"),
        Text.assemble(
            " ══▶ ",
            ("[ StubB: code of ", "yellow"),
            (second, "bold yellow"),
            (" ]", "yellow"),
            " ══ TLS ══▶ \n",
            (f"sandbox worker, pid {worker or '–'}", "yellow"),
        ),
        Text.assemble((f" MN-B  {second} ", node), f"\npid {pids.get(second, '–')} · gate in · gate out"),
    )
    grid.add_row("╱ wss", "", "wss ╲")
    grid.add_row(Text(" RuntimeA ", "bold black on green"), "", Text(" RuntimeB ", "bold black on green"))
    return grid
