"""The members of `/status`: what each of them says. `docs/status.md` is made from this table.

A path names a member as `jq` would: `links[].stub.sha256` is a member of the stub of each link. `*` is the place of a
name that differs from node to node, such as a domain. Tests hold what nodes really show against the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federation.core.link_counts import LinkCount


@dataclass(frozen=True, slots=True)
class StatusMember:
    """One member.

    Attributes:
        path: Where it is.
        kind: How its value is written: text, integer, number, true or false, list of texts.
        meaning: One sentence, with its unit.
        when: When it is there; "" for always.
    """

    path: str
    kind: str
    meaning: str
    when: str = ""


@dataclass(frozen=True, slots=True)
class StatusSection:
    """Members about one subject.

    Attributes:
        title: Heading of the section.
        remark: What holds for all of them; "" for nothing.
        members: In the order in which `/status` shows them.
    """

    title: str
    remark: str
    members: tuple[StatusMember, ...]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


_TEXT, _INTEGER, _NUMBER, _FLAG = "text", "integer", "number", "true or false"
_TEXTS = "list of texts"
_CLUSTER, _REGISTRY, _PROVIDER = "nodes of a domain serve together", "`[registry]`", "`[[identity.provider]]`"
_QOS, _CONNECTORS, _FAILED, _FOUND = "`[qos]`", "`[[connector]]`", "the look-up failed", "the domain was found"

_COUNTERS: Final = (
    "[counters.md](counters.md) has every number with its meaning; one that was never counted is left out"
)

_NODE = StatusSection(
    "The node",
    "",
    (
        StatusMember("domain", _TEXT, "Domain that the node serves"),
        StatusMember("node", _TEXT, "Address of the node"),
        StatusMember("version", _TEXT, "Version of the program"),
        StatusMember("pid", _INTEGER, "Process id"),
        StatusMember("rss_kib", _INTEGER, "Memory of the process that is in RAM, in KiB; without those of stubs"),
        StatusMember("uptime_seconds", _NUMBER, "Seconds since the start"),
        StatusMember("sessions", _INTEGER, "Sessions of runtimes that are connected"),
        StatusMember("profile", _TEXT, "`compat.profile` of the settings, or `none`"),
        StatusMember("insecure", _TEXTS, "Switches that weaken and are on, each with what it takes away"),
        StatusMember("middleware", _TEXTS, "Steps that messages of runtimes pass, in order"),
    ),
)

_COUNTING = StatusSection(
    "Counters",
    f"{_COUNTERS}. They start at 0 with each start of the node.",
    (
        StatusMember("counters.*", _INTEGER, "Messages, sessions and connections of runtimes"),
        StatusMember("site.*", _INTEGER, "Clients of the site", "counted"),
        StatusMember("connectors.*", _INTEGER, "Inquiries at services elsewhere, by connector", "counted"),
    ),
)

_STORAGE = StatusSection(
    "Records, state and what is kept",
    "",
    (
        StatusMember("records.state", _TEXT, "`starting`, `writing`, `disk-failing` or `closed`"),
        StatusMember("records.error", _TEXT, "Why records cannot be written; empty while they can"),
        StatusMember("records.waiting", _INTEGER, "Audit records that are not written yet"),
        StatusMember("records.written", _INTEGER, "Audit records that were written"),
        StatusMember("records.lost", _INTEGER, "Audit records that were lost: more waited than may"),
        StatusMember("records.sealed_segments", _INTEGER, "Files that were sealed and signed"),
        StatusMember("records.recovered_segments", _INTEGER, "Files that a crash had left open, sealed at the start"),
        StatusMember("records.sealed_bytes", _INTEGER, "Size of the sealed files"),
        StatusMember("records.removed_segments", _INTEGER, "Files that were removed, since they are not kept longer"),
        StatusMember("state.commits", _INTEGER, "Commits of the state"),
        StatusMember("state.changes", _INTEGER, "Changes in these commits"),
        StatusMember("state.failures", _INTEGER, "Commits that failed"),
        StatusMember("state.waiting_rows", _INTEGER, "Rows that the next commits will write"),
        StatusMember("state.last_error", _TEXT, "Why the last commit failed; empty while commits succeed"),
        StatusMember("delivery.open", _INTEGER, "Requests that are stored until they are done"),
        StatusMember("delivery.open_bytes", _INTEGER, "Their size"),
        StatusMember("delivery.queues", _INTEGER, "Recipients with requests that wait"),
        StatusMember("delivery.inbox_entries", _INTEGER, "Results that wait for senders who are away"),
        StatusMember("delivery.inbox_dropped", _INTEGER, "Results that made way for newer ones"),
        StatusMember("twin.things", _INTEGER, "Descriptions of things"),
        StatusMember("twin.watched", _INTEGER, "Things with values"),
        StatusMember("twin.size_bytes", _INTEGER, "Size of descriptions and values"),
        StatusMember("twin.values_refused", _INTEGER, "Values that were too large, or had no room"),
    ),
)

_POLICIES = StatusSection(
    "Policies",
    "",
    (
        StatusMember("policy_revision", _TEXT, "Revision in force, as in the audit records"),
        StatusMember("policies.revision", _TEXT, "The same"),
        StatusMember("policies.source", _TEXT, "`bundle`, or `settings` for the files of the settings"),
        StatusMember("policies.bundle", _TEXT, "Digest of the bundle in force; empty without one"),
        StatusMember("policies.mode", _TEXT, "`enforce`, or `report` where denials are only recorded"),
        StatusMember("policies.files", _TEXTS, "Files in force"),
        StatusMember("policies.by", _TEXT, "Who put the bundle in force"),
        StatusMember("policies.since", "seconds since 1970, or null", "When that was"),
        StatusMember("policies.roll_back_to", "text or null", "What `policy roll-back` puts in force"),
        StatusMember("policy_faults.count", _INTEGER, "Faults of the policy engine: each is a bug, report it"),
        StatusMember("block_lists[].author", _TEXT, "Whose list it is", "`[[block_list]]`"),
        StatusMember("block_lists[].mode", _TEXT, "`report`, or `enforce`", "`[[block_list]]`"),
        StatusMember("block_lists[].serial", _INTEGER, "Number of the list in use; 0 without one", "`[[block_list]]`"),
        StatusMember(
            "block_lists[].expires", _NUMBER, "When it ends, in s since 1970; 0 without one", "`[[block_list]]`"
        ),
        StatusMember("block_lists[].entries", _INTEGER, "Domains that it names", "`[[block_list]]`"),
        StatusMember("block_lists[].domains", _TEXTS, "Up to 20 that are, or would be, blocked", "`[[block_list]]`"),
        StatusMember(
            "block_lists[].problem", _TEXT, "Why it cannot be used now; empty while it can", "`[[block_list]]`"
        ),
        StatusMember("policy_faults.last", _TEXT, "The last one"),
        StatusMember("exchange[].domain", _TEXT, "A partner that may hand in files", "`[exchange]`"),
        StatusMember("exchange[].taken", _INTEGER, "Files of it that were taken since the start", "`[exchange]`"),
        StatusMember("exchange[].refused", _INTEGER, "Requests in its name that were refused", "`[exchange]`"),
    ),
)

_EXPIRIES = StatusSection(
    "What expires",
    "[operating.md](operating.md#what-expires) says how long each lives, and who renews it.",
    (
        StatusMember("expiries[].kind", _TEXT, "`root`, `manifest`, `live` or `certificate`"),
        StatusMember("expiries[].name", _TEXT, "Which of them"),
        StatusMember("expiries[].state", _TEXT, "`valid`, `due`, `expiring`, `expired` or `not-yet-valid`"),
        StatusMember("expiries[].code", _TEXT, "Kind and state, as in the log"),
        StatusMember("expiries[].days_left", _INTEGER, "Whole days until it expires; negative afterwards"),
        StatusMember("expiries[].ends_at", _INTEGER, "When it expires, in seconds since 1970"),
        StatusMember("expiries[].text", _TEXT, "All that in one sentence"),
        StatusMember("expiries[].action", _TEXT, "What to do; empty while nothing is"),
    ),
)

_DISCOVERY = StatusSection(
    "Finding other domains, and their stubs",
    "",
    (
        StatusMember("discovery.places", _INTEGER, "Domains whose documents are known to be somewhere"),
        StatusMember("discovery.negative", _INTEGER, "Domains that are known not to be found"),
        StatusMember("discovery.in_flight", _INTEGER, "Look-ups under way"),
        StatusMember("discovery.lookups", _INTEGER, "Look-ups since the start"),
        StatusMember("discovery.queries", _INTEGER, "Questions to name servers since the start"),
        StatusMember("discovery.stale_used", _INTEGER, "Times that an older place served, as a look-up failed"),
        StatusMember("discovery.rate_refused", _INTEGER, "Look-ups that were refused: one asker wanted too many"),
        StatusMember("cache.size_bytes", _INTEGER, "Size of documents, modules and compiled code on disk"),
        StatusMember("cache.hits", _INTEGER, "Look-ups in that cache that found something"),
        StatusMember("cache.misses", _INTEGER, "Look-ups that found nothing"),
        StatusMember("cache.writes", _INTEGER, "Entries that were written"),
        StatusMember("cache.evictions", _INTEGER, "Entries that were removed to make room"),
        StatusMember("cache.tampered", _INTEGER, "Entries that another program had changed; they were not used"),
        StatusMember("sandbox.zygote_pid", _INTEGER, "Process that workers are forked from; 0 while there is none"),
        StatusMember("sandbox.engine", _TEXT, "Engine, its version and settings, and the kind of CPU"),
        StatusMember("sandbox.starts", _INTEGER, "Workers that were started"),
        StatusMember("sandbox.compilations", _INTEGER, "Modules that were compiled"),
        StatusMember("sandbox.zygote_restarts", _INTEGER, "Times that the zygote was started again"),
    ),
)

_LINKS = StatusSection(
    "Links",
    "One entry for each domain with a link, now or since the start.",
    (
        StatusMember("links[].domain", _TEXT, "The other domain"),
        StatusMember("links[].state", _TEXT, "`live`, `stalled`, `disconnected`, or the state of its stub"),
        StatusMember("links[].detail", _TEXT, "Why it is in that state"),
        StatusMember("links[].problem", _TEXT, "Why the domain cannot be reached or refuses us, and what to do"),
        StatusMember("links[].silent_seconds", _NUMBER, "How long a stalled link has been silent; else 0"),
        StatusMember("links[].carried_by", _TEXT, "`stub`: we opened it; `peer`: they did; empty while it is down"),
        StatusMember("links[].worker_pid", "integer or null", "Process of the stub"),
        StatusMember("links[].stub.name", _TEXT, "Name of the stub", "its stub runs or did"),
        StatusMember("links[].stub.version", _TEXT, "Its version, as its manifest says", "its stub runs or did"),
        StatusMember("links[].stub.sha256", _TEXT, "Digest of its module", "its stub runs or did"),
        StatusMember(
            "links[].stub.level",
            _TEXT,
            "Trust: `pinned`, `dnssec`, `web`, `operator` or `unsigned`",
            "its stub runs or did",
        ),
        StatusMember("links[].stub.class", _TEXT, "`plain`: messages are not signed by a domain", "plain domains"),
        StatusMember("links[].stub.interworking", _TEXT, "Legacy addresses that it speaks for", "interworking stubs"),
        StatusMember("links[].stub.withheld", _TEXT, "What its manifest asks for and `grant` does not give", "any is"),
        StatusMember("links[].update", _TEXT, "What happened to a newer version last; empty for nothing"),
        StatusMember("links[].canary", "object or null", "The share that a newer version of the stub carries, if any"),
        StatusMember("links[].canary.delivered", _INTEGER, "Messages that went by it", "a share is carried"),
        StatusMember(
            "links[].canary.refused", _INTEGER, "Messages that it or the far end refused", "a share is carried"
        ),
        StatusMember("links[].usage.calls", _INTEGER, "Exchanges with the stub"),
        StatusMember("links[].usage.messages", _INTEGER, "Messages that went into it"),
        StatusMember("links[].usage.traps", _INTEGER, "Faults that ended an instance"),
        StatusMember("links[].usage.fuel", _INTEGER, "Fuel that it used"),
        StatusMember("links[].usage.cpu_us", _INTEGER, "CPU time that it used, in microseconds"),
        StatusMember("links[].usage.memory_bytes", _INTEGER, "Most memory that an instance had"),
        StatusMember("links[].usage.log_lines_dropped", _INTEGER, "Lines of its log beyond what it may write"),
        StatusMember("links[].usage.paused_us", _INTEGER, "Time that it waited for its share of the node"),
        StatusMember("links[].cache", _TEXT, "`hit` if the last contact began with documents of the cache, or `miss`"),
        StatusMember("links[].steps[].name", _TEXT, "A step of the last contact", "there was one"),
        StatusMember("links[].steps[].ms", _NUMBER, "How long it took, in milliseconds", "there was one"),
        StatusMember("links[].waiting", _INTEGER, "Messages that no carrier has taken yet"),
        StatusMember("links[].under_way", _INTEGER, "Messages without an acknowledgement"),
        *(StatusMember(f"links[].{one.replace(' ', '_')}", _INTEGER, _sentence(one.meaning)) for one in LinkCount),
        StatusMember("links[].domains[]", _TEXT, "Domains that the far end has proved: its own and aliases", "it has"),
        StatusMember("links[].forged_names.*", _INTEGER, "Messages in each of these forged names", "there were any"),
        StatusMember(
            "links[].lost", _INTEGER, "Messages under way that no carrier is up for: they go again, or expire"
        ),
        StatusMember("links[].discovery.domain", _TEXT, "The domain that was looked up"),
        StatusMember("links[].discovery.state", _TEXT, "`not-asked` (no need), `known`, `negative` or `back-off`"),
        StatusMember("links[].discovery.reason", _TEXT, "`discovery-failed:` and the step, if it failed"),
        StatusMember("links[].discovery.code", _TEXT, "Its code"),
        StatusMember("links[].discovery.detail", _TEXT, "The code explained"),
        StatusMember("links[].discovery.retry_after_seconds", _NUMBER, "Until when no other attempt is made"),
        StatusMember("links[].discovery.location", "null", "No place is known", _FAILED),
        StatusMember("links[].discovery.location.domain", _TEXT, "The domain that was found", _FOUND),
        StatusMember("links[].discovery.location.well_known_url", _TEXT, "URL of its live document", _FOUND),
        StatusMember("links[].discovery.location.connect_host", _TEXT, "Host to connect to, if another", _FOUND),
        StatusMember("links[].discovery.location.connect_port", _INTEGER, "Port, if another; else 0", _FOUND),
        StatusMember("links[].discovery.location.change_id", _TEXT, "`id` of its TXT record", _FOUND),
        StatusMember("links[].discovery.location.pin_hint", _TEXT, "`k` of it: the fingerprint that it names", _FOUND),
        StatusMember("links[].discovery.location.pin_is_validated", _FLAG, "Whether DNSSEC proves `k`", _FOUND),
        StatusMember("links[].discovery.location.mode", _TEXT, "`mode` of it: `enforce` or `testing`", _FOUND),
        StatusMember("links[].discovery.location.for_domain", _TEXT, "Whose alias it is; empty for none", _FOUND),
        StatusMember(
            "links[].discovery.attempts[].step", _TEXT, "What was tried, such as `svcb`, `connect`", "any was"
        ),
        StatusMember("links[].discovery.attempts[].subject", _TEXT, "Query, address or URL", "any was"),
        StatusMember("links[].discovery.attempts[].outcome", _TEXT, "`ok`, a status of DNS, or a code", "any was"),
        StatusMember("links[].discovery.attempts[].detail", _TEXT, "What was found, or the code explained", "any was"),
        StatusMember("links[].discovery.attempts[].at", _NUMBER, "When, in seconds since 1970", "any was"),
        StatusMember("links[].discovery.attempts[].seconds", _NUMBER, "How long it took", "any was"),
        StatusMember("traces[].id", _TEXT, "`body.trace` of one of the last 200 messages that had one", "any had"),
        StatusMember("traces[].hops[].name", _TEXT, "A place that the message passed", "any had"),
        StatusMember("traces[].hops[].at_us", _INTEGER, "When, on the monotonic clock of the machine", "any had"),
    ),
)

_ELSEWHERE = StatusSection(
    "Services elsewhere",
    "`circuit` is `closed` while a service is asked, `open` while it is left alone, `trial` for one call in between."
    f"\n{_COUNTERS}.",
    (
        StatusMember("backends.registry.url", _TEXT, "Address of the domain registry", _REGISTRY),
        StatusMember("backends.registry.circuit", _TEXT, "State of its breaker", _REGISTRY),
        StatusMember("backends.registry.*", _INTEGER, "Calls and news", _REGISTRY),
        StatusMember("backends.qos.url", _TEXT, "Address of the QoS broker", _QOS),
        StatusMember("backends.qos.circuit", _TEXT, "State of its breaker", _QOS),
        StatusMember("backends.qos.*", _INTEGER, "Calls and looks at usage", _QOS),
        StatusMember("backends.global_registry.*", _INTEGER, "Records of users", "`[global_registry]`"),
        StatusMember("backends.users.*", _INTEGER, "Look-ups of users, `waiting` messages, `known` places", "the same"),
        StatusMember("backends.identity[].issuer", _TEXT, "An identity provider whose keys are fetched", _PROVIDER),
        StatusMember("backends.identity[].keys", _INTEGER, "Keys of it that count", _PROVIDER),
        StatusMember("backends.identity[].error", _TEXT, "Why its keys could not be read last", _PROVIDER),
        StatusMember("backends.identity[].failures", _INTEGER, "How often in a row", _PROVIDER),
        StatusMember(
            "backends.tokens.*",
            _INTEGER,
            "Logins, and marks of tokens that are over (`remembered`)",
            "`[identity.tokens]`",
        ),
        StatusMember("backends.push.*", _INTEGER, "Wake-up calls, and their `subscriptions`", "`[push]`"),
        StatusMember("backends.documents.*", _INTEGER, "Policies of objects", "`policy.documents`"),
        StatusMember("backends.schemas.*", _INTEGER, "Schemas of data objects", "`middleware.schema`"),
        StatusMember(
            "backends.connectors.*.state", _TEXT, "State of a stub that answers service addresses", _CONNECTORS
        ),
        StatusMember("backends.connectors.*.stub", _TEXT, "Which stub it is", _CONNECTORS),
        StatusMember("backends.connectors.*.detail", _TEXT, "Why it is in that state", _CONNECTORS),
        StatusMember("backends.connectors.*.answered", _INTEGER, "Inquiries that it answered", _CONNECTORS),
        StatusMember(
            "backends.connectors.*.dropped", _INTEGER, "What it said that is no answer to anything", _CONNECTORS
        ),
    ),
)

_NODES = StatusSection(
    "Other nodes of the domain",
    "",
    (
        StatusMember("cluster.listens_at", _TEXT, "Where this node listens for the others", _CLUSTER),
        StatusMember("cluster.links.*.up", _FLAG, "Whether the connection to that node is up", _CLUSTER),
        StatusMember("cluster.links.*.waiting", _INTEGER, "What waits for it", _CLUSTER),
        StatusMember("cluster.links.*.problem", _TEXT, "Why there is no connection", _CLUSTER),
        StatusMember("cluster.refused.*", _INTEGER, "Connections that were refused, by code", "there were any"),
        StatusMember("cluster.domains.*", _TEXT, "Which node has the link to that domain", _CLUSTER),
    ),
)

SECTIONS: Final = (_NODE, _COUNTING, _STORAGE, _POLICIES, _EXPIRIES, _DISCOVERY, _LINKS, _ELSEWHERE, _NODES)
"""All members, by subject."""


def members() -> Iterator[StatusMember]:
    """All members of all sections."""
    for section in SECTIONS:
        yield from section.members


def leaves(value: object, path: str = "") -> Iterator[str]:
    """The path of every value that holds no others; lists of texts that belong to one member count as one value."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and path not in _LISTS:
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path


_LISTS: Final = frozenset(one.path for one in members() if one.kind == _TEXTS)


def member_of(leaf: str) -> StatusMember | None:
    """The member that a path of `leaves` belongs to, None for one that the table lacks. Exact names come first."""
    found = _BY_PATH.get(leaf)
    if found is not None:
        return found
    words = leaf.split(".")
    return next((one for one, pattern in _PATTERNS if _is_like(words, pattern)), None)


_BY_PATH: Final = {one.path: one for one in members()}
_PATTERNS: Final = tuple((one, one.path.split(".")) for one in members() if "*" in one.path.split("."))


def _is_like(words: Sequence[str], pattern: Sequence[str]) -> bool:
    """Names may have points themselves: a `*` stands for one word or more."""
    if not pattern:
        return not words
    if pattern[0] != "*":
        return bool(words) and words[0] == pattern[0] and _is_like(words[1:], pattern[1:])
    return any(_is_like(words[taken:], pattern[1:]) for taken in range(1, len(words) + 1))
