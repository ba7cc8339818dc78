"""The entry point of the `trapezoid` program.

`serve` runs without the command-line library. All other commands are in `trapezoid.commands`, and import what they need
when they run, so that `--help` is fast.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command given in the arguments of the program."""
    # What is imported stays: to look through it for garbage again and again takes a sixth of a start.
    if sys.argv[1:2] == ["serve"]:
        gc.disable()  # until the node is built (`msg_node.process_tuning`)
        from trapezoid import serving

        serving.main(sys.argv[2:])
        return
    gc.set_threshold(200_000)
    from trapezoid.commands import app
    from trapezoid.log_output import escape_without_set_up

    escape_without_set_up()
    app()
