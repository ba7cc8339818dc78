"""A history: what runtimes did with what they share, and whether some order of single steps explains it.

Each operation takes effect at one moment between its beginning and its end, or, if its end was not seen, at any moment
after its beginning or never. Objects are independent, so each is checked by itself. The check looks for an order that
respects time and in which each step finds the object as the steps before left it (Wing and Gong, 1993, with the states
already tried kept as Lowe proposed, 2017).

What no order explains is shortened. Simply leaving out an operation would be wrong: without its release, the claim
that follows looks impossible. Instead, an operation is taken as if its result had not been seen: it may have happened,
in its time, or not at all. That can only make more orders possible. If still none explains the rest, then the operation
has no part in the contradiction. Example: A claims, A releases, B claims, C claims, all granted. Whether or not A's two
steps took place, C cannot have the address while B has it, so B's and C's claims are the answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

STEPS_WHILE_SHORTENING: Final = 5_000
STEPS_MOST: Final = 200_000
"""How many states are tried for one object; beyond, the history counts as explained, so that no alarm is false."""


NOBODY: Final = "nobody"
"""The result of a `find` at an address without an owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of one runtime on one object.

    `kind` is `claim`, `release`, `find`, `subscribe`, `unsubscribe`, `silence`, `publish`, `park`, `deliver`, `hear`,
    `register` or `look-up`. `value` is the request id of a parked action, or the number of a message that was heard.

    `result` is `ok` or `refused`, of a `publish` `heard` or `unheard`, of a `find` the runtime that answered or
    `NOBODY`, of a `look-up` `found` or `absent`, and "" if it was not seen: then the operation may not have happened at
    all. `ended` is infinite if its end was not seen. Operations with subscriptions name an object and one subscriber as
    their `object`, because a node notifies one after the other; `hear` names sender and receiver.
    """

    runtime: str
    kind: str
    object: str
    value: Hashable = None
    result: Hashable = ""
    began: float
    ended: float = math.inf

    def __str__(self) -> str:
        end = "?" if math.isinf(self.ended) else f"{self.ended:.3f}"
        value = "" if self.value is None else f" {self.value}"
        return f"[{self.began:.3f}–{end}] {self.runtime} {self.kind} {self.object}{value}: {self.result or 'unknown'}"


class Model(Protocol):
    """Sequential model of an object. States are values that can be compared."""

    @property
    def start(self) -> Hashable:
        """The state at first."""

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """The states that the operation can lead to with the result that was seen; none if that cannot be."""


class Claims:
    """An address has one owner at a time: a claim of a free address is granted, of another's refused.

    A release of what one does not own may be granted or refused, and changes nothing. A request to the address, `find`,
    is answered by its owner. Of a node that died, the release of what its runtimes had is a step whose end was not
    seen: from then on the addresses may be free.
    Source: docs/addresses-and-subscriptions.md ("unknown ones are 200").
    """

    start: Hashable = None

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """See `Model`."""
        if operation.kind == "find":
            return [state] if operation.result in {"", state or NOBODY} else []
        if operation.kind == "claim":
            done, effect = state in {None, operation.runtime}, operation.runtime
        else:
            done, effect = state == operation.runtime, None
        if not operation.result:
            return [effect] if done else [state]
        if operation.result == "ok":
            return [effect] if done else [state] if operation.kind == "release" else []
        return [] if done else [state]


class Subscriptions:
    """A subscriber hears what is published while it is subscribed, and nothing else. The state is whether it is.

    An owner that gives an address up is silenced: its own subscriptions to it end. Whether it was the owner is the
    matter of `Claims`; here both is possible. Source: message specification, section 7.3.
    """

    start: Hashable = False

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """See `Model`."""
        if operation.kind == "publish":
            return [state] if (operation.result == "heard") == state else []
        if operation.kind == "silence":
            return [state, False] if state else [state]
        return [state] if operation.result == "refused" else [operation.kind == "subscribe"]


class Parked:
    """An action that was parked is delivered once. Each action is an object of its own; the state is how far it is."""

    start: Hashable = "absent"

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """See `Model`."""
        if operation.kind == "park":
            if operation.result == "refused":
                return [state]
            return ["waiting"] if state == "absent" else []
        return ["done"] if state == "waiting" else []


class Numbers:
    """Model of messages from one runtime to another: each is heard once, in the order of its number.

    The state is the last number.

    Numbers may be missing. Source: docs/delivery.md.
    """

    start: Hashable = None

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """See `Model`."""
        number = operation.value
        assert isinstance(number, int)
        assert state is None or isinstance(state, int)
        return [number] if state is None or number > state else []


class Entries:
    """An entry of a registry is found after it was registered, and not before. The state is whether it is there."""

    start: Hashable = False

    def step(self, state: Hashable, operation: Operation) -> list[Hashable]:
        """See `Model`."""
        if operation.kind == "look-up":
            return [state] if not operation.result or (operation.result == "found") == state else []
        return [state] if operation.result == "refused" else [True]


_MODELS: Final[dict[str, Model]] = {
    "register": Entries(),
    "look-up": Entries(),
    "claim": Claims(),
    "release": Claims(),
    "find": Claims(),
    "hear": Numbers(),
    "subscribe": Subscriptions(),
    "unsubscribe": Subscriptions(),
    "silence": Subscriptions(),
    "publish": Subscriptions(),
    "park": Parked(),
    "deliver": Parked(),
}


def unexplained(operations: Sequence[Operation]) -> list[list[Operation]]:
    """For each object whose history no order explains, the smallest part of it that no order explains."""
    groups: dict[tuple[str, str, Hashable], list[Operation]] = defaultdict(list)
    for operation in operations:
        model = _MODELS[operation.kind]
        value = operation.value if isinstance(model, Parked) else None
        groups[type(model).__name__, operation.object, value].append(operation)
    return [
        smallest(group, _MODELS[group[0].kind])
        for group in groups.values()
        if not is_explained(group, _MODELS[group[0].kind])
    ]


def smallest(operations: Sequence[Operation], model: Model) -> list[Operation]:
    """Those operations of a history without an explanation that contradict each other, by time.

    Worked example: see the head of this file. First the end of the history is cut off, as far as its beginning alone
    cannot be explained; then operations are taken as unseen, in halves, quarters, and so on, the oldest first.
    """
    ends = sorted({one.ended for one in operations if not math.isinf(one.ended)})
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if is_explained(_until(operations, ends[middle]), model, STEPS_WHILE_SHORTENING):
            low = middle + 1
        else:
            high = middle
    history = _until(operations, ends[low])
    size = max(1, len(history) // 2)
    while True:
        for position in range(0, len(history), size):
            part = history[position : position + size]
            weaker = [*history[:position], *(replace(one, result="") for one in part), *history[position + size :]]
            if not is_explained(weaker, model, STEPS_WHILE_SHORTENING):
                history = weaker
        if size == 1:
            return [one for one in history if one.result]
        size //= 2


def _until(operations: Sequence[Operation], moment: float) -> list[Operation]:
    """The history as it was known at a moment; by time."""
    begun = sorted((one for one in operations if one.began <= moment), key=lambda one: (one.began, one.ended))
    return [one if one.ended <= moment else _unseen(one) for one in begun]


def _unseen(operation: Operation) -> Operation:
    return replace(operation, result="", ended=math.inf)


def is_explained(operations: Sequence[Operation], model: Model, steps: int = STEPS_MOST) -> bool:
    """True if some order of single steps explains what was seen of one object; True if `steps` tries do not decide.

    Unseen operations are possible at each point after their beginning, any number of times: that keeps the search
    small, and errs towards an explanation.
    """
    ordered = sorted((one for one in operations if not math.isinf(one.ended)), key=lambda one: (one.began, one.ended))
    unseen = [one for one in operations if math.isinf(one.ended)]
    todo: list[tuple[int, Hashable]] = [((1 << len(ordered)) - 1, model.start)]
    tried: set[tuple[int, Hashable]] = set()
    while todo:
        rest, state = todo.pop()
        if not rest:
            return True
        if (rest, state) in tried:
            continue
        tried.add((rest, state))
        if len(tried) > steps:
            return True
        possible, first_end = _possible(ordered, rest)
        todo += [(rest, after) for one in unseen if one.began <= first_end for after in model.step(state, one)]
        for number in possible:
            one = ordered[number]
            after_it = model.step(state, one) if one.result else [state, *model.step(state, one)]
            todo += [(rest & ~(1 << number), after) for after in after_it]
    return False


def _possible(ordered: Sequence[Operation], rest: int) -> tuple[list[int], float]:
    """Those of the rest that can come next, which is none that began after another had ended; and that first end."""
    first_end = math.inf
    found: list[int] = []
    while rest:
        number = (rest & -rest).bit_length() - 1
        rest &= rest - 1
        if ordered[number].began > first_end:
            break
        found.append(number)
        first_end = min(first_end, ordered[number].ended)
    return found, first_end
