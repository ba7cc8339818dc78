from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.words import (
    WORD_CHARS_MAX,
    WORDS_MAX,
    TooManyWordsError,
    Vocabulary,
    as_texts,
    as_words,
    coded,
    codes_of,
    packed,
    same_words,
    texts_where,
    without,
)

some_texts = st.lists(st.none() | st.text(max_size=3), max_size=12)


@given(texts=some_texts)
def test_words_come_back_from_their_signs_and_the_dictionary_has_no_others(texts: list[str | None]) -> None:
    words = Vocabulary()
    words.sign_of("never in the column")
    signs = [words.sign_of(text) for text in texts]
    column = words.column([packed(signs[:5]), packed(signs[5:])])
    assert column.to_pylist() == texts
    assert sorted(column.dictionary.to_pylist()) == sorted({text for text in texts if text is not None})


@given(texts=st.lists(st.text(max_size=5), min_size=1, max_size=20, unique=True), other=st.text(max_size=5))
def test_a_decoder_gives_the_sign_of_a_known_word_and_refuses_all_others(texts: list[str], other: str) -> None:
    words = Vocabulary()
    signs = [words.sign_of(text) for text in texts]
    decoder = msgspec.json.Decoder(words.type())
    assert [str.__str__(decoder.decode(msgspec.json.encode(text))) for text in texts] == signs
    if other and other not in texts:
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.json.encode(other))
        words.sign_of(other)
        assert msgspec.json.decode(msgspec.json.encode(other), type=words.type()) == words.sign_of(other)


def test_too_many_words_and_too_long_ones_are_no_words() -> None:
    words = Vocabulary()
    for number in range(WORDS_MAX - 1):
        words.sign_of(str(number))
    was_full = words.is_full
    for word in ("one more", "and another"):
        with pytest.raises(TooManyWordsError):
            words.sign_of(word)
    assert (was_full, words.is_full) == (False, True)
    assert words.column([packed([words.sign_of("7"), words.sign_of(None)])]).to_pylist() == ["7", None]
    with pytest.raises(TooManyWordsError):
        Vocabulary().sign_of("x" * (WORD_CHARS_MAX + 1))


def test_a_word_may_have_so_many_characters_and_a_longer_one_ends_the_vocabulary() -> None:
    words = Vocabulary()
    sign = words.sign_of("x" * WORD_CHARS_MAX)
    with pytest.raises(TooManyWordsError):
        words.sign_of("x" * (WORD_CHARS_MAX + 1))
    with pytest.raises(TooManyWordsError):
        words.sign_of("short")
    assert words.sign_of("x" * WORD_CHARS_MAX) == sign


def test_a_full_vocabulary_takes_no_word() -> None:
    with pytest.raises(TooManyWordsError):
        Vocabulary(is_full=True).sign_of("short")


@given(texts=some_texts, other=some_texts)
def test_questions_about_texts_have_the_same_answer_with_a_dictionary_and_without(
    texts: list[str | None], other: list[str | None]
) -> None:
    plain = pa.array(texts, pa.string())
    for column in (plain, as_words(plain)):
        assert as_texts(column).equals(plain)
        found = texts_where(column, lambda these: pc.greater(these, "k"))
        expected = [text is not None and text > "k" for text in texts]
        assert (found is None and not any(expected)) or (found is not None and found.tolist() == expected)
        kept = [text != "a" for text in texts]
        assert without(column, pa.array(kept, pa.bool_())).to_pylist() == [text for text in texts if text != "a"]
        first, second = same_words([column, pa.array(other, pa.string())])
        assert (first.to_pylist(), second.to_pylist()) == (texts, other)
        assert first.dictionary.equals(second.dictionary)
        assert coded(codes_of(first), first.dictionary).to_pylist() == texts


def test_a_column_without_rows_has_no_words() -> None:
    empty = coded(np.zeros(0, np.uint16), pa.array(["a"]))
    assert (len(empty), len(empty.dictionary)) == (0, 0)
