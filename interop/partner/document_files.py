"""Document scenarios as files, for programs in other languages: signed documents, and what to make of them.

    index.json          the scenarios: id, rule, file
    cases/ID.json       the editions of one: time, files by URL (base64), verdict

Source: trust and hosts, sections 3.3 to 3.6.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from interop.partner.core import modules
from interop.partner.core.publication import DAY, Publication
from interop.partner.core.scenarios import SCENARIOS, Scenario

FOLDER: Final = Path(__file__).parents[1] / "documents"
DOMAIN: Final = "b.example"
VERIFIER: Final = "a.example"
BASE: Final = f"https://{DOMAIN}"
BEGAN: Final = 1_795_219_200
"""Unix seconds of the first edition: 2026-11-21."""
_FORMAT: Final = "trapezoid-documents/1"


def contents() -> dict[str, bytes]:
    """All files, by their path below the folder; the same bytes each time."""
    index = {
        "format": _FORMAT,
        "specification": "docs/spec/trust-and-hosts.md",
        "domain": DOMAIN,
        "verifier": VERIFIER,
        "cases": [
            {"id": one.id, "section": one.section, "says": one.says, "file": f"cases/{one.id}.json"}
            for one in SCENARIOS
        ],
    }
    files = {"index.json": _text(index)}
    files |= {f"cases/{one.id}.json": _text(_case(one)) for one in SCENARIOS}
    return files


def write(folder: Path) -> int:
    """Write all files below `folder`; returns how many scenarios there are. Raises OSError."""
    (folder / "cases").mkdir(parents=True, exist_ok=True)
    for path, content in contents().items():
        (folder / path).write_bytes(content)
    return len(SCENARIOS)


def _case(scenario: Scenario) -> Mapping[str, object]:
    endpoint = f"wss://mn.{DOMAIN}/link"
    domain = Publication(DOMAIN, base=BASE, endpoint=endpoint, module=modules.HONEST, now=BEGAN)
    editions: list[Mapping[str, object]] = []
    passed = 0.0
    before: dict[str, bytes] = {}
    for edition in scenario.editions:
        passed += edition.days
        edition.change(domain)
        changed = {path: raw for path, raw in domain.files.items() if before.get(path) != raw}
        before = dict(domain.files)
        editions.append(
            {
                "now": int(BEGAN + passed * DAY),
                "files": {f"{BASE}{path}": b64encode(raw).decode() for path, raw in changed.items()},
                "verify": edition.scope,
                "verdict": "refused" if edition.code else "accepted",
                **({"code": edition.code} if edition.code else {}),
            }
        )
    return {"id": scenario.id, "section": scenario.section, "says": scenario.says, "editions": editions}


def _text(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
