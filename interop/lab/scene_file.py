"""Scenes as files: those that come with the program, by name, and those of testers, by path."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from interop.lab.core.scene import LabScene, check_scene
from protofly.errors import SettingsError

SHIPPED: Final = Path(__file__).parent / "scenes"


def shipped_scenes() -> list[str]:
    """Names of the scenes that come with the program."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def scene_path(scene: str) -> Path:
    """The file of a scene: of a shipped one by its name, else of the path that was given."""
    return SHIPPED / f"{scene}.toml" if scene in shipped_scenes() else Path(scene)


def load_scene(path: Path) -> LabScene:
    """Read and check a scene.

    Raises:
        SettingsError: The file cannot be read, or does not hold a scene that can run; the text names all problems.
    """
    try:
        scene = msgspec.toml.decode(path.read_bytes(), type=LabScene)
    except OSError as exc:
        names = ", ".join(shipped_scenes())
        raise SettingsError(f"{path}: {exc.strerror}; scenes that come with the program: {names}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError(f"{path}: {exc}") from exc
    check_scene(scene, str(path))
    return scene
