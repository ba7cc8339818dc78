"""Scenes as files: those that come with the program, by name, and those of testers, by path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from interop.lab.core.scene import LabScene, check_scene
from protofly.errors import SettingsError
from protofly.toml_lines import KeyPath, placed, read_toml

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
        text = path.read_bytes()
    except OSError as exc:
        names = ", ".join(shipped_scenes())
        raise SettingsError(f"{path}: {exc.strerror}; scenes that come with the program: {names}") from exc
    scene, lines = read_toml(text, LabScene, str(path))
    check_scene(scene, str(path), lines)
    domains = [
        structs.replace(one, policy=policy_path(one.policy, path, f"{_place(path, lines, 'domain', index)} {one.name}"))
        for index, one in enumerate(scene.domain)
    ]
    faults = [
        structs.replace(one, policy=policy_path(one.policy, path, f"{_place(path, lines, 'fault', index)} {one.title}"))
        for index, one in enumerate(scene.fault)
    ]
    return structs.replace(scene, domain=tuple(domains), fault=tuple(faults))


def _place(scene: Path, lines: Mapping[KeyPath, int], what: str, index: int) -> str:
    return f"{placed(str(scene), lines, (what, index, 'policy'))}: {what}"


def policy_path(name: str, file: Path, where: str) -> str:
    """The whole path of a policy, which is beside a file, or beside the scenes of the program; "" for none.

    Raises SettingsError if it is at neither place; `where` begins its text.
    """
    places = [folder / name for folder in (file.parent.absolute(), SHIPPED)]
    found = next((str(one) for one in places if one.is_file()), "")
    if name and not found:
        raise SettingsError(f"{where}: {places[0]} is no file")
    return found
