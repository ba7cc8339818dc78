"""The author's guide: what it shows can be built and keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path

from stubkit.build import build
from stubkit.check import check_stub

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-stub.md"


async def test_smallest_stub_of_the_guide_passes_the_check(tmp_path: Path) -> None:
    sources = re.findall(r"```c\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(sources) == 1
    (tmp_path / "guide.c").write_text(sources[0], encoding="utf-8")
    build(tmp_path / "guide.c", tmp_path / "guide.wasm")
    report = await check_stub(tmp_path / "guide.wasm")
    assert report.is_good, report
