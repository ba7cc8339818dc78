"""Counters of the node: one table for each part of its status, with the name and the meaning of each number.

The names are those of `/status`, and stay; `docs/counters.md` lists them. Links have a table of their own, in
`federation/core/link_counts.py`.
"""

from __future__ import annotations

from typing import Final

from protofly.counters import CODES, Counted
from protofly.guid_record import Flaw

_SESSION_EVENTS: Final = ("closed", "expired", "lost", "opened", "re-opened", "refused", "taken-over")
_ACTION_STATUSES: Final = ("cancelled", "completed", "delivered", "expired", "failed", "pending")
_HANDSHAKE_PHASES: Final = ("half a request", "no PROXY header", "no TLS", "no request")


class NodeCount(Counted):
    """Messages, sessions and connections of runtimes: `counters` in the status."""

    # Messages.
    FRAMES_IN = "frames in", "frames that runtimes sent"
    DELIVERED = "delivered", "messages that went to at least one listener, runtime or link"
    UNHEARD = "unheard", "events that had no listener"
    UNHEARD_ANSWERS = "unheard answers", "replies to sessions that are not connected"
    REFUSED = "refused {}", "messages that were refused, by code", CODES
    REFUSED_SOURCES = "refused sources", "messages that named a `source` of somebody else"
    BROKEN_FRAMES = "broken frames", "frames that are no message"
    BINARY_PACKETS = "binary packets", "socket.io packets with binary content, which are dropped"
    REPEATED_MEMBERS = "repeated members", "messages that name a member twice"
    EXPIRED = "expired", "messages that expired before their runtime read them"
    TIMEOUTS = "timeouts", "requests between runtimes that got no reply in time"
    LATE_REPLIES = "late replies", "replies after the timeout, passed on to those who want them"
    LATE_REPLIES_KEPT_BACK = "late replies kept back", "replies after the timeout that their asker does not want"
    DROPPED = "dropped", "events that were dropped, since the queue of their listener was full"
    OVERLOAD = "overload", "requests that were refused, since the queue of their recipient was full"
    STUCK_RUNTIMES = "stuck runtimes", "connections that were closed since their runtime did not read"
    SILENT_RUNTIMES = "silent runtimes", "connections that were closed since no ping was answered"
    CHANGES_CAUGHT_UP = "changes caught up", "changes that runtimes missed while away, and got when they came back"
    GAPS_REPORTED = "gaps told", "runtimes that were notified of changes they missed and cannot get any more"
    TAP_COPIES = "copies for taps", "copies of messages that went to taps"
    TAP_COPIES_LOST = "copies lost", "copies that a tap had no room for"
    STORAGE_FAILURES = "storage failures", "changes of state that could not be written"
    GROUPS_LEFT_OUT = "groups left out", "entries of claims with groups of users that are no names, or too many"
    BARRED_DOMAINS = "messages to barred domains", "messages to domains that policy does not talk to"
    DECISIONS_NOT_RECORDED = "decisions not recorded", "policy decisions without a record, since there were too many"
    NOTICES = "notices of rules", "events about decisions, which rules want to be sent"
    NOTICES_LEFT_OUT = (
        "notices left out",
        "the same that were not sent: too many, or about a message of the node itself",
    )
    COPIES = "quarantine copies", "copies of messages that rules want to be kept"
    COPIES_LEFT_OUT = "quarantine copies left out", "the same that were not kept: too many at once, or the disk failed"

    # Actions that wait, and guaranteed events.
    ACTIONS_PARKED = "actions parked", "actions that were stored for a recipient that is away or busy"
    ACTIONS_HANDED_OVER = "actions handed over", "stored actions that went to another agent"
    ACTIONS = "actions {}", "stored actions that ended, by final status", _ACTION_STATUSES
    REPEATED_REQUESTS = "repeated requests", "repetitions of an action, which are not done again"
    LATE_ANSWERS = "late answers", "answers to actions that had ended"
    REFUSED_ANSWERS = "refused answers", "answers to actions from somebody who may not answer"
    UNGUARANTEED_EVENTS = "unguaranteed events", "guaranteed events that could not be watched: no id, or too many"
    UNACKNOWLEDGED_EVENTS = "unacknowledged events", "guaranteed events that a subscriber never acknowledged"

    # Sessions.
    SESSIONS = "sessions {}", "what happened to sessions", _SESSION_EVENTS
    LOST_POLLS = "lost polls", "sessions over HTTP that ended since they neither polled nor streamed"
    SOCKETIO_SESSIONS = "socket.io sessions", "socket.io sessions that began"
    TOO_MANY_HTTP_SESSIONS = "too many http sessions", "sessions over HTTP that were refused: too many"
    TOO_MANY_POLLING_SESSIONS = "too many polling sessions", "socket.io sessions that were refused: too many"
    FAILED_UPGRADES = "failed upgrades", "socket.io sessions that did not get from polling to a WebSocket"
    REFUSED_CONNECTS = "refused connects", "Matrix connects that were refused"

    # Connections.
    RUNTIMES = "runtimes", "connections of runtimes"
    LINKS = "links", "connections of links of other domains"
    REFUSED_LINKS = "refused links", "links of other domains that were refused"
    FAILED_HANDSHAKES = "failed handshakes", "connections that failed before their first request"
    SLOW_HANDSHAKES = "slow handshakes", "connections that sent no whole request in time"
    SLOW_HANDSHAKES_BY_PHASE = "slow handshakes, {}", "the same, by what was missing", _HANDSHAKE_PHASES
    PROXY_HEADERS = "refused proxy headers", "connections of proxies that did not say whose they are"
    TOO_MANY_HALF_OPEN = "too many half-open", "connections that were refused: too many without a session"
    TOO_MANY_UNOPENED = "too many unopened", "connections that were refused: too many of the address opened no session"
    DISPLACED_HALF_OPEN = "displaced half-open", "connections without a session that made room for others"
    WITHOUT_A_SESSION = "without a session", "connections that were closed since no session was opened in time"
    BROKEN_CONNECTIONS = "broken connections", "WebSockets that broke the protocol"
    INTERNAL_ERRORS = "internal errors", "connections that a defect of the node has closed; the log has the reason"

    # MQTT.
    MQTT_RUNTIMES_GONE = "mqtt runtimes gone", "runtimes that the broker reported as gone"
    MQTT_PUBLICATIONS_REFUSED = "mqtt publications refused", "publications that the broker refused"
    MQTT_TOPICS_OF_NOBODY = "mqtt topics of nobody", "publications on topics that belong to no runtime"
    MQTT_TOO_LARGE = "mqtt messages too large", "publications that are too large"
    MQTT_REPEATED = "mqtt messages repeated", "publications that the broker delivered twice"
    MQTT_BROKEN = "mqtt messages broken", "publications that are no message"
    MQTT_RETAINED = "mqtt messages retained", "retained publications, which are ignored"
    MQTT_REFUSED = "mqtt refused {}", "runtimes that were refused, by code", CODES


class InquiryCount(Counted):
    """Results of one connector: `connectors` in the status, each name after that of its connector."""

    ANSWERED = "answered", "inquiries with an answer"
    FAILED = "{}", "inquiries that failed, by code", CODES
    REFUSED = "refused {}", "inquiries that were not begun, by code", CODES


class BackendCount(Counted):
    """Calls to one back-end: `backends.registry` and `backends.qos` in the status, with `_` for blanks."""

    ANSWERED = "answered", "calls with an answer that is no failure"
    FAILED = "failed", "calls without an answer, or with a failure"
    RETRIES = "retries", "calls that were repeated"
    NOT_ASKED = "not asked", "calls that were not made, since the back-end does not answer"


class UserCount(Counted):
    """Look-ups of users: `backends.users` in the status."""

    FOUND = "found", "users whose places were found"
    FAILED = "{}", "look-ups that failed, by code", CODES
    REFUSED = "refused overload", "messages that were refused, since too many wait for a look-up"


class GlobalRegistryCount(Counted):
    """Records of users: `backends.global_registry` in the status."""

    ASKED = "asked", "records that were read from the global registry"
    REMEMBERED = "remembered", "records that were kept from before"
    STORED = "stored", "records that were written for runtimes"
    UNBELIEVED = "unbelieved {}", "records that were not believed, by flaw", [flaw.value for flaw in Flaw]


class LoginCount(Counted):
    """Session tokens: `backends.tokens` in the status."""

    LOGINS = "logins", "tokens that were issued for an assertion or a password"
    WRONG_PASSWORDS = "wrong passwords", "passwords that were not right, or of no user"
    PAUSED_ATTEMPTS = "paused attempts", "log-ins that had to wait, since there were too many wrong passwords before"
    REFRESHED = "refreshed", "tokens that were renewed"
    RENEWED_TWICE = "renewed twice", "logins that ended since one of their tokens was renewed twice"
    REVOKED = "revoked", "logins that were revoked"
    USERS_REVOKED = "users revoked", "users whose logins were all revoked"


class PushCount(Counted):
    """Wake-up calls: `backends.push` in the status."""

    SENT = "sent", "calls that the push service took"
    OVER = "over", "subscriptions that have ended"
    REFUSED = "refused", "calls that the push service refused"
    FAILED = "failed", "calls that failed, and did so when they were repeated"
    TOO_MANY = "not sent: too many", "calls that were left out, since too many wait"


class SchemaCount(Counted):
    """Schemas of data objects: `backends.schemas` in the status."""

    READ = "schemas read", "schemas that were read"
    NOT_READ = "schemas not read: {}", "schemas that could not be read, by code", CODES
    NOT_ASKED = "schemas not asked for", "schemas that were not asked for, since too many wait"


class DocumentCount(Counted):
    """Policies of objects: `backends.documents` in the status."""

    NAMED = "policies named", "objects whose owner named a policy, also another one than before"
    NOT_OURS = "policies ignored: not ours", "policies that are no entries of our own catalogue, which are ignored"
    NOT_OWNER = "policies ignored: not the owner", "policies of objects that their senders do not own, also ignored"
    REFUSED = "policies refused", "messages that were refused, since there are too many policies of objects"
    READ = "policies read", "policies that were read"
    NOT_READ = "policies not read: {}", "policies that could not be read, by code", CODES
    NOT_ASKED = "policies not asked for", "policies that were not asked for, since too many wait"


class SiteCount(Counted):
    """Clients of the site: `site` in the status."""

    TOO_MANY = "too many connections", "connections that were refused: too many are open"
    DISPLACED = "displaced connections", "connections that made room for those of other addresses"
    TOO_OFTEN = "connections too often", "connections that were refused: too many from one address"
    PROXY_HEADERS = "refused proxy headers", "connections and requests of proxies that did not say whose they are"
    REQUESTS_TOO_OFTEN = "requests too often", "requests that were refused: too many from one address"
    FAILED_HANDSHAKES = "failed handshakes", "connections that failed before their first request"
    SLOW_HANDSHAKES = "slow handshakes", "connections that sent no whole request in time"
    INTERNAL_ERRORS = "internal errors", "connections that a defect of the node has closed; the log has the reason"


class RegistryWatchCount(Counted):
    """News of the domain registry: `backends.registry` in the status, with `_` for blanks."""

    ANSWERED = "polls answered", "questions for news with an answer"
    BROKEN = "polls broken", "answers that could not be read"
    FAILED = "polls {}", "questions for news that failed, by code", CODES
    REPORTED = "disconnects reported", "entries that were reported as disconnected"
    NOT_REPORTED = "disconnects {}", "reports that failed, by code", CODES


class QosWatchCount(Counted):
    """Looks at the usage of providers: `backends.qos` in the status, with `_` for blanks."""

    BROKEN = "looks broken", "answers that could not be read"
    FAILED = "looks {}", "looks that failed, by code", CODES
