"""Settings of the steps that messages pass on their way into the router: `[middleware]`.

Source: message specification, section 20.2; requirement R4 (router, middleware, handler).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from msg_node.settings.rates import rate_limit
from msg_node.settings.tables.rates import Rate, TypeRateSettings
from policy.core.rates import RateLimit

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
