"""What `/metrics` costs is measured at a real node: with as many links as were asked for, all of which count."""

from __future__ import annotations

import re
import subprocess
import sys


def test_the_page_that_is_measured_has_every_figure_of_every_link() -> None:
    command = [sys.executable, "-m", "benchmarks.metrics_page", "--links"]
    lines = []
    for links in (2, 3):
        done = subprocess.run([*command, str(links)], capture_output=True, check=True, timeout=120)
        found = re.fullmatch(rb"(\d+) links, (\d+) lines: median \d+\.\d ms, longest \d+\.\d ms\n", done.stdout)
        assert found is not None, done.stdout
        assert int(found[1]) == links
        lines.append(int(found[2]))
    assert lines[1] - lines[0] >= 25  # each link has a line for each of its counters
