"""A scene: domains, runtimes, what they send, what goes wrong meanwhile, and what has to hold all the same.

`docs/lab.md` describes the file for those who write scenes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from interop.hostile.core.misdeeds import unknown
from protofly.address import valid_domain
from protofly.errors import HostError, SettingsError
from protofly.toml_lines import KeyPath, placed

Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
ObjectName = Annotated[str, Meta(pattern=r"^([a-z][a-z0-9-]{0,31})?$")]
Seconds = Annotated[float, Meta(ge=0.0, le=600.0)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Rate = Annotated[float, Meta(gt=0.0, le=2_000.0)]
DomainKind = Literal["ours", "other", "link", "vertx", "nodejs", "nomatrix", "hostile"]
LoadKind = Literal["event", "request"]
ActionKind = Literal[
    "claim", "release", "subscribe", "unsubscribe", "publish", "park", "register", "find", "leave", "return"
]
FaultKind = Literal[
    "kill",
    "restart",
    "pause",
    "full-disk",
    "engine-down",
    "partition",
    "cut",
    "drop",
    "half-open",
    "delay",
    "throttle",
    "reorder",
    "dns-lies",
    "expired-documents",
    "rolled-back-documents",
    "forged-documents",
    "update",
    "broken-update",
    "revoked-stub",
    "clock-step",
    "clock-drift",
    "policy",
]
Lie = Literal["impostor", "nobody", "silence"]
BrokenStub = Literal[
    "babbling",
    "flooding",
    "growing",
    "looping",
    "lying",
    "pointing",
    "recursing",
    "trapping",
    "trespassing",
]
"""Stubs of the zoo, `interop/hostile/zoo/`."""
PromiseName = Literal["once", "order", "kept", "answered", "genuine", "recovery", "neighbours", "history", "stubs"]

PROMISES: Final[tuple[PromiseName, ...]] = (
    "once",
    "order",
    "kept",
    "answered",
    "genuine",
    "recovery",
    "neighbours",
    "history",
    "stubs",
)
SIMULATED: Final = frozenset({"vertx", "nodejs", "nomatrix"})
"""Kinds whose nodes are simulated, publish nothing and acknowledge nothing."""
IN_MEMORY: Final = SIMULATED | {"link"}
"""Kinds whose runtimes are connected in memory."""
PROCESSES: Final = frozenset({"ours", "other"})
SHARED_FAULTS: Final = frozenset({"engine-down", "partition"})
CLOCK_FAULTS: Final = frozenset({"clock-step", "clock-drift"})
DOCUMENT_FAULTS: Final = frozenset({"expired-documents", "rolled-back-documents", "forged-documents"})
RELEASE_FAULTS: Final = frozenset({"update", "broken-update", "revoked-stub"})
"""What was published stays published; they last for as long as partners are given to follow."""
PUBLISHING_FAULTS: Final = DOCUMENT_FAULTS | RELEASE_FAULTS
NODE_FAULTS: Final = (
    frozenset({"kill", "restart", "pause", "full-disk", "dns-lies", "policy"})
    | SHARED_FAULTS
    | CLOCK_FAULTS
    | PUBLISHING_FAULTS
)
PLACEHOLDERS: Final = frozenset(
    {"settings", "folder", "domain", "listen", "site", "certificate", "key", "ca_file", "name_server"}
)
"""What a command and the place of runtimes may hold in braces."""
FAULT_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "milliseconds": frozenset({"delay", "reorder"}),
    "bytes_per_second": frozenset({"throttle"}),
    "answer": frozenset({"dns-lies"}),
    "clock_seconds": CLOCK_FAULTS,
    "stub": frozenset({"broken-update"}),
    "policy": frozenset({"policy"}),
    "denies": frozenset({"policy"}),
}
"""Members of a fault that say something about some kinds only."""
MOST_MESSAGES: Final = 200_000
MOST_RUNTIMES: Final = 200
_IN_MEMORY_ACTIONS: Final = frozenset({"register", "leave", "return"})
LEASED_PAUSE_SECONDS: Final = 4.0
"""A node of several fences itself half a second later: docs/cluster.md."""
UNJUDGED: Final = frozenset({"leave", "return"})
"""Actions that are no operations of a history."""


class Domain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One domain. `policy` is a file; by default the others may talk. `does` is for hostile domains only.

    `nodes` of kind ours share a database. `command` starts the node of kind other, or another version of ours; it and
    `runtimes`, where runtimes connect, may hold `{settings}`, `{folder}`, `{domain}`, `{listen}`, `{site}`,
    `{certificate}`, `{key}`, `{ca_file}` and `{name_server}`. With `stub` and `endpoint`, a node of kind other
    publishes nothing, and the others speak with it by this stub.
    """

    name: str
    kind: DomainKind = "ours"
    nodes: Annotated[int, Meta(ge=1, le=4)] = 1
    command: tuple[str, ...] = ()
    runtimes: str = "wss://127.0.0.1:{listen}/ws"
    stub: str = ""
    endpoint: str = ""
    policy: str = ""
    does: tuple[str, ...] = ()
    per_second: Rate = 5.0


class Runtime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One runtime; with `count` above 1, that many: `name-1`, `name-2`, and so on."""

    name: Word
    domain: str
    count: Annotated[int, Meta(ge=1, le=100)] = 1


class Load(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Numbered messages from each runtime of a name to each of another, `per_second` each.

    With `trace`, a verdict has their hops. Without it, nodes pass them on as flows, as they do with most traffic.
    """

    from_: Word
    to: Word
    kind: LoadKind = "event"
    trace: bool = True
    per_second: Rate = 10.0
    bytes: Annotated[int, Meta(ge=0, le=200_000)] = 100
    start: Seconds = 0.0
    seconds: Seconds = 5.0


class Shared(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thing that runtimes of the scene share: `thing://<domain>/<name>`."""

    name: Word
    domain: str


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that one runtime does: with an `object`, or `find` with the runtime `whom` in its domain's registry.

    `register` enters the runtime itself into the registry of its domain.
    """

    at: Seconds
    runtime: Word
    does: ActionKind
    object: ObjectName = ""
    whom: ObjectName = ""


class Misbehaviour(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that a hostile domain does from `at` on, for so many seconds, besides what its `does` lists."""

    domain: str
    does: str
    at: Seconds
    lasts: Seconds = 5.0


class Heard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A moment: when a runtime has heard so many messages of loads."""

    runtime: Word
    messages: Count


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. It begins `at` so many seconds, or `after` something was heard, and ends after `lasts`.

    Faults of a node name a `domain`, faults of a line the two domains `between` which it is. `node` is the number of
    one of several nodes of the domain; 0 stands for all of them. `answer` is what a lying name server says about other
    domains, `clock_seconds` how far a clock is set or, by the end, has drifted, and `stub` which module of the zoo a
    broken update has. `policy` is a file, and `denies` names the runtimes, who sends and who is to hear, whose loads
    it keeps from crossing.
    """

    does: FaultKind
    at: Seconds | None = None
    after: Heard | None = None
    lasts: Annotated[float, Meta(ge=0.0, le=120.0)] = 1.0
    domain: str | None = None
    node: Annotated[int, Meta(ge=0, le=4)] = 0
    between: tuple[str, str] | None = None
    milliseconds: Annotated[int, Meta(ge=1, le=10_000)] = 200
    bytes_per_second: Annotated[int, Meta(ge=100, le=10_000_000)] = 10_000
    answer: Lie = "impostor"
    clock_seconds: Annotated[float, Meta(ge=-1e9, le=1e9)] = 60.0
    stub: BrokenStub = "trapping"
    policy: str = ""
    denies: tuple[tuple[Word, Word], ...] = ()

    @property
    def title(self) -> str:
        """The fault and its target, in a few words."""
        what = f"mn-{self.node} of {self.domain}" if self.node else self.domain
        return f"{self.does} {what or ' – '.join(self.between or ())}".rstrip()

    @property
    def is_lure(self) -> bool:
        """True if it shows something false that leads to an impostor."""
        return self.does in DOCUMENT_FAULTS or (self.does == "dns-lies" and self.answer == "impostor")

    @property
    def seconds(self) -> float:
        """Duration of the fault."""
        return self.milliseconds / 1e3 if self.does == "reorder" else self.lasts

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that it hits."""
        return (self.domain,) if self.domain else self.between or ()


_BRACES: Final = re.compile(r"\{([a-z_]+)\}")
ANY_FAULT: Final = Fault(does="drop")


class Bars(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Promises that this scene tests, and their numbers. A promise in `tests` of which nothing was seen is broken."""

    tests: tuple[PromiseName, ...] = ("once", "order", "kept", "genuine")
    recovery_seconds: Seconds = 20.0
    stub_seconds: Seconds = 10.0
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
    misdeed: tuple[Misbehaviour, ...] = ()
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
        return self.of_kinds("ours")

    def of_kinds(self, *kinds: str) -> tuple[str, ...]:
        """Names of the domains of some kinds, in order."""
        return tuple(one.name for one in self.domain if one.kind in kinds)

    @property
    def silent(self) -> frozenset[str]:
        """Names of the domains whose nodes acknowledge nothing."""
        return frozenset(one.name for one in self.domain if one.kind in SIMULATED or one.stub)

    @property
    def seconds(self) -> float:
        """End of the last load, action or fault that has a time, in seconds since the start of the scene."""
        ends = [load.start + load.seconds for load in self.load]
        ends += [action.at for action in self.action]
        ends += [fault.at + fault.seconds for fault in self.fault if fault.at is not None]
        ends += [one.at + one.lasts for one in self.misdeed]
        return max(ends, default=0.0)


class Problem(NamedTuple):
    """Something that is wrong with a scene: where in its file, and what."""

    place: KeyPath
    text: str

    def __str__(self) -> str:
        return self.text


def problems_of(scene: LabScene) -> Iterator[Problem]:
    """Everything that is wrong with a scene although each value is allowed by itself; nothing if it can run."""
    domains = {one.name: one for one in scene.domain}
    yield from _twice("domain", [one.name for one in scene.domain])
    yield from _twice("runtime", [one.name for one in scene.runtime])
    if not scene.our_domains or len(scene.domain) - len(scene.of_kinds("hostile")) < 2:
        text = "a scene has at least two domains that talk, one of them of kind ours: nothing would cross"
        yield Problem(("domain", 0), text)
    for index, domain in enumerate(scene.domain):
        for problem in _domain_problems(domain):
            yield Problem(("domain", index), f"domain {domain.name}: {problem}")
    known = {one.name for one in scene.runtime}
    for index, runtime in enumerate(scene.runtime):
        if runtime.domain not in domains:
            text = f"runtime {runtime.name}: there is no domain {runtime.domain}{_there_are(domains)}"
            yield Problem(("runtime", index), text)
        elif domains[runtime.domain].kind == "hostile":
            text = f"runtime {runtime.name}: {runtime.domain} is hostile and has no runtimes"
            yield Problem(("runtime", index), text)
    strangers = [(place, name) for place, name in _named_runtimes(scene) if name not in known]
    for place, name in strangers:
        yield Problem(place, f"{place[0]}: there is no runtime {name}{_there_are(known)}")
    yield from _misdeed_problems(scene)
    for index, fault in enumerate(scene.fault):
        for problem in _fault_problems(fault, domains):
            yield Problem(("fault", index), f"fault {fault.title}: {problem}")
    if not strangers and all(one.domain in domains for one in scene.runtime):
        yield from _load_problems(scene)
        yield from _after_problems(scene)
        yield from _policy_problems(scene)
        yield from _action_problems(scene)
        yield from _size_problems(scene)
    yield from _promise_problems(scene)


def _there_are(names: Iterable[str]) -> str:
    """The end of an error about what is not there: it names what is possible."""
    there = sorted(names)
    return f"; there are {', '.join(there)}" if there else "; there are none"


def _named_runtimes(scene: LabScene) -> Iterator[tuple[KeyPath, str]]:
    """Where runtimes are named, and how."""
    for index, load in enumerate(scene.load):
        yield ("load", index, "from"), load.from_
        yield ("load", index, "to"), load.to
    yield from ((("action", index, "runtime"), one.runtime) for index, one in enumerate(scene.action))


def _twice(what: str, names: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if names.count(name) > 1 and name not in names[index + 1 :]:
            yield Problem((what, index), f"{what} {name} is there twice")


def _domain_problems(domain: Domain) -> Iterator[str]:
    try:
        valid_domain(domain.name)
    except HostError as exc:
        yield exc.detail
    for name in unknown(domain.does):
        yield f"there is no misdeed {name}; `trapezoid lab misdeeds` lists them"
    if domain.kind != "hostile" and domain.does:
        yield "`does` is for domains of kind hostile"
    if domain.kind != "ours" and domain.nodes > 1:
        yield "several `nodes` are for domains of kind ours"
    if domain.kind == "other" and not domain.command:
        yield "kind other needs the `command` that starts its node"
    if domain.kind not in PROCESSES and domain.command:
        yield "`command` is for domains of kind ours or other"
    if bool(domain.stub) != bool(domain.endpoint) or (domain.stub and domain.kind != "other"):
        yield "`stub` and `endpoint` go together, in domains of kind other"
    for name in sorted(_in_braces((*domain.command, domain.runtimes)) - PLACEHOLDERS):
        yield f"there is no {{{name}}}; there are {', '.join(f'{{{one}}}' for one in sorted(PLACEHOLDERS))}"


def _in_braces(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _BRACES.findall(text)}


def _misdeed_problems(scene: LabScene) -> Iterator[Problem]:
    hostile = scene.of_kinds("hostile")
    for index, one in enumerate(scene.misdeed):
        if one.domain not in hostile:
            yield Problem(("misdeed", index), f"misdeed {one.does}: {one.domain} is no hostile domain")
        if unknown([one.does]):
            text = f"there is no misdeed {one.does}; `trapezoid lab misdeeds` lists them"
            yield Problem(("misdeed", index, "does"), text)
    busy = {one.domain for one in scene.misdeed} | {one.name for one in scene.domain if one.does}
    for index, domain in enumerate(scene.domain):
        if domain.name in hostile and domain.name not in busy:
            yield Problem(("domain", index), f"domain {domain.name}: a hostile domain needs `does`, or a [[misdeed]]")


def _load_problems(scene: LabScene) -> Iterator[Problem]:
    """Only our nodes run stubs of others: two nodes in memory do not reach each other."""
    far = scene.of_kinds(*IN_MEMORY)
    domain_of = {one.name: one.domain for one in scene.runtime}
    for index, load in enumerate(scene.load):
        pair = domain_of[load.from_], domain_of[load.to]
        if set(pair) <= {*far} and pair[0] != pair[1]:
            text = f"load from {load.from_} to {load.to}: {pair[0]} and {pair[1]} do not reach each other"
            yield Problem(("load", index), text)


def _after_problems(scene: LabScene) -> Iterator[Problem]:
    """A fault after messages that its runtime cannot hear never begins; with a `count`, one of several is named."""
    known = {one.name for one in scene.runtime}
    for index, fault in enumerate(scene.fault):
        if fault.after is None:
            continue
        name, place = fault.after.runtime, ("fault", index, "after")
        heard = sum(
            len(scene.names_of(load.from_)) * load.per_second * load.seconds
            for load in scene.load
            if name in scene.names_of(load.to)
        )
        if name not in scene.runtimes:
            one_of = f"; name one of its runtimes, {name}-1 for example" if name in known else ""
            yield Problem(place, f"fault {fault.title}: there is no runtime {name}{one_of}")
        elif heard < fault.after.messages:
            text = f"never begins: {name} hears {heard:,.0f} messages, not {fault.after.messages:,}"
            yield Problem(place, f"fault {fault.title}: {text}")


def _policy_problems(scene: LabScene) -> Iterator[Problem]:
    """A policy that denies no load changes nothing that anybody could see."""
    domain_of = {one.name: one.domain for one in scene.runtime}
    loads = {(one.from_, one.to) for one in scene.load}
    for index, fault in enumerate(scene.fault):
        for number, (source, target) in enumerate(fault.denies if fault.does == "policy" else ()):
            text = ""
            if (source, target) not in loads:
                text = f"there is no load from {source} to {target} that it could deny"
            elif domain_of[source] == domain_of[target] or fault.domain not in {domain_of[source], domain_of[target]}:
                text = f"what {source} sends to {target} does not cross the border of {fault.domain}"
            if text:
                yield Problem(("fault", index, "denies", number), f"fault {fault.title}: {text}")


def _action_problems(scene: LabScene) -> Iterator[Problem]:
    yield from _twice("object", [one.name for one in scene.object])
    for index, shared in enumerate(scene.object):
        if shared.domain not in scene.our_domains:
            yield Problem(("object", index), f"object {shared.name}: {shared.domain} is no domain of kind ours")
    for index, action in enumerate(scene.action):
        for problem in _problems_of_action(action, scene):
            yield Problem(("action", index), f"action {action.does} of {action.runtime}: {problem}")


def _problems_of_action(action: Action, scene: LabScene) -> Iterator[str]:
    domain_of = {one.name: one.domain for one in scene.runtime}
    domain = domain_of[action.runtime]
    if action.does in {"leave", "return", "register", "find"}:
        if action.object:
            yield "takes no `object`"
    elif action.object not in {one.name for one in scene.object}:
        names = [one.name for one in scene.object]
        yield f"there is no object {action.object}{_there_are(names)}" if action.object else "needs an `object`"
    if (action.does == "find") != bool(action.whom):
        yield "`whom` is for find, which needs it"
    elif action.whom and action.whom not in domain_of:
        yield f"there is no runtime {action.whom}{_there_are(domain_of)}"
    if domain in scene.of_kinds(*IN_MEMORY) and action.does not in _IN_MEMORY_ACTIONS:
        yield f"the node of {domain} has no such service"
    if action.does == "register" and domain in scene.of_kinds("link"):
        yield f"the node of {domain} has no registry"


def _fault_problems(fault: Fault, domains: Mapping[str, Domain]) -> Iterator[str]:
    if (fault.at is None) == (fault.after is None):
        yield "needs either `at` or `after`"
    for member, faults in FAULT_MEMBERS.items():
        if fault.does not in faults and getattr(fault, member) != getattr(ANY_FAULT, member):
            yield f"`{member}` is for {', '.join(sorted(faults))}"
    if fault.does in NODE_FAULTS:
        yield from _node_fault_problems(fault, domains)
    elif fault.domain is not None or fault.between is None or fault.node:
        yield "needs `between`, with two domains, and no `domain` or `node`"
    else:
        ends = [domains.get(one) for one in fault.between]
        kinds = [one.kind for one in ends if one is not None and one.kind != "hostile"]
        if len(kinds) < 2 or ends[0] is ends[1] or {*kinds} <= IN_MEMORY:
            yield "needs `between`, with two domains that talk with each other"


def _node_fault_problems(fault: Fault, domains: Mapping[str, Domain]) -> Iterator[str]:
    domain = domains.get(fault.domain or "")
    if domain is None or domain.kind == "hostile" or fault.between is not None:
        yield "needs `domain`, one that is not hostile, and no `between`"
        return
    if fault.does in PUBLISHING_FAULTS:
        yield from _publishing_problems(domain, domains.values())
    elif fault.does == "policy":
        yield from _problems_of_policy(fault, domain)
    elif domain.kind not in PROCESSES and fault.does != "kill":
        yield f"the node of {domain.name} is no process: it can only be killed"
    if fault.does in CLOCK_FAULTS and (domain.kind != "ours" or domain.command):
        yield f"only nodes of kind ours, of this version, have a clock that can be set; {domain.name} has none"
    if fault.does == "dns-lies" and (domain.kind != "ours" or not _published(domains.values()) - {domain.name}):
        yield "needs a `domain` of kind ours, and another one that is found by its name"
    if fault.does == "pause" and domain.nodes > 1 and fault.lasts > LEASED_PAUSE_SECONDS:
        text = f"a node of several that is paused for more than {LEASED_PAUSE_SECONDS:g} s has lost its lease"
        yield f"{text}: others may have taken its sessions; use kill"
    if fault.node > domain.nodes:
        yield f"{domain.name} has no node {fault.node}"
    if fault.does in SHARED_FAULTS and domain.nodes < 2:
        yield f"{domain.name} has one node, and nothing that is shared"


def _problems_of_policy(fault: Fault, domain: Domain) -> Iterator[str]:
    if domain.kind != "ours":
        yield f"only domains of kind ours have a policy; {domain.name} has none"
    if fault.node:
        yield "all nodes of a domain have one policy: needs no `node`"
    if not fault.policy or not fault.denies:
        yield "needs `policy`, a file, and `denies`, pairs of runtimes that it keeps apart"


def _published(domains: Iterable[Domain]) -> set[str]:
    """Names of the domains that publish documents, and are found by them."""
    return {one.name for one in domains if one.kind not in SIMULATED and not one.stub}


def _publishing_problems(domain: Domain, domains: Iterable[Domain]) -> Iterator[str]:
    """Only a node of ours signs with keys that are at hand here, and only other nodes of ours are asked to look."""
    if domain.kind not in {"ours", "link"}:
        yield f"the documents of {domain.name} are not published by a node of ours"
    if not [one for one in domains if one.kind == "ours" and one.name != domain.name]:
        yield f"no other domain of kind ours reads the documents of {domain.name}"


def _size_problems(scene: LabScene) -> Iterator[Problem]:
    sizes = [
        len(scene.names_of(load.from_)) * len(scene.names_of(load.to)) * load.per_second * load.seconds
        for load in scene.load
    ]
    if sum(sizes) > MOST_MESSAGES:
        text = f"the loads are {sum(sizes):,.0f} messages, and none has more than this one"
        place = ("load", sizes.index(max(sizes)))
        yield Problem(place, f"{text}; at most {MOST_MESSAGES:,} can be judged")
    if len(scene.runtimes) > MOST_RUNTIMES:
        yield Problem(("runtime",), f"{len(scene.runtimes)} runtimes; at most {MOST_RUNTIMES} are possible")


def _promise_problems(scene: LabScene) -> Iterator[Problem]:
    place = ("promise", "tests")
    tested = scene.promise.tests
    if not tested:
        yield Problem(place, "promise: `tests` is empty: this scene cannot fail")
    releases = [one for one in scene.fault if one.does in RELEASE_FAULTS]
    needs: dict[str, tuple[object, str]] = {
        "recovery": (scene.fault, "a fault"),
        "answered": ([one for one in scene.load if one.kind == "request"], "a load of requests"),
        "neighbours": (_has_neighbours(scene), "a load between domains that no fault hits"),
        "history": ([one for one in scene.action if one.does not in UNJUDGED], "an action besides leave and return"),
        "once": (scene.load, "a load"),
        "order": (scene.load, "a load"),
        "kept": (scene.load, "a load"),
        "stubs": (releases, "an update or a revocation"),
    }
    for name in tested:
        there, what = needs.get(name, (True, ""))
        if not there:
            yield Problem(place, f"promise {name}: cannot fail without {what}")
    for fault in releases if "stubs" in tested else ():
        if fault.lasts < scene.promise.stub_seconds:
            text = f"fault {fault.title} has to last for `stub_seconds`, or nobody sees who follows it"
            yield Problem(("fault", scene.fault.index(fault)), f"promise stubs: {text}")


def _has_neighbours(scene: LabScene) -> bool:
    """Return True if some load is between domains that no fault hits."""
    domain_of = {one.name: one.domain for one in scene.runtime}
    pairs = [{domain_of.get(one.from_), domain_of.get(one.to)} for one in scene.load]
    return any(
        all(not pair & {*fault.domains} if fault.domain else pair != {*fault.domains} for fault in scene.fault)
        for pair in pairs
    )


def check_scene(scene: LabScene, source: str, lines: Mapping[KeyPath, int] | None = None) -> None:
    """Raise SettingsError with every problem of the scene; `source` names it, `lines` has the lines of its keys."""
    problems = [f"{placed(source, lines or {}, one.place)}: {one.text}" for one in problems_of(scene)]
    if problems:
        raise SettingsError("\n".join(problems))
