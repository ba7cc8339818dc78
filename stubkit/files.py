"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from protofly.errors import SettingsError

PUBLIC_FILE_MODE = 0o644
PRIVATE_FILE_MODE = 0o600


def replace_file(path: Path, content: bytes, *, mode: int = PUBLIC_FILE_MODE) -> None:
    """Put `content` where `path` is, under another name first; readers see the old file or the new one.

    Raises:
        SettingsError: it cannot be written; then nothing has changed.
    """
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as exc:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise SettingsError(f"{path}: cannot be written: {exc.strerror}") from exc
