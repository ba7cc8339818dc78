"""`./run fuzz [--seconds N] [TARGET…]`: every target in turn under the coverage-guided fuzzer, in bounded runs.

What breaks a promise is kept in a folder outside the tree, and printed as a line for `test_found.py`. Exit status: 0
when every promise held, 1 when one did not, 2 for a target that there is not.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.fuzz.target import INPUT_BYTES, Target
from tests.fuzz.targets import TARGETS

SLOW_SECONDS: Final = 10
"""An input that takes so long is a finding."""
MEMORY_MEBIBYTES: Final = 2048
_MARGIN_SECONDS: Final = 60
_SHOWN_LINES: Final = 30


def main(arguments: list[str]) -> int:
    """Fuzz and report."""
    parser = argparse.ArgumentParser(prog="./run fuzz", description="Holds the promises of all borders.")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(TARGETS)}")
    wanted = parser.parse_args(arguments)
    unknown = [name for name in wanted.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    folder = Path(tempfile.mkdtemp(prefix="trapezoid-fuzz-"))
    broken = [name for name in wanted.targets or TARGETS if not fuzz(TARGETS[name], folder, wanted.seconds)]
    if broken:
        print(f"broken: {', '.join(broken)}; inputs are in {folder}")
    return 1 if broken else 0


def fuzz(target: Target, folder: Path, seconds: int) -> bool:
    """Fuzz one target in a process of its own; whether its promise held."""
    corpus, found = folder / target.name / "corpus", folder / target.name / "found"
    corpus.mkdir(parents=True)
    found.mkdir()
    for seed in target.seeds:
        (corpus / hashlib.sha256(seed).hexdigest()).write_bytes(seed)
    command = [
        sys.executable, "-m", "tests.fuzz.guided", target.name, f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES}",
        f"-timeout={SLOW_SECONDS}", f"-rss_limit_mb={MEMORY_MEBIBYTES}", f"-artifact_prefix={found}/",
        "-print_final_stats=1", "-verbosity=1", str(corpus),
    ]  # fmt: skip
    print(f"{target.name}: {seconds} s", flush=True)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + _MARGIN_SECONDS)
    lines = (ended.stdout + ended.stderr).splitlines()
    statistics = dict(line.removeprefix("stat::").split(":", 1) for line in lines if line.startswith("stat::"))
    tried = statistics.get("number_of_executed_units", "?").strip()
    print(f"  {tried} inputs, {len(list(corpus.iterdir()))} of them kept for what they reach", flush=True)
    if ended.returncode == 0:
        return True
    shown = [line for line in lines if not line.startswith(("#", "INFO", "stat::"))]
    print("\n".join(f"  {line}" for line in shown[:_SHOWN_LINES]))
    for artifact in sorted(found.iterdir()):
        print(f"  {artifact}; a line for tests/fuzz/test_found.py:")
        print(f"    ({target.name!r}, {artifact.read_bytes()!r}),")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
