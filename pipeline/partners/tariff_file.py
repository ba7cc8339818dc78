"""The file of tariffs that were agreed with partners."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from pipeline.core.tariffs import Tariff, read_tariffs
from protofly.errors import SettingsError

TARIFFS_BYTES: Final = 4 << 20


def load_tariffs(path: Path) -> tuple[Tariff, ...]:
    """Read a TOML file of tariffs.

    Raises:
        SettingsError: It cannot be read, is too large, is no TOML, or not what `read_tariffs` takes.
    """
    try:
        with path.open("rb") as file:
            content = file.read(TARIFFS_BYTES + 1)
        if len(content) > TARIFFS_BYTES:
            raise SettingsError(f"{path}: too large for a file of tariffs")
        return read_tariffs(tomllib.loads(content.decode()))
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise SettingsError(f"{path}: {exc}") from exc
    except SettingsError as exc:
        raise exc if exc.detail.startswith(str(path)) else SettingsError(f"{path}: {exc.detail}") from exc
