"""A scene: domains, runtimes, what they send, what goes wrong meanwhile, and what has to hold all the same.

`docs/lab.md` describes the file for those who write scenes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from protofly.address import valid_domain
from protofly.errors import HostError, SettingsError

Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
ObjectName = Annotated[str, Meta(pattern=r"^([a-z][a-z0-9-]{0,31})?$")]
Seconds = Annotated[float, Meta(ge=0.0, le=600.0)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Rate = Annotated[float, Meta(gt=0.0, le=2_000.0)]
DomainKind = Literal["ours", "hostile"]
LoadKind = Literal["event", "request"]
ActionKind = Literal["claim", "release", "subscribe", "unsubscribe", "publish", "park", "leave", "return"]
FaultKind = Literal["kill", "restart", "pause", "full-disk", "cut", "drop", "half-open", "delay", "throttle"]
Misdeed = Literal["forge-ours", "forge-third", "garbage"]
PromiseName = Literal["once", "order", "kept", "answered", "genuine", "recovery", "neighbours", "history"]

PROMISES: Final[tuple[PromiseName, ...]] = (
    "once",
    "order",
    "kept",
    "answered",
    "genuine",
    "recovery",
    "neighbours",
    "history",
)
NODE_FAULTS: Final = frozenset({"kill", "restart", "pause", "full-disk"})
LINE_FAULTS: Final = frozenset({"cut", "drop", "half-open", "delay", "throttle"})
MOST_MESSAGES: Final = 200_000
MOST_RUNTIMES: Final = 200


class Domain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One domain. `policy` is a file; by default the others may talk. `does` is for hostile domains only."""

    name: str
    kind: DomainKind = "ours"
    policy: str = ""
    does: tuple[Misdeed, ...] = ()
    per_second: Rate = 5.0


class Runtime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One runtime; with `count` above 1, that many: `name-1`, `name-2`, and so on."""

    name: Word
    domain: str
    count: Annotated[int, Meta(ge=1, le=100)] = 1


class Load(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Numbered messages from each runtime of a name to each of another, `per_second` each."""

    from_: Word
    to: Word
    kind: LoadKind = "event"
    per_second: Rate = 10.0
    bytes: Annotated[int, Meta(ge=0, le=200_000)] = 100
    start: Seconds = 0.0
    seconds: Seconds = 5.0


class Shared(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thing that runtimes of the scene share: `thing://<domain>/<name>`."""

    name: Word
    domain: str


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that one runtime does; all but `leave` and `return` concern an `object`."""

    at: Seconds
    runtime: Word
    does: ActionKind
    object: ObjectName = ""


class Heard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A moment: when a runtime has heard so many messages of loads."""

    runtime: Word
    messages: Count


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. It begins `at` so many seconds, or `after` something was heard, and ends after `lasts`.

    Faults of a node name a `domain`, faults of a line the two domains `between` which it is.
    """

    does: FaultKind
    at: Seconds | None = None
    after: Heard | None = None
    lasts: Annotated[float, Meta(ge=0.0, le=120.0)] = 1.0
    domain: str | None = None
    between: tuple[str, str] | None = None
    milliseconds: Annotated[int, Meta(ge=1, le=10_000)] = 200
    bytes_per_second: Annotated[int, Meta(ge=100, le=10_000_000)] = 10_000

    @property
    def title(self) -> str:
        """What happens to what, in a few words."""
        return f"{self.does} {self.domain or ' – '.join(self.between or ())}"

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that it hits."""
        return (self.domain,) if self.domain else self.between or ()


class Bars(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which promises this scene tests, and their numbers. A promise in `tests` for which nothing was seen is broken."""

    tests: tuple[PromiseName, ...] = ("once", "order", "kept", "genuine")
    recovery_seconds: Seconds = 20.0
    neighbours_p99_ms: Annotated[float, Meta(gt=0.0)] = 1_000.0
    settle_seconds: Seconds = 20.0


class LabScene(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    title: str
    domain: tuple[Domain, ...]
    runtime: tuple[Runtime, ...]
    load: tuple[Load, ...] = ()
    object: tuple[Shared, ...] = ()
    action: tuple[Action, ...] = ()
    fault: tuple[Fault, ...] = ()
    promise: Bars = Bars()

    def names_of(self, runtime: str) -> tuple[str, ...]:
        """The runtimes that a name stands for."""
        [entry] = [one for one in self.runtime if one.name == runtime]
        if entry.count == 1:
            return (runtime,)
        return tuple(f"{runtime}-{number}" for number in range(1, entry.count + 1))

    @property
    def runtimes(self) -> dict[str, str]:
        """Domain of each runtime."""
        return {name: entry.domain for entry in self.runtime for name in self.names_of(entry.name)}

    @property
    def our_domains(self) -> tuple[str, ...]:
        """Names of the domains with a node of ours, in order."""
        return tuple(one.name for one in self.domain if one.kind == "ours")

    @property
    def seconds(self) -> float:
        """When the last load, action or fault with a time ends."""
        ends = [load.start + load.seconds for load in self.load]
        ends += [action.at for action in self.action]
        ends += [fault.at + fault.lasts for fault in self.fault if fault.at is not None]
        return max(ends, default=0.0)


def problems_of(scene: LabScene) -> Iterator[str]:
    """Everything that is wrong with a scene although each value is allowed by itself; nothing if it can run."""
    domains = {one.name: one for one in scene.domain}
    yield from _twice("domain", [one.name for one in scene.domain])
    yield from _twice("runtime", [one.name for one in scene.runtime])
    if len(scene.our_domains) < 2:
        yield "a scene has at least two domains of kind ours: nothing would cross"
    for domain in scene.domain:
        yield from _domain_problems(domain)
    known = {one.name for one in scene.runtime}
    for runtime in scene.runtime:
        if runtime.domain not in domains:
            yield f"runtime {runtime.name}: there is no domain {runtime.domain}"
        elif domains[runtime.domain].kind == "hostile":
            yield f"runtime {runtime.name}: {runtime.domain} is hostile and has no runtimes"
    named = [("load", name) for load in scene.load for name in (load.from_, load.to)]
    named += [("action", one.runtime) for one in scene.action]
    named += [("fault", one.after.runtime) for one in scene.fault if one.after is not None]
    yield from (f"{what}: there is no runtime {name}" for what, name in named if name not in known)
    yield from _action_problems(scene)
    for fault in scene.fault:
        yield from (
            f"fault {fault.title}: {problem}" for problem in _fault_problems(fault, frozenset(scene.our_domains))
        )
    if all(name in known for _, name in named):
        yield from _size_problems(scene)
    yield from _promise_problems(scene)


def _twice(what: str, names: list[str]) -> Iterator[str]:
    yield from (f"{what} {name} is there twice" for name in sorted({one for one in names if names.count(one) > 1}))


def _domain_problems(domain: Domain) -> Iterator[str]:
    try:
        valid_domain(domain.name)
    except HostError as exc:
        yield f"domain {domain.name}: {exc.detail}"
    if domain.kind == "hostile" and not domain.does:
        yield f"domain {domain.name}: a hostile domain needs `does`"
    if domain.kind == "ours" and domain.does:
        yield f"domain {domain.name}: `does` is for domains of kind hostile"


def _action_problems(scene: LabScene) -> Iterator[str]:
    objects = {one.name: one.domain for one in scene.object}
    yield from _twice("object", [one.name for one in scene.object])
    for name, domain in objects.items():
        if domain not in scene.our_domains:
            yield f"object {name}: {domain} is no domain of kind ours"
    for action in scene.action:
        if action.does in {"leave", "return"}:
            if action.object:
                yield f"action {action.does} of {action.runtime}: takes no `object`"
        elif action.object not in objects:
            yield f"action {action.does} of {action.runtime}: there is no object {action.object!r}"


def _fault_problems(fault: Fault, ours: frozenset[str]) -> Iterator[str]:
    if (fault.at is None) == (fault.after is None):
        yield "needs either `at` or `after`"
    if fault.does in NODE_FAULTS:
        if fault.domain not in ours or fault.between is not None:
            yield "needs `domain`, of kind ours, and no `between`"
    elif fault.domain is not None or fault.between is None or len(ours & {*fault.between}) < 2:
        yield "needs `between`, with two domains of kind ours, and no `domain`"


def _size_problems(scene: LabScene) -> Iterator[str]:
    messages = sum(
        len(scene.names_of(load.from_)) * len(scene.names_of(load.to)) * load.per_second * load.seconds
        for load in scene.load
    )
    if messages > MOST_MESSAGES:
        yield f"the loads are {messages:,.0f} messages; at most {MOST_MESSAGES:,} can be judged"
    if len(scene.runtimes) > MOST_RUNTIMES:
        yield f"{len(scene.runtimes)} runtimes; at most {MOST_RUNTIMES} are possible"


def _promise_problems(scene: LabScene) -> Iterator[str]:
    tested = scene.promise.tests
    if not tested:
        yield "promise: `tests` is empty: this scene cannot fail"
    needs: dict[str, tuple[object, str]] = {
        "recovery": (scene.fault, "a fault"),
        "answered": ([one for one in scene.load if one.kind == "request"], "a load of requests"),
        "neighbours": (scene.load, "a load"),
        "history": (scene.action, "an action"),
        "once": (scene.load, "a load"),
        "order": (scene.load, "a load"),
        "kept": (scene.load, "a load"),
    }
    for name in tested:
        there, what = needs.get(name, (True, ""))
        if not there:
            yield f"promise {name}: cannot fail without {what}"


def check_scene(scene: LabScene, source: str) -> None:
    """Raise SettingsError with every problem of the scene; `source` names it."""
    problems = list(problems_of(scene))
    if problems:
        raise SettingsError("\n".join(f"{source}: {problem}" for problem in problems))
