"""What operations of the admin service cost the messages of others: `./run bench --only operations`.

One pair sends at a steady rate from a.example to b.example. Turns without operations and turns with them follow each
other, so that what else the machine does meets both alike. In a turn with operations the sending node is asked for all
of them, one after the other over its socket, twenty a second: all that see, and all that change something, of a domain
and of runtimes that have no part in the traffic. A further turn changes files before each `reload`: certificate of the
listener and the site, peers, lists, policies. Another turn has operations that are about the very link of the pair,
of which only loss, order and repetition are judged: they are meant to interrupt it. Last of all the sending node is
stopped under that load: what it took arrives, or its exit status and its log say how much is lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import trio
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.drain import Drained, drain_under_load
from benchmarks.plan import median_of
from benchmarks.sides import Load, Run
from benchmarks.turns import FIRST, WARM_UP
from benchmarks.variants import DOMAINS, TrapezoidVariant
from interop.laboratory import Laboratory
from msg_node.admin.admin_socket import SOCKET_NAME, short_path
from msg_node.admin.core.operations import OPERATIONS
from stubkit.keys import KeyRing, make_key, save_keys

RATE: Final = 5000.0
QUICK_RATE: Final = 1000.0
PAUSE_SECONDS: Final = 0.05
AIMED_PAUSE_SECONDS: Final = 0.5
"""Between operations about the link itself: it has to be up again in between."""
MORE_TURNS: Final = 10
"""So many more turns reach the operations that were chosen, on a machine that has much else to do."""
P99_RATIO: Final = 1.2
_ANSWER_BYTES: Final = 16 << 20
_NOBODY: Final = "runtime://a.example/nobody"
_OTHER: Final = "c.example"
_POLICY: Final = 'id = "bench"\ntarget = { hook = { equals = "peer" } }\n[[rules]]\nid = "none"\neffect = "deny"\n' + (
    'condition = { dstDomain = { equals = "d.example" } }\n'
)

_USERS: Final = "\n[identity.tokens]\nkeys_dir = {keys}\n[identity.passwords]\n"

BESIDE: Final[Mapping[str, dict[str, Any]]] = {
    "partner": {"domain": DOMAINS[1]},
    "denials": {"domain": DOMAINS[1]},
    "records": {"since": 0.0, "id": "none"},
    "evaluate": {"from": _NOBODY, "to": f"hyperty://{DOMAINS[1]}/h", "type": "create"},
    "recording start": {"for": 1.0, "from": _NOBODY},
    "peer check": {"domain": _OTHER},
    "peer ping": {"domain": DOMAINS[1]},
    "quarantine show": {"message": "local/none.json"},
    "quarantine release": {"message": "local/none.json"},
    "quarantine delete": {"message": "local/none.json"},
    "policy confirm": {"proposal": "none"},
    "policy withdraw": {"proposal": "none"},
    "peer block": {"domain": _OTHER, "for": 60.0, "reason": "a benchmark"},
    "peer unblock": {"domain": _OTHER},
    "peer retrust": {"domain": _OTHER, "fingerprint": "A" * 43},
    "peer forget": {"domain": _OTHER},
    "peer connect": {"domain": DOMAINS[1]},
    "peer close": {"domain": _OTHER},
    "peer refresh": {"domain": _OTHER},
    "kick": {"runtime": _NOBODY, "ban": 60.0},
    "unban": {"runtime": _NOBODY},
    "erase": {"person": f"user://{DOMAINS[0]}/nobody"},
    "gate set": {"from": _OTHER, "to": DOMAINS[0], "for": 60.0, "reason": "a benchmark"},
    "gate unset": {"from": _OTHER, "to": DOMAINS[0]},
    "stub drain": {"domain": _OTHER},
    "stub restart": {"domain": _OTHER},
    "stub forbid": {"module": "0" * 64, "for": 60.0},
    "stub allow": {"module": "0" * 64},
    "stub pin": {"domain": _OTHER, "module": "0" * 64},
    "stub approve": {"domain": _OTHER},
    "stub roll-back": {"domain": _OTHER},
    "user add": {"name": "nobody", "password": "of a benchmark, 1"},
    "user change": {"name": "nobody", "roles": "operator"},
    "user password": {"name": "nobody", "password": "of a benchmark, 2"},
    "user disable": {"name": "nobody"},
    "user enable": {"name": "nobody"},
    "user remove": {"name": "nobody"},
    "client add": {"name": "bench", "kind": "service"},
    "client enrol": {"name": "bench-2", "kind": "device"},
    "client change": {"name": "bench", "roles": "operator"},
    "client token": {"name": "bench"},
    "client disable": {"name": "bench"},
    "client enable": {"name": "bench"},
    "client remove": {"name": "bench"},
    "policy add": {"files": {"bench.toml": _POLICY}, "note": "a benchmark"},
    "group create": {"group": "bench"},
    "group add": {"group": "bench", "member": _NOBODY},
    "group take": {"group": "bench", "member": _NOBODY},
    "group remove": {"group": "bench"},
    "log level": {"level": "info", "for": 60.0},
}
"""Arguments of operations that need some, about others than those that send."""
BUNDLES: Final = frozenset({"policy bundle", "policy activate", "policy roll-back", "policy remove"})
"""Operations on a bundle: they follow `policy add`, each with the bundle that it has made."""
SLOW: Final = "peer check"
"""It takes seconds, in a process of its own, so that it comes last."""
LEFT_OUT: Final = frozenset({"drain"})
"""It ends the traffic by what it is; beside messages only its dry run is asked for."""
AIMED: Final = ("peer refresh", "stub drain", "peer close", "stub restart", "reload")
"""Operations about the link that carries the messages."""


async def ask(data_dir: Path, operation: str, arguments: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Ask the node on a data folder for one operation; returns `result` or `error`."""
    request = {"operation": operation, "arguments": arguments, "dry_run": dry_run}
    with short_path(data_dir, SOCKET_NAME) as path:
        stream = await trio.open_unix_socket(str(path))
    async with stream:
        await stream.send_all(msgspec.json.encode(request) + b"\n")
        line = b""
        while not line.endswith(b"\n") and len(line) < _ANSWER_BYTES:
            line += await stream.receive_some()
    return msgspec.json.decode(line, type=dict[str, Any])


@dataclass(slots=True)
class Asked:
    """Results of operations: number begun, seconds of each that ended, codes of refused ones, the bundle added."""

    begun: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    bundle: str = ""

    async def ask(self, data_dir: Path, name: str, arguments: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
        """Ask for one operation, and take down what became of it; returns the answer."""
        began = trio.current_time()
        self.begun += 1
        answer = await ask(data_dir, name, arguments, dry_run=dry_run)
        self.seconds.setdefault(name, []).append(trio.current_time() - began)
        if "error" in answer:
            self.refused[name] = answer["error"]["code"]
        return answer

    def slowest(self) -> list[tuple[str, float]]:
        """Names with their longest time, longest first."""
        return sorted(((name, max(times)) for name, times in self.seconds.items()), key=lambda one: -one[1])


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of turn: medians over rounds, losses summed."""

    name: str
    messages_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    lost: int
    duplicated: int
    reordered: int
    operations: int
    p99_ratio: float | None = None


def plan() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name, arguments and whether it is a dry run, of every operation once; what follows another one comes after it."""
    for name in OPERATIONS:
        if name not in BUNDLES and name != SLOW:
            yield name, dict(BESIDE.get(name, {})), name in LEFT_OUT
    for name in ("policy bundle", "policy activate", "policy roll-back", "policy remove"):
        yield name, {}, False
    yield SLOW, dict(BESIDE[SLOW]), False


async def _ask_on(
    data_dir: Path, operations: Iterator[tuple[str, dict[str, Any], bool]], pause_seconds: float, asked: Asked
) -> None:
    """Go on with operations, which have no end, until cancelled."""
    in_force = (data_dir.parent / "policy.toml").read_text(encoding="utf-8")
    for name, given, dry_run in operations:
        arguments = {**given, "bundle": asked.bundle} if name in BUNDLES - {"policy roll-back"} else given
        if name == "policy add":  # what lets the messages pass has to be in the bundle too
            arguments = {**given, "files": {"policy.toml": in_force, **given["files"]}}
        answer = await asked.ask(data_dir, name, arguments, dry_run=dry_run)
        if name == "policy add" and "result" in answer:
            asked.bundle = answer["result"]["after"]["bundle"]
        await trio.sleep(pause_seconds)


async def _reload_on(variant: TrapezoidVariant, asked: Asked) -> None:
    """Change files of the sending node and have it read them, again and again until cancelled."""
    folder = variant.laboratory.nodes[DOMAINS[0]].folder
    text, policy = (path.read_text(encoding="utf-8") for path in (folder.settings, folder.policy))
    try:
        for number in itertools.count(1):
            peer = f'\n[[peer]]\ndomain = "p{number % 7}.example"\nmessages_per_second = {1 + number % 5}\n'
            lists = f'[policy]\ndeny = ["d{number % 3}.example"]'
            folder.settings.write_text(text.replace("[policy]", lists, 1) + peer, encoding="utf-8")
            folder.policy.write_text(f"{policy}\n# change {number}\n", encoding="utf-8")
            renew_certificate(variant.laboratory, DOMAINS[0])
            await asked.ask(folder.data, "reload", {}, dry_run=False)
            await trio.sleep(PAUSE_SECONDS)
    finally:
        folder.settings.write_text(text, encoding="utf-8")
        folder.policy.write_text(policy, encoding="utf-8")


def renew_certificate(laboratory: Laboratory, domain: str) -> None:
    """Replace the certificate of a domain and its key by new ones of the same authority."""
    assert laboratory.authority is not None
    for file in laboratory.authority.certificate_for(domain):
        file.unlink()
    laboratory.authority.certificate_for(domain)


async def _give_users(laboratory: Laboratory) -> None:
    """Start the sending node again with local users, so that their operations are measured too."""
    node = laboratory.nodes[DOMAINS[0]]
    await node.stop()
    keys = node.folder.keys.with_name("token-keys")
    save_keys(KeyRing(token=(make_key("token"),)), keys, domain=node.domain)
    with node.folder.settings.open("a", encoding="utf-8") as settings:
        settings.write(_USERS.format(keys=json.dumps(str(keys))))
    await node.start(laboratory.plan.serve, laboratory.plan.environment)


async def _turn(
    variant: TrapezoidVariant, load: Load, beside: Callable[[Asked], Awaitable[None]] | None, asked: Asked
) -> Run:
    """One run of the pair, with something `beside` it that goes on until the run is over."""
    pair = await variant.pair(1)
    async with trio.open_nursery() as nursery:
        if beside is not None:
            nursery.start_soon(beside, asked)
        run = await pair.run(load, variant.pids())
        nursery.cancel_scope.cancel()
    return run


async def measure(folder: Path, load: Load, operations: Sequence[str], rounds: int) -> tuple[list[Row], Asked, float]:
    """Measure all turns; returns their rows, what became of the operations, and processors that others used.

    Args:
        folder: For the files of both nodes.
        load: What is sent in each turn.
        operations: The only ones to ask for, each at least once, in further turns if need be; none: all, as far as
            they are reached.
        rounds: Turns of each kind.
    """
    chosen = itertools.cycle([one for one in plan() if not operations or one[0] in operations])
    about = itertools.cycle([(name, {} if name == "reload" else {"domain": DOMAINS[1]}, False) for name in AIMED])
    variant = TrapezoidVariant("operations", folder, tls=True, is_bare=False)
    quiet: list[Run] = []
    busy: list[Run] = []
    changed: list[Run] = []
    beside, reloads, aimed = Asked(), Asked(), Asked()
    async with trio.open_nursery() as nursery:
        await nursery.start(variant.run)
        await _give_users(variant.laboratory)
        pair = await variant.pair(1)
        for first in (FIRST, WARM_UP):
            await pair.run(first, variant.pids())
        data = variant.laboratory.nodes[DOMAINS[0]].folder.data
        for _ in range(rounds):
            quiet.append(await _turn(variant, load, None, Asked()))
            busy.append(await _turn(variant, load, partial(_ask_on, data, chosen, PAUSE_SECONDS), beside))
            changed.append(await _turn(variant, load, partial(_reload_on, variant), reloads))
        while set(operations) - beside.seconds.keys() and len(busy) < rounds + MORE_TURNS:
            busy.append(await _turn(variant, load, partial(_ask_on, data, chosen, PAUSE_SECONDS), beside))
        hit = [await _turn(variant, load, partial(_ask_on, data, about, AIMED_PAUSE_SECONDS), aimed)]
        drained = await drain_under_load(variant, load)
        nursery.cancel_scope.cancel()
    alone = _row("without operations", quiet, Asked())
    rows = [_row("with operations", busy, beside), _row("reload of changed files", changed, reloads)]
    if alone.p99_ms is not None:
        bar = alone.p99_ms
        rows = [msgspec.structs.replace(row, p99_ratio=round((row.p99_ms or 0.0) / bar, 2)) for row in rows]
    foreign = max(run.foreign_cores for run in (*quiet, *busy))
    asked = Asked(beside.begun, beside.seconds, beside.refused | reloads.refused | aimed.refused)
    return [alone, *rows, _row("about the link itself", hit, aimed), _drained_row(drained)], asked, foreign


def _row(name: str, runs: Sequence[Run], asked: Asked) -> Row:
    return Row(
        name=name,
        messages_per_second=median_of([run.messages_per_second for run in runs]),
        p50_ms=median_of([run.p50_ms for run in runs]),
        p99_ms=median_of([run.p99_ms for run in runs]),
        lost=sum(run.lost + run.refused for run in runs),
        duplicated=sum(run.duplicated for run in runs),
        reordered=sum(run.reordered for run in runs),
        operations=asked.begun,
    )


def _drained_row(drained: Drained) -> Row:
    """`lost` is what is lost without exit status and log saying so."""
    said = f"{drained.said_lost} said to be lost" if drained.said_lost else "none lost"
    return Row(
        name=f"stop under load: exit status {drained.exit_status}, {drained.taken:,} taken, {said}",
        messages_per_second=None,
        p50_ms=None,
        p99_ms=None,
        lost=drained.unsaid,
        duplicated=drained.duplicated,
        reordered=drained.reordered,
        operations=1,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and show; exit status 1 when a message was lost, duplicated or reordered."""
    parser = argparse.ArgumentParser(description="Measure what admin operations cost the messages of others.")
    parser.add_argument("--quick", action="store_true", help="1,000 messages a second and short turns")
    parser.add_argument("--rate", type=float, help="messages a second")
    parser.add_argument("--operation", action="append", choices=list(OPERATIONS), help="only this one; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    given = parser.parse_args(arguments)
    rate = given.rate or (QUICK_RATE if given.quick else RATE)
    load = Load(count=int(rate * (4 if given.quick else 10)), rate=rate, body_bytes=200)
    with tempfile.TemporaryDirectory() as folder:
        rows, asked, foreign = trio.run(measure, Path(folder), load, given.operation or [], 3 if given.quick else 5)
    _show(Console(), rows, asked, foreign)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    return 1 if any(row.lost or row.duplicated or row.reordered for row in rows) else 0


def _show(console: Console, rows: Sequence[Row], asked: Asked, foreign: float) -> None:
    names = ("turn", "msg/s", "p50 ms", "p99 ms", "×", "lost", "double", "reordered", "asked")
    table = Table(*names, box=box.SIMPLE)
    for row in rows:
        figures = (row.messages_per_second, row.p50_ms, row.p99_ms, row.p99_ratio)
        counts = (row.lost, row.duplicated, row.reordered, row.operations)
        table.add_row(row.name, *("" if one is None else f"{one:,g}" for one in figures), *map(str, counts))
    console.print(table)
    slowest = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in asked.slowest()[:5])
    console.print(f"slowest: {slowest}", highlight=False)
    refused = ", ".join(f"{name} ({code})" for name, code in sorted(asked.refused.items()))
    console.print(f"refused, as there is nothing to do it to: {refused or 'none'}", highlight=False)
    left = [name for name in OPERATIONS if name not in asked.seconds]
    console.print(f"not reached: {', '.join(left) or 'none'}", highlight=False)
    ratio = rows[1].p99_ratio
    if ratio is not None:
        mark = "[green]✓[/]" if ratio <= P99_RATIO else "[yellow]![/]"
        console.print(f"{mark} p99 beside operations: ×{ratio:g} (bar ×{P99_RATIO:g})")
    console.print(f"others used {foreign:.2f} processors", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
