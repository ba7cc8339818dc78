"""Text that strangers may have written, for people's eyes: a log, a terminal.

A terminal obeys control characters (C0 with ESC, and C1), bidirectional controls make a text look like another one, and
readers of lines break them at U+0085, U+2028 and U+2029. So every character that is not printable is shown by its
number: it does nothing, and the reader sees that it was there. ASCII space is the only printable space.

Source: ISO/IEC 6429; Unicode Technical Report 36, section 2.
"""

from __future__ import annotations

from typing import Final

_BEYOND_BMP: Final = 0x1_0000


def escaped(text: str, *, keep: str = "") -> str:
    """The text on one line, with what is not printable as an escape of Python.

    Args:
        text: Anything.
        keep: Characters that stay, for example the line feeds of a traceback.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _number(char) for char in text)


def escaped_json(text: str) -> str:
    """The same JSON, with what is not printable inside its strings as an escape of JSON; its own line feeds stay.

    Readers of JSON get the strings as they were. Only strings can hold such characters, so that no parsing is needed.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _units(char) for char in text)


def _number(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BEYOND_BMP else f"\\U{code:08x}"


def _units(char: str) -> str:
    code = ord(char)
    if code < _BEYOND_BMP:
        return f"\\u{code:04x}"
    code -= _BEYOND_BMP
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
