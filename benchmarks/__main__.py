"""`python -m benchmarks [--quick] [--only PART | --peers] [--json FILE]`, which `./run bench` runs.

`--only pipeline` measures the data pipeline, `--only stubs` stubs of each language, and `--only operations` what
operators cost the messages of others, which are no part of the other tables: see the modules of these names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.suite import USUAL, Part, run

_PIPELINE = "pipeline"
_STUBS = "stubs"
_OPERATIONS = "operations"


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure the whole trapezoid beside its parts, and one domain.")
    parser.add_argument("--quick", action="store_true", help="short runs, a few minutes at most")
    parser.add_argument(
        "--only", choices=[*(part.value for part in Part), _PIPELINE, _STUBS, _OPERATIONS], help="one of the tables"
    )
    parser.add_argument(
        "--peers", action="store_true", help="beside brokers, an XMPP server and relays; the same as --only peers"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON; - for standard output")
    parser.add_argument("--state", type=Path, metavar="DIR", help="where keys, certificates and caches are kept")
    parser.add_argument("--rows", type=int, default=2_000_000, help="with --only pipeline: messages")
    arguments = parser.parse_args()
    if arguments.only == _PIPELINE:
        from benchmarks.pipeline.__main__ import main as measure_pipeline

        rows = 200_000 if arguments.quick else arguments.rows
        return measure_pipeline([f"--rows={rows}", *([f"--json={arguments.json}"] if arguments.json else [])])
    if arguments.only == _STUBS:
        from benchmarks.stubs.__main__ import main as measure_stubs

        messages = 100_000 if arguments.quick else 1_000_000
        return measure_stubs([f"--messages={messages}", *([f"--json={arguments.json}"] if arguments.json else [])])
    if arguments.only == _OPERATIONS:
        from benchmarks.operations import main as measure_operations

        quick = ["--quick"] if arguments.quick else []
        return measure_operations([*quick, *([f"--json={arguments.json}"] if arguments.json else [])])
    only = Part.PEERS if arguments.peers else arguments.only
    parts = frozenset({Part(only)}) if only else USUAL
    return run(quick=arguments.quick, json_file=arguments.json, state_dir=arguments.state, parts=parts)


if __name__ == "__main__":
    sys.exit(main())
