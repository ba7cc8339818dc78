"""`python -m benchmarks [--quick] [--only PART] [--json FILE]`: the same as `trapezoid bench`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.suite import Part, run


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure the whole trapezoid beside its parts, and one domain.")
    parser.add_argument("--quick", action="store_true", help="short runs, done within a minute")
    parser.add_argument("--only", choices=[part.value for part in Part], help="one of the two tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON; - for standard output")
    parser.add_argument("--state", type=Path, metavar="DIR", help="where keys, certificates and caches are kept")
    arguments = parser.parse_args()
    parts = frozenset({Part(arguments.only)} if arguments.only else Part)
    return run(quick=arguments.quick, json_file=arguments.json, state_dir=arguments.state, parts=parts)


if __name__ == "__main__":
    sys.exit(main())
