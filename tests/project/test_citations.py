"""Every `Source:` in code names a document and a section that exist, or a published work from a list.

The grammar is small and explicit; docs/spec/README.md shows it to authors. A citation begins with `Source:` in a
docstring or a comment and ends with the full stop of its sentence; semicolons separate its parts. Words in parentheses
explain and are not read.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
DOCUMENTS = {
    "message specification": "message-specification.md",
    "trust and hosts": "trust-and-hosts.md",
    "data formats": "data-formats.md",
    "reference nodes": "reference-nodes.md",
    "foreign nodes": "foreign-nodes.md",
    "wasmtime study": "wasmtime-study.md",
    "pipeline study": "pipeline-study.md",
    "performance study": "performance-study.md",
    "design": "design.md",
}
"""Documents by the name under which code cites them."""
WORKS = (
    "3GPP TS 32.297",
    "ASGI specification",
    "DSSE 1.0.2",
    "Delta transaction log protocol",
    "Engine.IO protocol, revision 3",
    "GSMA TAP",
    "Gelman and others, Bayesian Data Analysis",
    "HTML Living Standard",
    "ISO 4217",
    "ISO/IEC 6429",
    "JSON Schema 2020-12",
    "MQTT 3.1.1",
    "MQTT 5.0",
    "OpenID Connect Core 1.0",
    "OpenID Connect Discovery 1.0",
    "OTLP 1.0",
    "OpenTelemetry specification",
    "Push API",
    "TUF 1.0 client workflow",
    "Unicode Technical Report 36",
    "W3C Trace Context",
    "XEP-0175",
    "block bootstrap of Künsch (1989)",
    "socket.io protocol, revision 4",
    "specification of xxHash",
    "systemd manual",
)
"""Published works that are cited beside RFCs."""
LEAST_CITATIONS = 400
"""A pattern that found none would pass every test."""

_NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
_ITEMS = r"(?:row|rule|step|check|attack|decision|reason)s?"
_SECTIONS = re.compile(rf"sections? ({_NUMBERS})(?:, {_ITEMS} ({_NUMBERS}))?")
_MENTION = re.compile(
    rf"\b({'|'.join(DOCUMENTS)}),? (?:sections? )?{_NUMBERS}(?:, {_ITEMS} {_NUMBERS})?", re.IGNORECASE
)
_DOCUMENT = re.compile(rf"({'|'.join(DOCUMENTS)}), (.+)", re.IGNORECASE)
_FEATURES = re.compile(r"feature rows? ([A-Z]{2}-\d\d(?:(?:, | and | to )[A-Z]{2}-\d\d)*)")
_REQUIREMENT = re.compile(r"requirement (R\d)")
_PAGE = re.compile(r'(docs/[\w/-]+\.md)((?:,? (?:and )?"[^"]+")*)')
_DECISIONS = re.compile(r"ADR (\d{4}(?:(?:, | and )\d{4})*)")
_PART = rf"(?:, (?:sections? {_NUMBERS}|\"[^\"]+\"))?"
_RFC = re.compile(rf"RFC \d{{3,5}}(?:(?:, | and )(?:RFC )?\d{{3,5}})*{_PART}")
_WORK = re.compile(rf"(?:{'|'.join(map(re.escape, WORKS))}){_PART}")


def numbers_of(text: str) -> list[str]:
    """Numbers of a list such as `5.1 to 5.3 and 8`, those between the ends of a range included."""
    found: list[str] = []
    for part in re.split(r", | and ", text):
        first, _, last = part.partition(" to ")
        stem, _, start = first.rpartition(".")
        if last and last.rpartition(".")[0] != stem:
            raise ValueError(f"`{part}` is no range")
        end = int(last.rpartition(".")[2]) if last else int(start)
        found += [f"{stem}.{number}" if stem else str(number) for number in range(int(start), end + 1)]
    return found


@cache
def sections_of(document: str) -> dict[str, str]:
    """Text of each numbered section of a specification, by its number; a section holds those below it."""
    text = re.sub(r"^```.*?^```$", "", (SPEC / document).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = list(re.finditer(r"^(#+) (\d+(?:\.\d+)*)\.? .*$", text, re.MULTILINE))
    found: dict[str, str] = {}
    for index, head in enumerate(heads):
        below = (other.start() for other in heads[index + 1 :] if len(other[1]) <= len(head[1]))
        found[head[2]] = text[head.end() : next(below, len(text))]
    return found


def flaws_of_sections(document: str, text: str) -> Iterator[str]:
    """What is wrong with `section 7, rows 26 and 27` of one document."""
    places = re.split(r",? and (?=section)|, (?=section)", text)
    for place in places:
        match = _SECTIONS.fullmatch(place)
        if match is None:
            yield f"`{place}` is not `section N` or `sections N and N`, with its rows, rules or steps after a comma"
            continue
        sections, known = numbers_of(match[1]), sections_of(DOCUMENTS[document])
        yield from (f"{document} has no section {number}" for number in sections if number not in known)
        body = known.get(sections[-1], "")
        for item in numbers_of(match[2]) if match[2] else ():
            if not re.search(rf"^(?: *{item}\. |\| {item} \|)", body, re.MULTILINE):
                yield f"{document}, section {sections[-1]}, has nothing numbered {item}"


def flaws_of_page(path: str, headings: str) -> Iterator[str]:
    """What is wrong with `docs/abi.md, "Budgets"`."""
    page = ROOT / path
    if not page.is_file():
        yield f"there is no {path}"
        return
    known = re.findall(r"^#+ (.+?)(?: \([^()]*\))?$", page.read_text(encoding="utf-8"), re.MULTILINE)
    yield from (f"{path} has no heading `{name}`" for name in re.findall(r'"([^"]+)"', headings) if name not in known)


def flaws_of_features(numbers: str) -> Iterator[str]:
    """What is wrong with `feature rows LI-07 to LI-10`."""
    page = (SPEC / "features.md").read_text(encoding="utf-8")
    for part in re.split(r", | and ", numbers):
        first, _, last = part.partition(" to ")
        group, low, high = first[:3], int(first[3:]), int((last or first)[3:])
        rows = (f"{group}{number:02}" for number in range(low, high + 1))
        yield from (f"docs/spec/features.md has no row {row}" for row in rows if f"| {row} |" not in page)


def flaws(source: str) -> Iterator[str]:
    """What is wrong with the citations after one `Source:`."""
    last_document = ""
    for citation in map(str.strip, re.sub(r"\s*\((?!1989)[^()]*\)", "", source).split(";")):
        if match := _DOCUMENT.fullmatch(citation):
            last_document = match[1].lower()
            yield from flaws_of_sections(last_document, match[2])
        elif citation.startswith("section") and last_document:
            yield from flaws_of_sections(last_document, citation)
        elif match := _FEATURES.fullmatch(citation):
            yield from flaws_of_features(match[1])
        elif match := _REQUIREMENT.fullmatch(citation):
            page = (SPEC / DOCUMENTS["message specification"]).read_text(encoding="utf-8")
            yield from () if f"| {match[1]} |" in page else (f"the message specification names no {match[1]}",)
        elif match := _PAGE.fullmatch(citation):
            yield from flaws_of_page(match[1], match[2])
        elif match := _DECISIONS.fullmatch(citation):
            names = [path.name[:4] for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")]
            yield from (
                f"there is no ADR {number}" for number in re.split(r", | and ", match[1]) if number not in names
            )
        elif not _RFC.fullmatch(citation) and not _WORK.fullmatch(citation):
            yield f"`{citation}` is no citation (docs/spec/README.md says how code cites)"


def _joined(text: str) -> str:
    """A text as one line, without the marks of comments."""
    return " ".join(text.replace("#", " ").split())


@cache
def texts_of(path: Path) -> list[tuple[int, str]]:
    """Strings and comments of a module that cites or mentions anything, each with its first line.

    Comments that follow each other are one text.
    """
    found: list[tuple[int, str]] = []
    source = path.read_text(encoding="utf-8")
    if "Source" not in source and not _MENTION.search(_joined(source)):
        return found  # taking it apart takes a thousand times as long as this look
    last_comment = (0, 0)  # its line, and how many texts there were after it
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            found.append((token.start[0], token.string.strip("rbfu").strip("\"'")))
        elif token.type == tokenize.COMMENT:
            line, text = token.start[0], token.string.lstrip("#")
            if last_comment == (line - 1, len(found)):
                line, text = found[-1][0], f"{found.pop()[1]}\n{text}"
            found.append((line, text))
            last_comment = (token.start[0], len(found))
    return found


def citations_of(path: Path) -> Iterator[tuple[int, str]]:
    """What stands after each `Source:` of a module, with its line."""
    for line, text in texts_of(path):
        for match in re.finditer(r"\bSource:(?!`)(.*?)(?:\.(?=\s|$)|$(?!\n))", text, re.DOTALL):
            yield line + text.count("\n", 0, match.start()), " ".join(match[1].split())


def modules() -> list[Path]:
    """All modules of the project."""
    packages = [path.parent for path in ROOT.glob("*/__init__.py")]
    return sorted(path for folder in [*packages, ROOT / "examples"] for path in folder.rglob("*.py"))


def test_every_source_that_code_cites_exists() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {flaw}"
        for path in modules()
        for line, source in citations_of(path)
        for flaw in flaws(source)
    ]
    assert not found, "\n".join(found)


def test_citations_are_found_at_all() -> None:
    assert sum(1 for path in modules() for _ in citations_of(path)) > LEAST_CITATIONS


def mentions_of(text: str) -> Iterator[tuple[str, str]]:
    """Sections of a specification that a text mentions, in a citation or not: document, and what follows its name."""
    for match in _MENTION.finditer(_joined(text)):
        yield match[1].lower(), match[0][len(match[1]) :].lstrip(", ")


def test_every_section_that_code_mentions_exists() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {flaw}"
        for path in modules()
        if path != Path(__file__)
        for line, text in texts_of(path)
        for document, sections in mentions_of(text)
        for flaw in flaws_of_sections(document, sections)
    ]
    assert not found, "\n".join(found)


def test_every_section_that_a_page_mentions_exists() -> None:
    found = [
        f"{page.relative_to(ROOT)}: {flaw}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for document, sections in mentions_of(re.sub(r"\]\([^)]*\)|\[", "", page.read_text(encoding="utf-8")))
        for flaw in flaws_of_sections(document, sections)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_specification_refers_to_sections_of_its_own_that_exist(document: str) -> None:
    text = re.sub(r"\s+", " ", (SPEC / DOCUMENTS[document]).read_text(encoding="utf-8"))
    text = re.sub(
        rf"(?:\]\([\w.-]+\)|{'|'.join(DOCUMENTS)}|RFC \d+), sections? {_NUMBERS}", "", text, flags=re.IGNORECASE
    )
    named = {number for match in re.finditer(rf"\bsections? ({_NUMBERS})", text) for number in numbers_of(match[1])}
    assert sorted(named - sections_of(DOCUMENTS[document]).keys()) == []


@pytest.mark.parametrize(
    "source",
    [
        "message specification, sections 5.1 to 5.3 and 20.2",
        "message specification, section 1.2, rule 4; RFC 6455, section 5.2",
        "trust and hosts, section 5.3, rules 2 and 3, and section 7, attack 53",
        "trust and hosts, section 3.6, step 7; section 7, rows 26 and 27",
        "data formats, section 8, decision 7; feature rows LI-07 to LI-10 and CN-32",
        'requirement R4 (router, middleware, handler); docs/abi.md, "Budgets"; ADR 0016; MQTT 5.0, section 4.7',
    ],
)
def test_what_exists_may_be_cited(source: str) -> None:
    assert list(flaws(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "message specification, section 23",
        "message specification, sections 5.1 to 5.9",
        "message specification, section 21, row 78",
        "trust and hosts, section 7, attack 58",
        "trust and hosts",
        "feature row ZZ-01",
        "requirement R5",
        "docs/no-such-page.md",
        'docs/abi.md, "No such heading"',
        "ADR 9999",
        "section 4",
        "a paper",
        "RFC",
    ],
)
def test_what_does_not_exist_may_not_be_cited(source: str) -> None:
    assert list(flaws(source)) != []
