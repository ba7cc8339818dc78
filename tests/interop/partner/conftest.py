"""A folder for a partner and a node of ours, made once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from interop.partner.prepare import make_partner_folder

PREPARED_SECONDS = 120.0


@pytest.fixture(scope="session")
def partner_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    async def make() -> Path:
        with trio.fail_after(PREPARED_SECONDS):
            return await make_partner_folder(tmp_path_factory.mktemp("partner") / "lab")

    return trio.run(make)
