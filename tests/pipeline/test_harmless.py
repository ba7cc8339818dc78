"""Text of strangers on a terminal."""

from __future__ import annotations

import pytest

from pipeline.core.harmless import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hyperty://b.example/ä b", "hyperty://b.example/ä b"),
        ("\x1b[31mred\r\nnext", "·[31mred··next"),
        ("\x9b0m\u202ea\u2028b\x00", "·0m·a·b·"),
        ("", ""),
    ],
)
def test_what_steers_a_terminal_is_shown_as_a_dot(text: str, shown: str) -> None:
    assert harmless(text) == shown
