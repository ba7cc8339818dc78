"""The file of tariffs that were agreed with partners."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pipeline.core.tariffs import Tariff, read_tariffs
from pipeline.partners.toml_file import read_toml_file
from protofly.errors import SettingsError

TARIFFS_BYTES: Final = 4 << 20


def load_tariffs(path: Path) -> tuple[Tariff, ...]:
    """Read a TOML file of tariffs.

    Raises:
        SettingsError: It cannot be read, is too large, is no TOML, or not what `read_tariffs` takes.
    """
    values = read_toml_file(path, dict[str, Any], TARIFFS_BYTES)
    try:
        return read_tariffs(values)
    except SettingsError as exc:
        raise SettingsError(f"{path}: {exc.detail}") from exc
