"""Nothing that drives a terminal, turns a text around or breaks a line gets before people's eyes."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.printable import escaped, escaped_json

DANGEROUS = [
    *map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)), "\u2028", "\u2029", "\u061c", "\u200b", "\u200d", "\ufeff", "\u00ad",
    "\U000e0041", "\ud800", "\ufff9",
]  # fmt: skip


@pytest.mark.parametrize("char", DANGEROUS, ids=lambda char: f"U+{ord(char):04X}")
def test_dangerous_character_is_shown_by_its_number(char: str) -> None:
    shown = escaped(f"a{char}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert char not in shown


def test_what_people_write_stays_as_it_is() -> None:
    text = "Müller → 東京, Ελλάδα, עברית, emoji 🙂, a\\b"
    assert escaped(text) == text
    assert escaped("a\nb\tc\x1b[31m\x85") == r"a\nb\tc\x1b[31m\x85"
    assert escaped("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert escaped("\xad\u0378\u200e\uffff\U000e0041") == r"\xad\u0378\u200e\uffff\U000e0041"


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_leaves_a_control_or_separator(text: str) -> None:
    shown = escaped(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert shown.splitlines() == ([shown] if shown else [])


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner, max_size=3), max_leaves=5))
def test_readers_of_json_get_the_strings_as_they_were(value: object) -> None:
    for indent in (None, 2):
        shown = escaped_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(shown) == value
        assert shown.replace("\n", "").isprintable()
