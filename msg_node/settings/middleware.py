"""Settings of the steps that messages pass on their way into the router: `[middleware]`.

Source: message specification, section 20.2; requirement R4 (router, middleware, handler).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.rates import Rate, TypeRateSettings, rate_limit, rate_problems
from policy.core.rates import RateLimit

if TYPE_CHECKING:
    from msg_node.settings.model import Settings

StepName = Literal["logging", "authentication", "rate", "authorisation", "schema"]


class LoggingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step `logging`: a line with type, sender, recipient, id and size; never a body."""

    every: Annotated[
        Annotated[int, Meta(ge=0)],
        Meta(description="Which messages are logged: 1 each, 10 every tenth, 0 none."),
    ] = 0


class AuthenticationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step `authentication`: what sessions without a credential may do."""

    required: Annotated[
        bool, Meta(description="Messages of sessions without a credential are refused with 401 `no-credentials`.")
    ] = False
    open_to: Annotated[
        tuple[str, ...],
        Meta(description="Recipients that such a session may still send to; `/*` at the end: all below one."),
    ] = ()


class RateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step `rate`: how much one session may send. Further messages are refused with 429 `rate`."""

    messages_per_second: Annotated[Rate | None, Meta(description="Messages per second; absent: unlimited.")] = None
    bytes_per_second: Annotated[Rate | None, Meta(description="Bytes per second; absent: unlimited.")] = None
    burst_seconds: Annotated[Rate, Meta(description="How many seconds' worth of both may come at once.")] = 2.0
    by_type: Annotated[tuple[TypeRateSettings, ...], Meta(description="Rates of single types besides.")] = ()

    @property
    def limit(self) -> RateLimit:
        """The rate of all messages, for a bucket."""
        return rate_limit(self.messages_per_second, self.bytes_per_second, self.burst_seconds)


class SchemaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step `schema`: validates changes of objects against the schema that their reporter named."""

    validate: Annotated[bool, Meta(description="Changes that break it are refused with 422 `schema`.")] = False


class MiddlewareSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps that each message of a session passes before it is delivered; see `docs/middleware.md`."""

    order: Annotated[
        tuple[StepName, ...],
        Meta(description="The steps in order; the first that refuses ends it. Those without settings are left out."),
    ] = ("logging", "authentication", "rate", "authorisation", "schema")
    logging: LoggingSettings = LoggingSettings()
    authentication: AuthenticationSettings = AuthenticationSettings()
    rate: RateSettings = RateSettings()
    schema: SchemaSettings = SchemaSettings()


def active_steps(settings: Settings, *, has_policies: bool) -> tuple[StepName, ...]:
    """The steps that have something to do, in order.

    Policies in force are always asked, wherever they are from: last, where the order does not name their step.
    """
    wanted = _configured(settings) - {"authorisation"} | ({"authorisation"} if has_policies else frozenset())
    order = settings.middleware.order
    rest: tuple[StepName, ...] = ("authorisation",) if has_policies and "authorisation" not in order else ()
    return (*(name for name in order if name in wanted), *rest)


def middleware_problems(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Check the fields of `[middleware]` against each other."""
    order = settings.middleware.order
    for index, name in enumerate(order):
        if name in order[:index]:
            yield ("middleware", "order", index), f"`{name}` is there twice"
    for name in sorted(_configured(settings) - set(order)):
        table = "[policy] files are" if name == "authorisation" else f"[middleware.{name}] is"
        yield ("middleware", "order"), f"{table} there, but no step `{name}`: nothing would ask for it"
    if settings.middleware.schema.validate and not settings.catalogue.serve:
        yield ("middleware", "schema", "validate"), "schemas are read from catalogues: `[catalogue] serve` has to be on"
    if settings.policy.documents and not settings.catalogue.serve:
        yield ("policy", "documents"), "policies are read from the catalogue: `[catalogue] serve` has to be on"
    yield from rate_problems(settings.middleware.rate.by_type, ("middleware", "rate", "by_type"))
    for index, text in enumerate(settings.middleware.authentication.open_to):
        if not text.removesuffix("/*"):
            yield ("middleware", "authentication", "open_to", index), "not an address"


def _configured(settings: Settings) -> frozenset[StepName]:
    steps = settings.middleware
    found: dict[StepName, bool] = {
        "logging": steps.logging.every > 0,
        "authentication": steps.authentication.required,
        "rate": bool(steps.rate.by_type) or not steps.rate.limit.is_unlimited,
        "authorisation": bool(settings.policy.files),
        "schema": steps.schema.validate,
    }
    return frozenset(name for name, is_there in found.items() if is_there)
