"""`trapezoid demo`: two domains as separate processes play a group chat through a verified, sandboxed stub.

The demo is a test that shows itself: it exits with 1 when anything was lost, doubled, reordered, changed or wrongly
refused, with 2 when it could not run.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console

from interop.demo_report import show_report
from interop.demo_view import DemoView
from interop.group_chat import GroupChat
from interop.laboratory import POLICIES, Laboratory, LaboratoryPlan
from interop.node_status import NodeStatus
from interop.patience import end_without_progress
from interop.processes import leaves, stop_on_sigterm
from interop.runtime_client import RuntimeClient, UnexpectedAnswerError
from interop.scene import Scene, load_scene
from interop.summary import PassedHop, Summary, WarmContact, first_link, passed_hops, summarise
from protofly.errors import Code, HostError, SettingsError, TransportError

SCENE_FILE: Final = POLICIES / "group_chat.toml"
DEMO_SECONDS: Final = 55.0
"""The demo gives up when nothing has moved for so long, where the machine has a processor for it; see `Patience`."""
_EXPECTED = (HostError, UnexpectedAnswerError, OSError)


def run(
    *,
    json_output: bool = False,
    keep: bool = False,
    fresh: bool = False,
    state_dir: Path | None = None,
    scene_file: Path | None = None,
) -> int:
    """Run the demo.

    Args:
        json_output: Print the summary as one JSON object on standard output; the view goes to standard error.
        keep: Leave the nodes running afterwards, until Ctrl-C, and print how to connect.
        fresh: Delete keys, trust marks and caches of earlier runs first.
        state_dir: Where those are kept; default: in the user's cache folder.
        scene_file: Another conversation.

    Returns:
        Exit status: 0 faultless, 1 something was lost or differs, 2 the demo could not run.
    """
    console = Console(stderr=json_output)
    folder = (state_dir or default_state_dir()).absolute()
    try:
        scene = load_scene(scene_file or SCENE_FILE)
        if fresh:
            _delete(folder)
        return trio.run(_Demo(scene, folder, console, json_output=json_output, keep=keep).run)
    except* _EXPECTED as group:
        for error in leaves(group):
            console.print(f"✗ {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    except* KeyboardInterrupt:
        console.print("stopped")
    return 2


def default_state_dir() -> Path:
    """Folder in which the demo keeps keys, trust marks and caches between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trapezoid" / "demo"


class _Demo:
    """One run."""

    def __init__(self, scene: Scene, folder: Path, console: Console, *, json_output: bool, keep: bool) -> None:
        [self._first, self._second] = scene.domains[:2]
        self._scene = scene
        self._console = console
        self._json_output = json_output
        self._keep = keep
        self._view = DemoView(console)
        # One domain knows the other's keys beforehand (`pinned`), the other believes the web's certificates (`web`).
        plan = LaboratoryPlan(state_dir=folder, domains=(self._first, self._second), pinned=frozenset({self._first}))
        self._laboratory = Laboratory(plan, on_prepared=self._view.prepared)

    async def run(self) -> int:
        """Prepare, play, restart for the warm contact, report."""
        summary: Summary | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_sigterm, nursery.cancel_scope)
            with trio.CancelScope() as limit:
                nursery.start_soon(lambda: end_without_progress(limit, self._view.progress, seconds=DEMO_SECONDS))
                with self._view:
                    summary, nodes, hops = await self._perform(nursery)
            if limit.cancelled_caught:
                nursery.cancel_scope.cancel()
                detail = f"the demo stood still for {DEMO_SECONDS:.0f} s, in: {self._view.at}"
                raise TransportError(Code.GATEWAY_TIMEOUT, detail)
            assert summary is not None
            self._report(summary, nodes, hops)
            if self._keep:
                await self._stay()
            nursery.cancel_scope.cancel()
        if summary is None:
            raise KeyboardInterrupt  # terminated: the nodes are stopped, and there is nothing to report
        return 0 if summary.ok else 1

    async def _perform(self, nursery: trio.Nursery) -> tuple[Summary, dict[str, NodeStatus], list[PassedHop]]:
        laboratory, view = self._laboratory, self._view
        view.doing("making two domains")
        await nursery.start(laboratory.run)
        if laboratory.was_used_before:
            view.note("[dim]keys, trust marks and stubs caches of an earlier run are used; --fresh starts anew[/]")
        chat = GroupChat(self._scene, laboratory.access_points, trace=uuid.uuid4().hex, on_step=view.stepped)
        view.doing(self._scene.title)
        view.watch(chat.ledger)
        await chat.run()
        nodes = await laboratory.statuses()
        view.doing("both nodes are restarted: contact with warm caches")
        warm = await self._contact_again()
        hops = passed_hops(chat.traced, nodes) if chat.traced else []
        return summarise(chat, nodes, warm), nodes, hops

    async def _contact_again(self) -> WarmContact:
        """Stop and start both nodes, then let one runtime look somebody up in the other domain."""
        laboratory = self._laboratory
        await laboratory.stop_nodes()
        await laboratory.start_nodes()
        seeker = self._scene.reporter
        sought = next(person for person in self._scene.person if person.domain != seeker.domain)
        access_point = laboratory.access_points[seeker.domain]
        client = RuntimeClient(
            url=access_point.url,
            runtime=f"{seeker.runtime}-again",
            ssl_context=access_point.ssl_context,
            on_message=lambda _: None,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            body = {"resource": f"/hyperty/user/{sought.user}"}
            answer = await client.request(
                "read", f"{client.runtime}/discovery", f"domain://registry.{sought.domain}", body
            )
            await client.close()
            nursery.cancel_scope.cancel()
        if answer.code not in {200, 404, 408}:  # found, or known to be gone: both are an answer of the other domain
            raise UnexpectedAnswerError("contact after restart", answer)
        nodes = await laboratory.statuses()
        return WarmContact(taken_ns=answer.taken_ns, link=first_link(nodes))

    def _report(self, summary: Summary, nodes: dict[str, NodeStatus], hops: list[PassedHop]) -> None:
        show_report(
            self._console,
            domains=(self._first, self._second),
            summary=summary,
            link=first_link(nodes),
            hops=hops,
            state_dir=self._laboratory.plan.state_dir,
        )
        if self._json_output:
            sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
            sys.stdout.flush()

    async def _stay(self) -> None:
        folder = self._laboratory.plan.state_dir
        self._console.print("\n[bold]Both nodes keep running.[/] Ctrl-C stops them.")
        for domain, node in self._laboratory.nodes.items():
            self._console.print(
                f"  {domain}: runtimes connect to [cyan]{node.access_point.url}[/] (dialect A, subprotocol none)"
            )
            self._console.print(
                f"    status: [cyan]{node.status_url}[/]   settings: {node.folder.settings}", soft_wrap=True
            )
        self._console.print(
            f"  certificate authority to believe: {folder / 'authority' / 'development-ca.pem'}", soft_wrap=True
        )
        self._console.print(
            '  first message: {"id":1,"type":"open","from":"runtime://' + self._first + '/rt-me","to":"mn:/session"}',
            markup=False,
        )
        await trio.sleep_forever()


def _delete(folder: Path) -> None:
    """Delete a state folder, but never one that is not ours.

    Raises:
        SettingsError: the folder holds something else.
    """
    if not folder.exists():
        return
    if not (folder / "lock").exists() and any(folder.iterdir()):
        raise SettingsError(f"{folder} is not a folder of the demo, so it is not deleted; name another one")
    shutil.rmtree(folder)
