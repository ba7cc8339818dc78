"""JSON schemas of data objects: read with bounds, asked for children, and held against what reporters write.

A schema comes from a catalogue, which nobody has signed for: it is hostile until looked at. Taken are schemas of a
bounded size that refer only to themselves, in no circle; then what a check costs is bounded by the number of their
parts times the length of the value, and so is the value that is checked at all. Patterns run on an engine that needs
linear time, and nothing is ever fetched by a schema. What the parts mean is the library's: JSON Schema drafts 4 to
2020-12, by `$schema`.

Source: feature rows SM-18 and DS-21; data formats, section 2; JSON Schema 2020-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from msg_node.kernel.resources import Members
from protofly.errors import Code, PeerError
from protofly.limits import (
    RESOURCES_ENTRIES,
    SCHEMA_DEPTH,
    SCHEMA_PARTS,
    SCHEMA_PATTERN_BYTES,
    SCHEMA_PATTERN_CHARS,
    SCHEMA_WORK,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidatorMap

Schema = Mapping[str, object]

_MAPS: Final = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas"}
)
_PARTS: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_NAMES_OTHERS: Final = frozenset({"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$anchor"})
_DEAR: Final = ("multipleOf", "uniqueItems", "unevaluatedItems", "unevaluatedProperties")
_DEAR_PARTS: Final = 20
_PATTERN_CHARS_A_PART: Final = 10
_INDEX_DIGITS: Final = 9


class DataSchema:
    """One schema, ready to be asked.

    Raises:
        PeerError: SCHEMA, saying why it is not used.
    """

    def __init__(self, source: Schema) -> None:
        self._source = source
        self._weigher = _Weigher(source)
        self._weights = {"#": self._weigher.weigh(source, is_root=True)}  # of parts that were asked for, by pointer
        self._validators = _compiled(source)

    @property
    def children(self) -> tuple[str, ...]:
        """Names of the child resources of such objects: `properties.children`, as reTHINK schemas list them."""
        properties = self._source.get("properties")
        listed = properties.get("children") if isinstance(properties, dict) else None
        if not isinstance(listed, dict):
            return ()
        names = listed.get("constant", listed.get("const", listed.get("default")))
        texts = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        return tuple(dict.fromkeys(name for name in texts[:RESOURCES_ENTRIES] if _is_child_name(name)))

    def check_change(self, members: Members, length: int) -> None:
        """Hold what an `update` to `<object>/changes` says against the schema; `length` is that of its body, in bytes.

        Raises:
            PeerError: SCHEMA, saying what does not fit.

        Source: message specification, section 9.4.
        """
        attribute = members.get("attribute")
        if not isinstance(attribute, str) or not attribute:
            if isinstance(members.get("value"), dict):
                self._check("#", members["value"], length)
            return
        is_array = members.get("attributeType") == "array"
        if is_array and members.get("operation") == "remove":
            return  # the value says how many
        if "value" not in members:
            self._check_removal(attribute)
            return
        pointer = self._pointer(attribute.split("."), attribute)
        value = members["value"]
        if pointer is None:
            return
        if is_array and members.get("operation") == "add" and isinstance(value, list):
            for element in value:
                self._check(pointer, element, length)
        else:
            self._check(pointer, value, length)

    def _check(self, pointer: str, value: object, length: int) -> None:
        from jsonschema_rs import ValidationError

        validator = self._validators.get(pointer)
        if validator is None:
            return
        weight = self._weights.get(pointer)
        if weight is None:
            weight = self._weights[pointer] = self._weigher.weigh(_at(self._source, pointer))
        if weight * length > SCHEMA_WORK:
            raise PeerError(Code.SCHEMA, "the value is too large to be checked")
        try:
            validator.validate(value)
        except ValidationError as exc:
            place = "".join(f"/{step}" for step in exc.instance_path)
            raise PeerError(Code.SCHEMA, f"{place or '/'}: {exc.message}"[:300]) from exc

    def _check_removal(self, attribute: str) -> None:
        *above, name = attribute.split(".")
        pointer = self._pointer(above, attribute)
        required = None if pointer is None else self._followed(pointer)[1].get("required")
        if isinstance(required, list) and name in required:
            raise PeerError(Code.SCHEMA, f"{attribute} is required")

    def _pointer(self, path: list[str], attribute: str) -> str | None:
        """Return the pointer to the part of the schema about an attribute; None if there is none.

        Raises:
            PeerError: SCHEMA, when there may be no such attribute.
        """
        pointer = "#"
        for step in path:  # each leads further into the schema, which has so many parts
            pointer, part = self._followed(pointer)
            properties, items = part.get("properties"), part.get("items")
            if isinstance(properties, dict) and step in properties:
                pointer = f"{pointer}/properties/{_escaped(step)}"
            elif isinstance(items, dict) and step.isdecimal():
                pointer = f"{pointer}/items"
            elif part.get("additionalProperties") is False and not part.get("patternProperties"):
                raise PeerError(Code.SCHEMA, f"{attribute}: there is no such attribute")
            else:
                return None
        return pointer

    def _followed(self, pointer: str) -> tuple[str, Schema]:
        """A part of the schema, or the one that it refers to; there are no circles."""
        part = _at(self._source, pointer)
        while isinstance(part, dict) and isinstance(reference := part.get("$ref"), str):
            pointer, part = reference, _at(self._source, reference)
        return pointer, part if isinstance(part, dict) else {}


def check_configuration(schema: Schema, configuration: Members) -> None:
    """Hold the settings of a stub against the schema of its manifest.

    Raises:
        PeerError: SCHEMA, saying what does not fit, or why the schema is not used.
    """
    DataSchema(schema).check_change({"value": dict(configuration)}, len(msgspec.json.encode(configuration)))


def _compiled(source: Schema) -> ValidatorMap:
    """Every part of a schema, by its pointer.

    The library is loaded for the first schema: it takes 6 MB, which nodes that use none do not pay.
    """
    from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, validator_map_for

    patterns = RegexOptions(size_limit=SCHEMA_PATTERN_BYTES, dfa_size_limit=SCHEMA_PATTERN_BYTES)
    try:
        validators = validator_map_for(dict(source), offline=True, validate_formats=False, pattern_options=patterns)
    except (ValidationError, ReferencingError, ValueError) as exc:
        raise PeerError(Code.SCHEMA, f"no usable JSON schema: {str(exc).partition(chr(10))[0][:200]}") from exc
    if "#" not in validators:  # parts that cannot be compiled are left out, and what they are in as well
        raise PeerError(Code.SCHEMA, "no usable JSON schema: a pattern is too large, or needs to look around")
    return validators


class _Weigher:
    """Counts the parts of a schema as if each reference were written out.

    A part that two others refer to counts twice, as it does when a value is checked.
    """

    def __init__(self, source: Schema) -> None:
        self._source = source
        self._known: dict[str, int] = {}
        self._open: set[str] = set()

    def weigh(self, node: object, depth: int = 0, *, is_root: bool = False) -> int:
        """Parts of one part of it, `depth` levels down.

        Raises:
            PeerError: SCHEMA, when there are too many, or it is not known how many.
        """
        if not isinstance(node, dict):
            return 1
        if depth > SCHEMA_DEPTH:
            raise PeerError(Code.SCHEMA, "the schema is nested too deep")
        for name in node:
            is_other = name in _NAMES_OTHERS or (name in ("$id", "id") and isinstance(node[name], str) and not is_root)
            if is_other:
                raise PeerError(Code.SCHEMA, f"schemas with {name} inside are not used")
        referred = self._referred(node["$ref"], depth) if "$ref" in node else 0
        parts = _bounded(1 + self._own(node) + referred)
        for part in _parts_of(node):
            parts = _bounded(parts + self.weigh(part, depth + 1))
        return parts

    def _own(self, node: Schema) -> int:
        """Return the cost of a part without those in it."""
        texts = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        patterns = node.get("patternProperties")
        texts += list(patterns) if isinstance(patterns, dict) else []
        if any(len(str(text)) > SCHEMA_PATTERN_CHARS for text in texts):
            raise PeerError(Code.SCHEMA, f"a pattern is longer than {SCHEMA_PATTERN_CHARS} characters")
        listed = [len(value) for name in ("enum", "required") if isinstance(value := node.get(name), list)]
        patterned = sum(len(str(text)) for text in texts) // _PATTERN_CHARS_A_PART
        dear = sum(_DEAR_PARTS for name in _DEAR if name in node)
        return patterned + sum(listed) + dear

    def _referred(self, reference: object, depth: int) -> int:
        if not isinstance(reference, str) or not reference.startswith("#/") or "~" in reference or "%" in reference:
            raise PeerError(Code.SCHEMA, "schemas that refer to others, or to themselves as a whole, are not used")
        if reference in self._open:
            raise PeerError(Code.SCHEMA, "schemas that refer to themselves in a circle are not used")
        known = self._known.get(reference)
        if known is None:
            target = _at(self._source, reference)
            if target is None:
                raise PeerError(Code.SCHEMA, f"{reference[:80]} is not in the schema")
            self._open.add(reference)
            known = self._known[reference] = self.weigh(target, depth + 1)
            self._open.discard(reference)
        return known


def _bounded(parts: int) -> int:
    """So many parts, as soon as they are counted: nothing more is looked at once there are too many."""
    if parts > SCHEMA_PARTS:
        raise PeerError(Code.SCHEMA, f"the schema has more than {SCHEMA_PARTS} parts")
    return parts


def _parts_of(node: Schema) -> Iterator[object]:
    """Everything in a schema that is a schema itself; a property may be called as a keyword is."""
    for name, value in node.items():
        if name in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif name in _PARTS:
            yield from value if isinstance(value, list) else [value]


def _at(source: Schema, pointer: str) -> object:
    """Follow a pointer `#/a/b`; None if it leads nowhere."""
    found: object = source
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            index = int(name) if _is_index(name) else len(found)
            found = found[index] if index < len(found) else None
        elif isinstance(found, dict):
            found = found.get(name)
        else:
            return None
    return found


def _is_index(name: str) -> bool:
    """True if this may number an element: RFC 6901, section 4, with as many digits as any list of a schema needs."""
    is_number = name.isascii() and name.isdigit() and len(name) <= _INDEX_DIGITS
    return is_number and (name == "0" or not name.startswith("0"))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _is_child_name(name: str) -> bool:
    return 0 < len(name) <= 128 and not any(character in "/:*" or character.isspace() for character in name)
