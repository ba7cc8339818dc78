"""Begin a stub: a folder with a source that works, its cases, and the commands to go on with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from protofly.errors import SettingsError

TEMPLATES: Final = Path(__file__).parent / "templates"
LANGUAGES: Final = {"c": ".c", "zig": ".zig", "assemblyscript": ".ts", "rust": ".rs", "js": ".js"}
"""Suffix of the source, by language."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")


def new_stub(name: str, language: str, folder: Path) -> list[Path]:
    """Write the files of a new stub into a folder that is made for it.

    Args:
        name: Name of the stub; the folder is `folder / name`.
        language: One of LANGUAGES.
        folder: Where the new folder is made.

    Returns:
        The files, the source first.

    Raises:
        SettingsError: The name or the language is none, or the folder exists.
    """
    if not _NAME.match(name) or name == "default":
        raise SettingsError(f"{name!r} cannot be the name of a stub: small letters, digits and `-`, at most 32")
    suffix = LANGUAGES.get(language)
    if suffix is None:
        raise SettingsError(f"no templates for {language!r}; there are some for {', '.join(LANGUAGES)}")
    target = folder / name
    proof = " --no-auth" if language == "js" else ""  # a script knows nothing of our proofs
    files = {
        f"{name}{suffix}": _template(f"stub{suffix}", name),
        "cases.json": _template("cases.js.json" if language == "js" else "cases.json", name),
        "README.md": _template("README.md", name).replace("@SOURCE@", f"{name}{suffix}").replace(" @PROOF@", proof),
    }
    try:
        target.mkdir()
        for file_name, text in files.items():
            (target / file_name).write_text(text, encoding="utf-8")
    except FileExistsError as exc:
        raise SettingsError(f"{target} exists already; name another folder") from exc
    except OSError as exc:
        raise SettingsError(f"{target}: {exc.strerror}") from exc
    return [target / file_name for file_name in files]


def _template(file_name: str, name: str) -> str:
    return (TEMPLATES / file_name).read_text(encoding="utf-8").replace("@NAME@", name)
