"""The `trapezoid` program.

`main` is the entry point. It sends `serve` on its way without loading the command-line library; all other commands are
in `trapezoid.commands` and import what they need when they run, so that help is quick.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the program's arguments name."""
    if sys.argv[1:2] == ["serve"]:
        from trapezoid import serving

        serving.main(sys.argv[2:])
        return
    from trapezoid.commands import app
    from trapezoid.log_output import escape_without_set_up

    escape_without_set_up()
    app()
