"""Texts of which there are few different ones: each gets a number once, and a column of them is made of numbers.

Nearly all texts of records are such words: names of nodes and domains, outcomes, revisions, rules. A column of words
is an Arrow dictionary. Whatever is asked about its texts is asked of the few different ones, and Parquet takes it as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

WORDS_MAX: Final = 512
WORD_CHARS_MAX: Final = 256
NO_WORD: Final = "\0"
"""Stands for null among the signs for words."""
_SIGNS: Final = "utf-16-le"
SIGNS_TYPE: Final = "<u2"
"""Signs as numbers, packed."""

Codes = NDArray[np.int32] | NDArray[np.uint16]
Mask = NDArray[np.bool_]


class TooManyWordsError(Exception):
    """More words, or longer ones, than are worth a number."""


class _Word(StrEnum):
    """A decoder gives one of these for a word: as a text it is the one character that stands for the word."""

    def __new__(cls, word: str, sign: str) -> Self:
        member = str.__new__(cls, sign)
        member._value_ = word
        return member


class Vocabulary:
    """The words of a column as far as they are known; each has a sign, a character.

    Attributes:
        is_full: There were too many for this to be a column of words.
    """

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self._words = [""]  # a type must have one
        self._signs = {"": "\1"}
        self._type: Any = None

    def __len__(self) -> int:
        return len(self._words)

    def sign_of(self, word: str | None) -> str:
        """The sign of a word, which is known from now on. Raises TooManyWordsError, and `is_full` is true then."""
        if word is None:
            return NO_WORD
        sign = self._signs.get(word)
        if sign is None:
            if self.is_full or len(self._words) >= WORDS_MAX or len(word) > WORD_CHARS_MAX:
                self.is_full = True
                raise TooManyWordsError
            self._words.append(word)
            sign = self._signs[word] = chr(len(self._words))
            self._type = None
        return sign

    def type(self) -> Any:
        """Enum type with which msgspec decodes a known word to its sign; it refuses unknown words."""
        if self._type is None:
            members = [(f"word_{ord(sign)}", (word, sign)) for word, sign in self._signs.items()]
            self._type = _Word("Word", members)  # type: ignore[arg-type]  # words with signs, not texts alone
        return self._type

    def column(self, signs: Sequence[bytes]) -> pa.DictionaryArray:
        """Words as a column. Signs are as `packed` has them."""
        return coded(np.frombuffer(b"".join(signs), SIGNS_TYPE), pa.array(self._words, pa.string()))


def packed(signs: Iterable[str]) -> bytes:
    """Signs in little room."""
    return "".join(signs).encode(_SIGNS)


def coded(codes: Codes, words: pa.Array) -> pa.DictionaryArray:
    """A column out of the numbers of words, from 1; 0 for null. Its dictionary has those that occur."""
    occurs = np.bincount(codes, minlength=len(words) + 1) > 0
    has_null, occurs[0] = occurs[0], False
    places = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    places[0] = -1
    found = places.take(codes)
    indices = pa.array(found, mask=found < 0 if has_null else None)
    return pa.DictionaryArray.from_arrays(indices, words.filter(pa.array(occurs[1:])))


def codes_of(column: pa.DictionaryArray) -> Codes:
    """Numbers of the words of a column, from 1; 0 for null."""
    indices = column.indices
    return np.asarray(indices.fill_null(-1) if indices.null_count else indices) + 1


def as_texts(column: pa.Array) -> pa.Array:
    """The same column without a dictionary."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def as_words(column: pa.Array) -> pa.DictionaryArray:
    """The same column with a dictionary."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def without(column: pa.Array, kept: pa.BooleanArray) -> pa.Array:
    """The rows of a column that are kept. Nothing of the others stays in its dictionary."""
    if not pa.types.is_dictionary(column.type):
        return column.filter(kept)
    return coded(codes_of(column.filter(kept)), column.dictionary)


def same_words(columns: Sequence[pa.Array]) -> list[pa.DictionaryArray]:
    """The same columns, all with one dictionary, which may have texts that occur in one of them only."""
    together = pa.chunked_array([as_words(column) for column in columns]).unify_dictionaries()
    return [together.chunk(number) for number in range(len(columns))]


def texts_where(column: pa.Array, holds: Callable[[pa.Array], pa.BooleanArray]) -> Mask | None:
    """Mask of the texts for which `holds` is true, asked once per different text; None if there is none.

    Args:
        column: Texts, with a dictionary or without. Null is no text.
        holds: For a column of texts whether it holds for each.
    """
    if not pa.types.is_dictionary(column.type):
        found = np.asarray(holds(column).fill_null(False))
        return found if found.any() else None
    of_words = np.append(False, np.asarray(holds(column.dictionary), np.bool_))
    return of_words.take(codes_of(column)) if of_words.any() else None
