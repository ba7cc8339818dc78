"""Commands of `trapezoid` that laboratories run: in this process, which has them loaded, instead of one for each."""

from __future__ import annotations

import trio
from typer.testing import CliRunner

from protofly.errors import SettingsError

_ONE = trio.CapacityLimiter(1)


async def command_here(*arguments: str) -> str:
    """Run one command and return what it prints, as `interop.domain_folders.command` does.

    Raises:
        SettingsError: It failed.
    """
    from trapezoid.commands import app

    # In a thread, because a command may run a loop of its own; one at a time, because it writes to the output of all.
    done = await trio.to_thread.run_sync(CliRunner().invoke, app, arguments, limiter=_ONE)
    if done.exit_code:
        raise SettingsError(f"trapezoid {' '.join(arguments)}: exit status {done.exit_code}: {done.output.strip()}")
    return done.stdout
