"""Which texts name a person: in whatever way the address is written, and no text about somebody else."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pipeline.core.mentions import mention_of

EVE, HASH = "user://b.example/eve", "user:0123456789abcdef01234567"


def is_found(word: str, text: str) -> bool:
    found: bool = pc.match_substring_regex(pa.array([text]), mention_of(word)).to_pylist()[0]
    return found


@pytest.mark.parametrize(
    "text",
    [
        EVE,
        f'{{"from":"{EVE}"}}',
        f"{EVE}, {EVE}lyn",
        f"Nobody is at {EVE}.",
        '{"from":"USER:\\/\\/B.Example\\/eve"}',
        f"<{EVE}/calendar>",
        f"{EVE}\n",
        f"({EVE}\\",
    ],
)
def test_a_text_with_the_address_in_any_form_names_the_person(text: str) -> None:
    assert is_found(EVE, text)


@pytest.mark.parametrize(
    "text",
    [
        f"{EVE}lyn",
        f"{EVE}-2",
        f"{EVE}.smith",
        f"{EVE}@work",
        f"{EVE}%20b",
        f"x{EVE}",
        "user://b.example/Eve",
        "eve",
        "",
    ],
)
def test_a_text_about_somebody_whose_address_is_longer_or_another_names_nobody(text: str) -> None:
    assert not is_found(EVE, text)


def test_the_address_of_a_domain_is_not_named_by_those_of_its_people() -> None:
    word = "domain://b.example"
    for text in (word, f'"{word}"', f"{word}.", f"{word}/", f"at {word}: nobody"):
        assert is_found(word, text), text
    for text in (f"{word}/eve", f"{word}\\/eve", f"{word}:8443", f"{word}.org", f"{word}-2"):
        assert not is_found(word, text), text


def test_a_hash_is_named_as_it_is_and_signs_of_expressions_are_letters() -> None:
    assert is_found(HASH, f'{{"blocked":"{HASH}"}}')
    assert not is_found(HASH, f"{HASH}89")
    assert is_found("user://b.example/a+b(c)*[d]|é", 'to "user://b.example/a+b(c)*[d]|é"')
    assert not is_found("user://b.example/a.b", "user://b.example/axb")
