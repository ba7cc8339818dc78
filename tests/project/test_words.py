"""Words that the project does not use, with what it says in their place.

A stranger should guess what a name means, and a reader whose first language is not English should understand a
sentence at once. So each thing has the field's word for it, programs are "it", and metaphors that only we understand
are out. The check reads everything that people read: code with its identifiers, docstrings, comments and messages,
documents and news fragments. An identifier is read as its parts: `RuntimeHouse`, `runtime_house` and "runtime house"
are the same.

Not read: decisions (`docs/adr/`) and versions of the changelog, which are history and are not edited later; the
specifications (`docs/spec/`), whose words are those of others; and this file.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
AREAS = (*PACKAGES, "docs", "examples", "newsfragments", "")


class Word(NamedTuple):
    """A word or phrase that is out, as a pattern, why, and what to say."""

    pattern: str
    instead: str
    why: str


WORDS: Final = (
    Word("books?", "records, audit records", "a node writes audit records in segments; books are accounting"),
    Word("tells?|told|telling", "notify, report, send, say", "programs send and report; nobody is told anything"),
    Word("whoever|whomever", "anyone who, a peer that", "it leaves open who is meant: a peer, a client, an operator"),
    Word("what is over", "what has expired, closed or failed", "the states have names"),
    Word("houses?|households?", "project, node, test rig", "a metaphor; nothing in the field is called a house"),
    Word("(inner|quiet|own) rooms?", "package", "Python has packages; a room is a chat's or Matrix's"),
    Word("doors?", "listener", "a socket that accepts connections is a listener"),
    Word("legs?", "outbound queue, link, side", "in telephony a leg is one half of a call; ours is a link"),
    Word("knock(s|ed|ing)?", "pending connection, connect", "clients connect"),
    Word("farewells?|last words?", "close message, final state", "a connection is closed with a reason"),
    Word("forg(ive|ives|ave|iven|iving)", "reset, expire", "counters are reset"),
    Word("bur(y|ies|ied|ying)", "remove, discard", "processes are reaped, entries removed"),
    Word("send_queues?", "send queue", "a bounded buffer in front of a connection is a send queue"),
    Word("recent outcomes?", "recent results", "what an operation returned is its result"),
    Word("surroundings?", "dependencies, context", "what a class needs from others are its dependencies"),
    Word("suppl(y|ies|ying)", "stub provider, provide", "stubs come from a provider"),
    Word("he|him|his|himself", "it, they, the user", "programs are it; users are they"),
)

FORMATS: Final = (
    (
        r"books_version|peer_book\b|\"books\"",
        "a field of the extracts that partners exchange, a table, a field of --json",
    ),
    (
        r"\"is_told\"|[\"`]gaps told[\"`]|`trapezoid_gaps_told_total`",
        "a field of rows in the state file, a counter of the status page",
    ),
)
"""Names in formats that others read already: they keep their words until the format has a new version."""


def as_words(line: str) -> str:
    """A line whose identifiers are split into words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", line).lower()


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Compiled patterns, by the first form of each word."""
    return {word.pattern: re.compile(rf"\b({word.pattern})\b") for word in WORDS}


@cache
def any_word() -> re.Pattern[str]:
    """A pattern for all of them, which tells at once that a file has none."""
    return re.compile(rf"\b(?:{'|'.join(word.pattern for word in WORDS)})\b")


@cache
def files(area: str) -> list[Path]:
    """What people read in one area; the area without a name is the top folder."""
    if not area:
        return [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "run"]
    kept = (path for path in sorted((ROOT / area).rglob("*")) if path.suffix in {".py", ".md", ".toml", ".j2", ".html"})
    return [path for path in kept if path != Path(__file__) and not {"adr", "spec"} & set(path.relative_to(ROOT).parts)]


@cache
def found(area: str) -> dict[str, list[str]]:
    """Words that are out and stand in an area nevertheless, with the places."""
    places: dict[str, list[str]] = {}
    for path in files(area):
        if path.name == "CHANGELOG.md":
            continue
        text = path.read_text(encoding="utf-8")
        if not any_word().search(as_words(text)):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            for name in words_in(line):
                places.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{number}")
    return places


def words_in(line: str) -> list[str]:
    """Words that are out, in one line."""
    for spared, _ in FORMATS:
        line = re.sub(spared, "", line)
    words = as_words(line)
    return [name for name, pattern in patterns().items() if pattern.search(words)]


def label(area: str) -> str:
    """The name of an area in the report."""
    return area or "."


@pytest.mark.parametrize("area", AREAS, ids=label)
def test_nothing_is_written_in_words_that_are_out(area: str) -> None:
    instead = {word.pattern: word.instead for word in WORDS}
    assert {f"{name} (say: {instead[name]})": places for name, places in found(area).items()} == {}


@pytest.mark.parametrize("line", ["class BookKeeper:", "def tell_all() -> None:", "# The house", "peer_house = 1"])
def test_identifiers_are_read_as_their_words(line: str) -> None:
    assert words_in(line)


@pytest.mark.parametrize("line", ["bookmark", "the matrix room", "intelligence", "hers"])
def test_other_words_pass(line: str) -> None:
    assert not words_in(line)
