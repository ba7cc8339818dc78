"""Scenes as files: those that come with the program, by name, and those of testers, by path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from interop.lab.core.scene import Domain, LabScene, check_scene
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
    domains = [_with_policy(domain, path, lines, index) for index, domain in enumerate(scene.domain)]
    return structs.replace(scene, domain=tuple(domains))


def _with_policy(domain: Domain, scene: Path, lines: Mapping[KeyPath, int], index: int) -> Domain:
    """The domain with the whole path of its policy, which is named from beside the scene."""
    if not domain.policy:
        return domain
    policy = scene.parent.absolute() / domain.policy
    if not policy.is_file():
        place = placed(str(scene), lines, ("domain", index, "policy"))
        raise SettingsError(f"{place}: domain {domain.name}: {policy} is no file")
    return structs.replace(domain, policy=str(policy))
