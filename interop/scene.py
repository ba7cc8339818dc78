"""A scene: who takes part in a conversation and what they say. Example: `examples/two_domains/group_chat.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from protofly.errors import SettingsError
from protofly.toml_lines import read_toml

Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Rate = Annotated[float, Meta(gt=0.0, le=100_000.0)]


class Person(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One user with one runtime in one domain."""

    name: Word
    domain: str

    @property
    def user(self) -> str:
        """Address of the user."""
        return f"user://{self.domain}/{self.name}"

    @property
    def runtime(self) -> str:
        """Address of the runtime."""
        return f"runtime://{self.domain}/rt-{self.name}"


class Room(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data object of the conversation."""

    name: str
    scheme: Word
    reporter: Word
    topic: str


class Chat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Amount and speed of a chat: `messages_per_second` for each speaker."""

    speakers: tuple[Word, ...]
    messages_each: Count
    messages_per_second: Rate


class Changes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number of changes of the object by its reporter."""

    updates: Count


class Forbidden(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message that must be refused with `code` and `reason`."""

    title: str
    speaker: Word
    type: Word
    to: str
    code: Annotated[int, Meta(ge=400, le=599)]
    reason: Word


class Scene(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    title: str
    person: tuple[Person, ...]
    room: Room
    chat: Chat
    changes: Changes
    forbidden: tuple[Forbidden, ...] = ()

    @property
    def reporter(self) -> Person:
        """Owner of the room."""
        return next(person for person in self.person if person.name == self.room.reporter)

    @property
    def observers(self) -> tuple[Person, ...]:
        """Everybody else."""
        return tuple(person for person in self.person if person.name != self.room.reporter)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of all persons, the reporter's first."""
        return tuple(dict.fromkeys([self.reporter.domain, *(person.domain for person in self.person)]))


def load_scene(path: Path) -> Scene:
    """Read a scene.

    Raises:
        SettingsError: when the file cannot be read, has unknown or missing members, or names somebody who takes no
        part.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    scene, _ = read_toml(text, Scene, str(path))
    names = [person.name for person in scene.person]
    if len(set(names)) != len(names):
        raise SettingsError(f"{path}: two persons have the same name; rename one")
    for name in (scene.room.reporter, *scene.chat.speakers, *(item.speaker for item in scene.forbidden)):
        if name not in names:
            raise SettingsError(f"{path}: {name!r} takes no part; persons are {', '.join(names)}")
    if len(scene.domains) < 2:
        raise SettingsError(
            f"{path}: all persons are in one domain, so nothing would cross; put one into another domain"
        )
    return scene
