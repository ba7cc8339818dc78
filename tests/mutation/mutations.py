"""Small changes to a module, one at a time: which there are, and what the module reads like with one of them.

Theory of operation. A walk over the syntax tree finds the places; a change is a replacement of some bytes of the
source, so that a survivor can be shown as two lines and everything else keeps its place. Changed is what a module
decides with: comparisons, conditions, arithmetic, numbers, effects, and checks that refuse. Left alone is what it says
(texts, docstrings, error details), how it is declared (decorators, class keywords, types), and numbers above
`CHOSEN_NUMBER` that are given a name at the top: those are chosen, and tests hold against the name.

A *guard* is a check that leaves: an `if` without `else` whose body ends with `raise`, `return`, `continue` or `break`,
a bound in a type (`Meta`), a filter, a guard of a `case`, an exception among several that are caught. Changes to its
condition count as changes to a guard.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

CHOSEN_NUMBER: Final = 255

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TEXT: Final = (str, bytes)
_LEAVING: Final = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_DECLARING_KEYWORDS: Final = frozenset({"strict", "maxsize", "default", "init", "repr", "slots", "frozen", "kw_only"})
_GUARDED_TYPE: Final = "Meta"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change. `start` and `end` are byte offsets in the source; `function` is "" outside of functions and classes.

    `before` and `after` are the changed lines without indentation: with module and function they name the change for
    as long as nobody touches these lines.
    """

    module: str
    function: str
    kind: str
    is_guard: bool
    line: int
    start: int
    end: int
    replacement: str
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in the list of equivalents; equal changes of one function share a name."""
        return self.module, self.function, self.before, self.after

    def applied_to(self, source: bytes) -> bytes:
        """The source with this change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]

    def is_possible_in(self, source: bytes) -> bool:
        """Whether the source is Python with this change; a few are not, and to find out takes long for them all."""
        try:
            ast.parse(self.applied_to(source))
        except SyntaxError:
            return False
        return True


def mutations_of(source: bytes, module: str) -> list[Mutation]:
    """All changes of one module, in the order of their places."""
    changes = _Changes(source, module)
    _Statements(changes).visit(ast.parse(source))
    return sorted(changes.found, key=lambda one: (one.start, one.end, one.replacement))


class _Places:
    """Byte offsets of nodes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def line_of(self, offset: int) -> int:
        return self.source.count(b"\n", 0, offset) + 1

    def lines(self, start: int, end: int) -> tuple[int, int]:
        """Where the lines begin and end that hold these bytes."""
        first = self.source.rfind(b"\n", 0, start) + 1
        last = self.source.find(b"\n", end)
        return first, len(self.source) if last < 0 else last


class _Changes:
    """The changes found so far, and where the walk stands.

    Attributes:
        names: Classes and functions around the place.
        functions: How many of them are functions.
        guards: How many guards the place belongs to.
    """

    def __init__(self, source: bytes, module: str) -> None:
        self.places = _Places(source)
        self.found: list[Mutation] = []
        self.names: list[str] = []
        self.functions = 0
        self.guards = 0
        self._module = module

    @contextmanager
    def scope(self, name: str, *, is_function: bool) -> Iterator[None]:
        """A class or a function."""
        self.names.append(name)
        self.functions += is_function
        yield
        self.functions -= is_function
        self.names.pop()

    @contextmanager
    def guard(self, is_guard: bool = True) -> Iterator[None]:
        """Changes inside are changes to a guard."""
        self.guards += is_guard
        yield
        self.guards -= is_guard

    def replace(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        """Replace all of a node."""
        start, end = self.places.span(node)
        self._add(start, end, text, kind)

    def replace_between(self, left: ast.expr, right: ast.expr, words: tuple[str, str], kind: str) -> None:
        """Replace the operator that stands between two operands, among brackets, line ends and comments."""
        (_, start), (end, _) = self.places.span(left), self.places.span(right)
        gap = re.sub(rb"#[^\n]*", lambda found: b" " * len(found[0]), self.places.source[start:end])
        pattern = rb"\s+".join(re.escape(part.encode()) for part in words[0].split())
        found = re.search(rb"(?<![\w<>=!*/+&|^-])" + pattern + rb"(?![\w<>=!*/&|^])", gap)
        if found is not None:
            self._add(start + found.start(), start + found.end(), words[1], kind)

    def negate(self, test: ast.expr) -> None:
        """Turn a condition round that is neither a comparison nor made of several: those have changes of their own."""
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            start, end = self.places.span(test)
            self.replace(test, f"not ({self.places.source[start:end].decode()})", "negation")

    def _add(self, start: int, end: int, text: str, kind: str) -> None:
        source = self.places.source
        first, last = self.places.lines(start, end)
        before = source[first:last]
        after = source[first:start] + text.encode() + source[end:last]
        self.found.append(
            Mutation(
                module=self._module,
                function=".".join(self.names),
                kind=kind,
                is_guard=self.guards > 0,
                line=self.places.line_of(start),
                start=start,
                end=end,
                replacement=text,
                before=_on_one_line(before),
                after=_on_one_line(after),
            )
        )


class _Expressions(ast.NodeVisitor):
    """Changes what values are made of."""

    def __init__(self, changes: _Changes) -> None:
        self._changes = changes

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text with values in it is left alone."""

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Filters are guards."""
        self.visit(node.iter)
        for condition in node.ifs:
            with self._changes.guard():
                self._changes.replace(condition, "True", "filter removed")
                self._changes.negate(condition)
                self.visit(condition)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """One of two values."""
        self._changes.negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Boundary and negation."""
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            word, others = _COMPARISONS[type(operator)]
            for number, other in enumerate(others):
                kind = "boundary" if number == 0 and len(others) > 1 else "comparison"
                self._changes.replace_between(operands[place], operands[place + 1], (word, other), kind)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Each operand left out, unless it is a number as good as that (`x or 0`); each operator the other one."""
        is_and = isinstance(node.op, ast.And)
        for operand in node.values:
            if not (isinstance(operand, ast.Constant) and operand.value == is_and):
                self._changes.replace(operand, str(is_and), "condition dropped")
        words = ("and", "or") if is_and else ("or", "and")
        for left, right in pairwise(node.values):
            self._changes.replace_between(left, right, words, "and/or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without its `not`."""
        if isinstance(node.op, ast.Not):
            start, end = self._changes.places.span(node)
            self._changes.replace(node, self._changes.places.source[start + 3 : end].decode().strip(), "negation")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """The opposite operator; not between texts or types."""
        words = _ARITHMETIC.get(type(node.op))
        if words is not None and not any(_is_text(one) or _is_type(one) for one in (node.left, node.right)):
            self._changes.replace_between(node.left, node.right, words, "arithmetic")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """The opposite function; keywords that declare are left alone."""
        if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITES:
            self._changes.replace(node.func, _OPPOSITES[node.func.id], "opposite function")
        values = [keyword.value for keyword in node.keywords if keyword.arg not in _DECLARING_KEYWORDS]
        with self._changes.guard(_is_bound(node)):
            for value in (node.func, *node.args, *values):
                self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        """One more and one less; the other truth value."""
        value = node.value
        if isinstance(value, bool):
            self._changes.replace(node, str(not value), "constant")
        elif isinstance(value, int | float) and (self._changes.functions or abs(value) <= CHOSEN_NUMBER):
            for other in (value + 1, value - 1):
                if other >= 0:
                    self._changes.replace(node, repr(other), "constant")


class _Statements(ast.NodeVisitor):
    """Walks a module, and changes what statements do; their values are left to `_Expressions`."""

    def __init__(self, changes: _Changes) -> None:
        self._changes = changes
        self._expressions = _Expressions(changes)

    # What is left alone.

    def visit_Import(self, node: ast.Import) -> None:
        """Nothing to change."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Nothing to change."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not changed, whether it is raised is: see `_change_block`."""

    # Scopes.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Bases and keywords declare."""
        with self._changes.scope(node.name, is_function=False):
            for statement in node.body:
                self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Defaults are values; decorators and annotations declare."""
        with self._changes.scope(node.name, is_function=True):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
            self._change_block(node.body, has_condition=False)

    # Effects.

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose result nobody looks at has an effect."""
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._changes.replace(node, "pass", "effect removed")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Of an annotation only the bounds are changed."""
        for inner in ast.walk(node.annotation):
            if isinstance(inner, ast.Call) and _is_bound(inner):
                self.visit(inner)
        if node.value is not None:
            self._change_effect(node, [node.target])
            if not self._is_chosen(node.value):
                self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """What is assigned to a member or an entry is an effect."""
        self._change_effect(node, node.targets)
        is_list_of_names = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
        if not is_list_of_names and not self._is_chosen(node.value):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """The same, and with the opposite operator."""
        self._change_effect(node, [node.target])
        words = _ARITHMETIC.get(type(node.op))
        if words is not None and not _is_text(node.value):
            self._changes.replace_between(node.target, node.value, (f"{words[0]}=", f"{words[1]}="), "arithmetic")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """What is deleted is an effect."""
        self._changes.replace(node, "pass", "effect removed")

    def _is_chosen(self, value: ast.expr) -> bool:
        """Whether this is a number that is worked out at the top, such as `512 << 20`."""
        inner = list(ast.walk(value))
        is_number = all(isinstance(one, ast.BinOp | ast.operator | ast.Constant) for one in inner)
        return not self._changes.functions and isinstance(value, ast.BinOp) and is_number

    def _change_effect(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        is_new = self._changes.names[-1:] == ["__init__"]  # without it everything would break
        if not is_new and any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            self._changes.replace(node, "pass", "effect removed")

    # Blocks.

    def visit_If(self, node: ast.If) -> None:
        """A check: never true, and the other way round."""
        is_guard = not node.orelse and isinstance(node.body[-1], _LEAVING)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        with self._changes.guard(is_guard):
            self._changes.replace(node.test, "False", "guard removed" if is_guard else "branch removed")
            self._changes.negate(node.test)
            self.visit(node.test)
        self._change_block([*node.body, *node.orelse], has_condition=True)

    def visit_While(self, node: ast.While) -> None:
        """Its comparisons are changed with all others."""
        self.visit(node.test)
        self._change_block([*node.body, *node.orelse], has_condition=False)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Each of several exceptions that are caught."""
        if isinstance(node.type, ast.Tuple):
            for one in node.type.elts:
                with self._changes.guard():
                    self._changes.replace(one, "()", "exception not caught")
        self._change_block(node.body, has_condition=True)

    def visit_match_case(self, node: ast.match_case) -> None:
        """The guard of a case; patterns are left alone."""
        if node.guard is not None:
            with self._changes.guard():
                self._changes.replace(node.guard, "True", "guard removed")
                self.visit(node.guard)
        self._change_block(node.body, has_condition=True)

    def visit(self, node: ast.AST) -> None:
        """Change a statement, or the values in an expression."""
        if isinstance(node, ast.expr):
            self._expressions.visit(node)
        else:
            super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Statements in any other block: of a function, a loop, a `try`, a `case`."""
        for _, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            if parts and isinstance(parts[0], ast.stmt):
                self._change_block(parts, has_condition=False)
                continue
            for part in parts:
                if isinstance(part, ast.AST):
                    self.visit(part)

    def _change_block(self, body: list[ast.stmt], *, has_condition: bool) -> None:
        for statement in body:
            if isinstance(statement, ast.Raise) and not has_condition:
                with self._changes.guard():
                    self._changes.replace(statement, "pass", "guard removed")
            self.visit(statement)


def _on_one_line(lines: bytes) -> str:
    return " ".join(lines.decode().split())


def _is_bound(node: ast.Call) -> bool:
    """Whether this is what `Annotated` holds a bound in."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return bool(name == _GUARDED_TYPE)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, _TEXT)
    return is_text or isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict | ast.Set)


def _is_type(node: ast.expr) -> bool:
    """Whether this looks like a part of a union: `dict`, `str | None`, `list[str]`."""
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr[:1].isupper() and not node.attr.isupper()
    if isinstance(node, ast.Name):
        return node.id in ("str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set", "frozenset") or (
            node.id[:1].isupper() and not node.id.isupper()
        )
    return isinstance(node, ast.Constant) and node.value is None
