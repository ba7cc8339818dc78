"""What is wrong with a TOML file is said with its line, and with what is possible there."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from protofly.errors import SettingsError
from protofly.toml_lines import read_toml


class Step(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    from_: str
    kind: Literal["one", "two"] = "one"
    count: Annotated[int, Meta(le=3)] | None = None


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    step: tuple[Step, ...] = ()
    first: Step | None = None


GOOD = 'title = "t"\n\n[[step]]\nfrom = "a"\n\n[[step]]\nfrom = "b"\nkind = "two"\n'


def test_a_good_file_gives_its_content_and_lines() -> None:
    plan, lines = read_toml(GOOD.encode(), Plan, "plan.toml")
    assert [(one.from_, one.kind) for one in plan.step] == [("a", "one"), ("b", "two")]
    assert (lines["step", 1], lines["step", 1, "kind"]) == (6, 8)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"two"', '"tow"', "plan.toml:8: step[1].kind: 'tow': expected one of one, two"),
        ("kind", "kin", "plan.toml:8: step[1].kin: unknown; did you mean `kind`?"),
        ("kind", "colour", "plan.toml:8: step[1].colour: unknown; known here: count, from, kind"),
        ('kind = "two"', "count = 4", "plan.toml:8: step[1].count: Expected a whole number <= 3"),
        ('kind = "two"', "count = true", "step[1].count: Expected a whole number or nothing, got true or false"),
        ('from = "b"', "", "plan.toml:6: step[1]: Object missing required field `from`"),
        ('title = "t"', "", "plan.toml: Object missing required field `title`"),
        (
            'title = "t"',
            'title = "t"\n[first]\nfrom = "x"\nkind = "y"',
            "plan.toml:4: first.kind: 'y': expected",
        ),
        ('title = "t"', 'title = "t', "at line 1"),
        ('title = "t"', "title = " + "[" * 10_000, "plan.toml: "),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(SettingsError) as caught:
        read_toml(GOOD.replace(old, new, 1).encode(), Plan, "plan.toml")
    assert complaint in caught.value.detail


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_settings_error(raw: bytes) -> None:
    with pytest.raises(SettingsError, match=r"^settings: f:"):
        read_toml(b"x = 1\n" + raw, Plan, "f")
