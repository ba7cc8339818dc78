"""Changes of modules: which places are found, what is left alone, and what a change is called."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.mutation.equivalents import changes_of
from tests.mutation.mutations import Mutation, mutations_of
from tests.mutation.targets import Group, groups


def changes(source: str) -> list[Mutation]:
    return mutations_of(dedent(source).encode(), "some.module")


def lines_after(source: str) -> list[str]:
    return [one.after for one in changes(source)]


@pytest.mark.parametrize(
    ("expression", "after"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a > b", {"a >= b", "a <= b"}),
        ("a <= b <= c", {"a < b <= c", "a > b <= c", "a <= b < c", "a <= b > c"}),
        ("a == b", {"a != b"}),
        ("a is not b", {"a is b"}),
        ("a not in b", {"a in b"}),
        ("a and b", {"True and b", "a and True", "a or b"}),
        ("a or (b)", {"False or (b)", "a or (False)", "a and (b)"}),
        ("a or 0", {"False or 0", "a and 0", "a or 1"}),
        ("a or ''", {"False or ''", "a or False", "a and ''"}),
        ("not a", {"a"}),
        ("a + b", {"a - b"}),
        ("a >> b", {"a << b"}),
        ("(a) // (b)", {"(a) * (b)"}),
        ("a | b", {"a & b"}),
        ("f(7)", {"f(8)", "f(6)"}),
        ("f(0)", {"f(1)"}),
        ("f(is_x=True)", {"f(is_x=False)"}),
        ("min(a, b)", {"max(a, b)"}),
        ("all(a)", {"any(a)"}),
        ("a if b else c", {"a if not (b) else c"}),
        ("[x for x in a if x]", {"[x for x in a if True]", "[x for x in a if not (x)]"}),
    ],
)
def test_a_value_is_changed_in_each_way_that_it_can_be(expression: str, after: set[str]) -> None:
    assert {one.removeprefix("return ") for one in lines_after(f"def f():\n    return {expression}\n")} == after


@pytest.mark.parametrize(
    "left_alone",
    [
        '"""A text with 1 and 2."""',
        'def f():\n    """Text."""',
        "from a import b",
        'x = f"{a + 1:>8}"',
        'y = "a" + b',
        "z = isinstance(a, str | None)",
        "Pair = dict[str, int] | None",
        "CHOSEN_BYTES = 65_536",
        "CHOSEN_BYTES: Final = 512 << 20",
        "class C:\n    seconds = 30 * 86_400.0",
        "@decorated(maxsize=7, flag=True)\nclass C(Base, frozen=True):\n    name: Annotated[str, Other(3)]",
        "__all__ = [1]",
        "if TYPE_CHECKING:\n    pass",
        "def f():\n    if x == 1:\n        raise Wrong(Code.A, text[:200])\n".replace("x == 1", "x"),
    ],
)
def test_what_is_said_and_declared_is_left_alone(left_alone: str) -> None:
    kinds = {one.kind for one in changes(left_alone)}
    assert kinds <= {"guard removed", "negation"}
    assert not kinds or "raise" in left_alone


def test_numbers_with_a_name_are_changed_up_to_a_byte_and_all_others_always() -> None:
    assert lines_after("A = 255\nB = 256\ndef f(x=1000):\n    return 1 << 20\n")[:2] == ["A = 254", "A = 256"]
    assert {"B = 257", "B = 255"}.isdisjoint(lines_after("B = 256\n"))
    assert {"return 1 << 21", "def f(x=1001):"} <= set(lines_after("def f(x=1000):\n    return 1 << 20\n"))


GUARDS = """
    class C:
        bound: Annotated[str, Meta(max_length=3)]

        def f(self):
            if a < b:
                raise Wrong("no")
            if c:
                x = 1
            else:
                return 2
            for one in d:
                if e and f:
                    continue
            try:
                g()
            except (A, B):
                pass
            match h:
                case 1 if i:
                    return 3
            raise Wrong("at last")
"""


def test_guards_are_known_as_such() -> None:
    found = [(one.kind, one.before, one.after) for one in changes(GUARDS) if one.is_guard]
    assert {
        ("constant", "bound: Annotated[str, Meta(max_length=3)]", "bound: Annotated[str, Meta(max_length=4)]"),
        ("guard removed", "if a < b:", "if False:"),
        ("boundary", "if a < b:", "if a <= b:"),
        ("guard removed", "if e and f:", "if False:"),
        ("condition dropped", "if e and f:", "if e and True:"),
        ("exception not caught", "except (A, B):", "except (A, ()):"),
        ("guard removed", "case 1 if i:", "case 1 if True:"),
        ("guard removed", 'raise Wrong("at last")', "pass"),
    } <= set(found)
    assert not any("if c" in before or "return" in before for _, before, _ in found)
    assert ("branch removed", "if c:", "if False:") in [(one.kind, one.before, one.after) for one in changes(GUARDS)]


@pytest.mark.parametrize("effect", ["self.x = 1", "self.x += y", "x[1] = y", "del x[1]", "f(x)"])
def test_effects_are_removed(effect: str) -> None:
    assert "pass" in lines_after(f"def f():\n    {effect}\n")


def test_what_a_new_object_gets_is_not_removed() -> None:
    assert "pass" not in lines_after("class C:\n    def __init__(self, x):\n        self.x = x\n")


def test_an_operator_is_found_among_brackets_comments_and_lines() -> None:
    source = "def f():\n    return (\n        (a)  # is < b\n        < (\n            b\n        )\n    )\n"
    [boundary, negation] = changes(source)
    assert (boundary.line, boundary.before, boundary.after) == (4, "< (", "<= (")
    assert boundary.applied_to(source.encode()).decode() == source.replace("        < (", "        <= (")
    assert negation.after == ">= ("


def test_texts_that_are_not_ascii_move_nothing() -> None:
    source = 'def f():\n    return g("… größer") and a < b\n'
    assert 'return g("… größer") and a <= b' in lines_after(source)


def test_a_change_is_named_by_its_function_and_lines_and_not_by_its_place() -> None:
    plain = "class C:\n    def f(self):\n        return a < b\n"
    [boundary, _] = changes(plain)
    [moved, _] = changes("# One line more.\n\n" + plain)
    assert boundary.key == moved.key == ("some.module", "C.f", "return a < b", "return a <= b")
    assert boundary.line != moved.line


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_changes_of_the_cores_are_changes_and_hardly_one_is_no_python(group: Group) -> None:
    everything = [(path, one) for path in group.paths() for one in changes_of(path)]
    some = everything[:: len(everything) // 30 or 1]
    assert all(one.before != one.after for _, one in everything)
    assert sum(not one.is_possible_in(path.read_bytes()) for path, one in some) <= 1
