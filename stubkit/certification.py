"""The report of `stub certify`: its form, its signature, and what people and programs read of it.

It names the module by its digest, so that it says nothing about another one. With the author's `pkg` keys it is signed
as a document of the domain is; without, it is a text that anybody could have written.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from protofly.errors import Code, PeerError
from protofly.printable import escaped
from protofly.signatures import KeyRecord, SigningKey, decode_envelope, sign_envelope
from stubkit.junit import JunitCase, junit_xml

CERTIFICATION_TYPE: Final = "application/vnd.rmn.certification+json"
SPEC: Final = "rmn-stub-certification/1"
REPORT_BYTES: Final = 64 << 10
NUMBERS: Final = frozenset(f"SR-{number:02}" for number in range(1, 19))
"""Of all requirements. A report that leaves one out certifies nothing."""
Result = Literal["passed", "failed", "not-tested"]
_Shown = Annotated[str, msgspec.Meta(max_length=100)]
_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --line: #d4dae0; --bad: #fdd; --open: #ffd }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181d; --text: #e3e8ee; --line: #333c46; --bad: #4a1f23; --open: #403a1a } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
  background: var(--back); color: var(--text) }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid var(--line); vertical-align: top }
td:last-child { overflow-wrap: anywhere } td:nth-child(3) { white-space: nowrap }
.failed td { background: var(--bad) } .not-tested td { background: var(--open) }
dt { font-weight: 600 } dd { overflow-wrap: anywhere; margin-left: 1em }
@media (max-width: 40em) {
  thead { display: none } tr { display: block; border-bottom: 1px solid var(--line); padding: .4em 0 }
  td { display: inline; border: 0; padding: 0 .4em 0 0 } td:last-child { display: block }
  .failed { background: var(--bad) } .not-tested { background: var(--open) } }
"""
_STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


class RequirementVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one requirement."""

    number: str
    title: str
    result: Result
    detail: str
    seconds: float = 0.0


class Certification(msgspec.Struct, frozen=True, kw_only=True):
    """Report of one test of a module: stub, kit, engine, verdicts. `made` is the time in ISO 8601."""

    spec: str
    stub: _Shown
    version: _Shown
    sha256: str
    kit: str
    engine: str
    made: _Shown
    verdicts: list[RequirementVerdict]
    fuel_per_message: float = 0.0
    cpu_us_per_message: float = 0.0
    memory_bytes: int = 0

    @property
    def is_good(self) -> bool:
        """Every requirement is met."""
        return not self._missing and all(verdict.result == "passed" for verdict in self.verdicts)

    @property
    def _missing(self) -> int:
        return len(NUMBERS.difference(verdict.number for verdict in self.verdicts))

    @property
    def summary(self) -> str:
        """One line for operators."""
        counts = [
            (word, sum(one.result == word for one in self.verdicts)) for word in ("passed", "failed", "not-tested")
        ]
        counts.append(("missing", self._missing))
        shown = ", ".join(f"{count} {word}" for word, count in counts if count)
        return f"{'certified' if self.is_good else 'NOT certified'}: {shown}"


def report_path(module: Path) -> Path:
    """Path of the report of a module: beside it, with the suffix `.certification.json`."""
    return module.with_suffix(".certification.json")


def encoded(report: Certification, keys: Sequence[SigningKey] = ()) -> bytes:
    """The report as a file: an envelope with the signatures of these keys, or the bare text without any."""
    payload = msgspec.json.encode(report)
    return sign_envelope(payload, CERTIFICATION_TYPE, keys) if keys else msgspec.json.format(payload, indent=2) + b"\n"


def decoded(raw: bytes, keys: dict[str, KeyRecord] | None = None) -> tuple[Certification, bool]:
    """A report, and True if one of these keys signed it. Readers compare `sha256` with the module.

    Raises:
        PeerError: ENVELOPE_MALFORMED, DOCUMENT_MALFORMED or DOCUMENT_TOO_LARGE.
    """
    payload, is_signed = raw, False
    if len(raw) > REPORT_BYTES:
        raise PeerError(Code.DOCUMENT_TOO_LARGE, f"a certification report of more than {REPORT_BYTES:,} bytes")
    if b'"payloadType"' in raw[:4096]:
        envelope = decode_envelope(raw)
        payload = envelope.payload
        is_ours = envelope.payload_type == CERTIFICATION_TYPE
        is_signed = is_ours and bool(keys) and envelope.signers(keys or {}, allowed=list(keys or {})) > 0
    try:
        report = msgspec.json.decode(payload, type=Certification)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.DOCUMENT_MALFORMED, f"no certification report: {exc}") from exc
    if report.spec != SPEC:
        raise PeerError(Code.DOCUMENT_MALFORMED, "no certification report of a known form")
    return report, is_signed


def as_junit(report: Certification) -> bytes:
    """The report as JUnit; what was not tested is a failure, as it certifies nothing."""
    cases = [
        JunitCase(
            name=f"{one.number} {one.title}",
            seconds=one.seconds,
            problem="" if one.result == "passed" else f"{one.result}: {one.detail}",
            output=one.detail if one.result == "passed" else "",
        )
        for one in report.verdicts
    ]
    return junit_xml(f"stub certify {report.stub} {report.version}", cases)


def as_html(report: Certification) -> bytes:
    """The report as one page without scripts."""
    rows = "".join(
        f'<tr class="{one.result}"><td>{one.number}</td><td>{_shown(one.title)}</td>'
        f"<td>{one.result}</td><td>{_shown(one.detail)}</td></tr>\n"
        for one in report.verdicts
    )
    facts = {
        "module": f"sha256 {report.sha256}",
        "tested with": f"trapezoid {report.kit}, {report.engine}",
        "made": report.made,
        "a message of 547 bytes": f"{report.fuel_per_message:,.0f} fuel, {report.cpu_us_per_message:.2f} µs CPU"
        if report.fuel_per_message
        else "not measured",
        "memory": f"{report.memory_bytes >> 10:,} KiB" if report.memory_bytes else "not measured",
    }
    about = "".join(f"<dt>{name}</dt><dd>{_shown(text)}</dd>\n" for name, text in facts.items())
    title = _shown(f"{report.stub} {report.version}")
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'">
<title>{title}: certification</title><style>{_STYLE}</style></head>
<body><h1>{title}</h1><p><strong>{_shown(report.summary)}</strong></p><dl>
{about}</dl><table><thead><tr><th>number</th><th>requirement</th><th>result</th><th>measured</th></tr></thead><tbody>
{rows}</tbody></table></body></html>
"""
    return page.encode()


def _shown(text: str) -> str:
    """Text that the author of a stub may have written, for a page."""
    return html.escape(escaped(text))
