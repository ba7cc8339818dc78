"""Every number that bounds something, with unit and reason. Settings may lower most of them; few may raise them."""

from __future__ import annotations

from typing import Final

# Messages. Source: message specification, section 1.6.
FRAME_BYTES: Final = 1 << 20
FRAME_BYTES_MAX: Final = 8 << 20
MESSAGE_FRAGMENTS: Final = 4096  # WebSocket frames of one message; 2 KiB each for the longest one
CONTROL_FRAMES: Final = 1024  # pings and pongs of a WebSocket in one read of 64 KiB: some milliseconds of work
NESTING_LEVELS: Final = 64
HEADER_CHARS: Final = 2048
REMEMBERED_CHARS: Final = 160  # of addresses whose parsing is remembered; longer ones are parsed anew each time
RESOURCES_ENTRIES: Final = 1000
REQUEST_PARTS: Final = 20_000  # objects and lists in the body of a request to a service; a decoder makes each of them
HEADER_QUOTES: Final = 16_384
"""Quotation marks of a message outside its body: four times as many as a thousand recipients and a thousand further
members have. What is done for unusual headers costs microseconds for each name in them."""
RECIPIENTS_BYTES: Final = 32 << 20
"""What the copies of one message with several recipients may take together: one frame is not to become a gigabyte."""
ID_CHARS: Final = 128
BROKEN_FRAMES_IN_A_ROW: Final = 5

# Routing. Source: message specification, sections 20.6 to 20.9 and 3.
MAX_HOPS: Final = 8
VIA_ENTRIES: Final = 16
REQUEST_TTL_SECONDS: Final = 15.0
SESSION_QUEUE_MESSAGES: Final = 1000
SESSION_QUEUE_BYTES: Final = 4 << 20
LEARNED_SECONDS: Final = 3600.0
LEARNED_ADDRESSES: Final = 100_000
LEARNED_PER_SESSION: Final = 1_000  # nobody speaks in so many names that those of others are forgotten

# Sessions. Source: message specification, sections 5.1 and 5.4.
SESSION_GRACE_SECONDS: Final = 120.0
COMPAT_GRACE_SECONDS: Final = 86_400.0  # the nodes that old stubs know keep a lost session for ever
TAKE_OVER_GRACE_SECONDS: Final = 30.0
PING_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 8.0  # below the ten after which containers are killed
DRAIN_RETRY_SECONDS: Final = 5.0
SESSIONS: Final = 20_000
OVERDUE_AT_ONCE: Final = 4  # a tenth of a millisecond, like the two below; the bus goes on in between
RELEASED_AT_ONCE: Final = 20  # addresses, subscriptions and sessions
PARKED_PER_RUNTIME: Final = 8
BEARER_TOKEN_CHARS: Final = 8 << 10
BEARER_SKEW_SECONDS: Final = 60.0
BEARER_SKEW_MAX_SECONDS: Final = 600.0
UNPROVED_OPENS: Final = 5
HALF_OPEN: Final = 2048  # connections without a session or a proof, of all addresses
HALF_OPEN_PER_ADDRESS: Final = 256  # or per /64 of IPv6, like every number per address
UNOPENED_PER_SECOND: Final = 20.0  # connections of one address that lead to no session and no proof
UNOPENED_BURST_SECONDS: Final = 25.6  # twice as many at once as may be half-open
OPEN_SECONDS: Final = 30.0  # from the connect to a session, whatever is said in between

# Runtimes over HTTP long-polling. Source: reference nodes, section 3.1.
POLLING_SESSIONS_PER_ADDRESS: Final = 256
PAYLOAD_PACKETS: Final = 10_000
PAYLOAD_FRAMES: Final = 4  # a payload may be as long as so many of the longest messages
UPGRADE_SECONDS: Final = 10.0
HTTP_REQUEST_SECONDS: Final = 30.0
HTTP_HEAD_BYTES: Final = 16 << 10
HTTP_HEADERS: Final = 128  # as many as the WebSocket library takes
WAITING_PACKETS: Final = 64

# Runtimes over HTTPS. Source: message specification, section 19.5.
HTTP_SESSIONS_PER_ADDRESS: Final = 256
HTTP_POLL_SECONDS: Final = 10.0
HTTP_POLL_SECONDS_MAX: Final = 60.0  # longer than what most proxies let a request hang
HTTP_LOST_POLLS: Final = 3
HTTP_QUEUE_MESSAGES: Final = 200
HTTP_POSTS_PER_SESSION: Final = 32
LINES_PER_SESSION: Final = 64  # connections of a runtime over HTTP or polling: twice its posts at once
HTTP_OVERDUE_REPLIES: Final = 1000  # of one session: half a minute of as many posts at once as it may have
HTTP_REPLY_SECONDS: Final = 20.0  # somewhat more than REQUEST_TTL_SECONDS, so that the node's own answer is in time
HTTP_RESUME_MESSAGES: Final = 1000
HTTP_RESUME_BYTES: Final = 1 << 20
HTTP_STREAM_BYTES: Final = 64 << 10  # waiting in a stream itself; the queue holds the rest
HTTP_KEEP_ALIVE_SECONDS: Final = 30.0
HTTP_ENDED_REMEMBERED: Final = 1000

# HTTP servers of ours that strangers reach: the site, and the global registry for laboratories.
WEB_CONNECTIONS: Final = 512
WEB_CONNECTIONS_PER_ADDRESS: Final = 32  # or per /64 of IPv6; browsers open six
WEB_REQUESTS_PER_SECOND: Final = 20.0  # of one address; a node that looks us up sends three
WEB_BURST_SECONDS: Final = 5.0
WEB_REQUEST_SECONDS: Final = 10.0  # for a body; the largest has 64 KiB
WEB_BACKLOG_BYTES: Final = 64 << 10  # of an answer, for a client that reads slowly

# Runtimes behind an MQTT broker.
MQTT_CONNECT_SECONDS: Final = 5.0
MQTT_KEEP_ALIVE_SECONDS: Final = 15
MQTT_RETRY_SECONDS: Final = 0.25  # doubled up to half a minute
MQTT_WINDOW_MESSAGES: Final = 1000  # on the way to the broker, and from it, without its acknowledgement or ours
MQTT_QUEUED_MESSAGES: Final = 100_000
MQTT_UNACKNOWLEDGED: Final = 200  # of one runtime; the queue holds the rest
MQTT_OPENS_AT_ONCE: Final = 64
MQTT_DOUBT_SECONDS: Final = 20.0  # for a runtime to come back to a broker that was away; below STUCK_SECONDS
MQTT_GONE_SECONDS: Final = 2.0  # a broker that stops says so of everybody first
MQTT_REPEATS_REMEMBERED: Final = 256

# Digital twin: memory holds all of it.
TWIN_THINGS: Final = 10_000
TWIN_THINGS_PER_AGENT: Final = 1_000
TWIN_THINGS_PER_RUNTIME: Final = 2_500  # a quarter of all, however many agents a runtime claims
TWIN_BYTES: Final = 64 << 20
TWIN_BYTES_PER_RUNTIME: Final = 16 << 20
TWIN_DESCRIPTION_BYTES: Final = 64 << 10
TWIN_VALUES_PER_THING: Final = 128
TWIN_VALUE_BYTES: Final = 4 << 10
TWIN_PAGE_BYTES: Final = 256 << 10  # an answer has to fit into a message

# Allocation. Source: message specification, section 7.1.
ALLOCATION_NUMBER: Final = 100
ALLOCATION_PER_SESSION: Final = 10_000
ALLOCATION_PER_GUEST_DOMAIN: Final = 10_000
SUBSCRIPTIONS_PER_SESSION: Final = 10_000
NAMES_CHARS_PER_SESSION: Final = 2 << 20
"""Of the addresses that a session owns, and again of those that it listens to: 200 for each, where most have less than
150. The list of them is one answer, which the node makes at one go."""
TARGETS_REMEMBERED: Final = 65_536
CONSENT_OBJECTS: Final = 10_000
CONSENTS_PER_OBJECT: Final = 1_000
CONSENTS: Final = 50_000
CONSENT_SENDERS: Final = 4_096
CONSENT_REQUESTS_PER_SENDER: Final = 256
EXPULSIONS_PER_OBJECT: Final = 1_000
EXPULSIONS_PER_REPORTER: Final = 5_000
EXPULSIONS: Final = 50_000
FORWARD_LEVELS: Final = 2
REPEATED_MEMBERS_BYTES: Final = 64 << 10  # of an object that gives a member twice; reading it costs more than others
MISSED_MESSAGES: Final = 200
MISSED_BYTES_PER_SESSION: Final = 1 << 20
MISSED_BYTES: Final = 64 << 20
MISSED_GAPS: Final = 100
TOMBSTONES: Final = 100_000
ADDRESS_LEVELS: Final = 8

# Waking runtimes that are away.
PUSH_TARGETS: Final = 10_000
PUSH_TARGETS_PER_ADDRESS: Final = 5
PUSH_TARGETS_PER_RUNTIME: Final = 100
PUSH_ENDPOINT_CHARS: Final = 1024
PUSH_MAX_SECONDS: Final = 90 * 86_400.0

# Schemas of data objects, which come from catalogues without a signature.
SCHEMA_DEPTH: Final = 32
SCHEMA_PARTS: Final = 2_000
SCHEMA_PATTERN_CHARS: Final = 200
SCHEMA_PATTERN_BYTES: Final = 64 << 10  # of a compiled one
SCHEMA_WORK: Final = 500_000  # parts times bytes: what one check may cost; 25 ms for the dearest schema found
SCHEMAS_KEPT: Final = 256
SCHEMA_OBJECTS: Final = 10_000
OBJECT_POLICIES: Final = 10_000
OBJECT_POLICIES_PER_SESSION: Final = 256
OBJECT_POLICY_DOCUMENTS: Final = 256
OBJECT_POLICY_WAIT_SECONDS: Final = 1.0  # when to ask again while a document is being read

# Domain registry. Source: message specification, section 10; data formats, section 5.3.
REGISTRY_EXPIRES_SECONDS: Final = 3600
REGISTRY_EXPIRES_MAX_SECONDS: Final = 86_400
REGISTRY_RETENTION_SECONDS: Final = 86_400.0
REGISTRY_ENTRIES_PER_SESSION: Final = 10_000
REGISTRY_TEXT_CHARS: Final = 2048
REGISTRY_LIST_ENTRIES: Final = 100
REGISTRY_ENTRY_CHARS: Final = 8 << 10  # of all members together, so that a page of entries fits into a message
REGISTRY_CHARS_PER_SESSION: Final = 8 << 20  # 800 for each of its entries; most have less than 600
REGISTRY_ANSWER_ENTRIES: Final = 1000
REGISTRY_ANSWER_CHARS: Final = 512 << 10  # an answer has to fit into a message
REGISTRY_ABSENT_ENTRIES: Final = 100_000  # of sessions that are gone: who comes and goes fills no more than that
REGISTRY_ABSENT_CHARS: Final = 64 << 20
REGISTRY_SWEPT_AT_ONCE: Final = 8

# GUIDs and their records. Source: data formats, section 4.3.
GUID_RECORD_BYTES: Final = 64 << 10
GUID_RECORD_ENTRIES: Final = 256
GUID_KEY_CHARS: Final = 1024
GUID_FUTURE_SECONDS: Final = 300.0
GUIDS_REMEMBERED: Final = 100_000
GUID_RECORDS_IN_MEMORY: Final = 2_000
GUID_CHECKS_AT_ONCE: Final = 2  # some milliseconds of CPU each, in threads
GLOBAL_REGISTRY_READ_SECONDS: Final = 10.0  # its authors measured 5.5 s at worst
GLOBAL_REGISTRY_WRITE_SECONDS: Final = 20.0  # and 13.9 s
GLOBAL_REGISTRY_CACHE_SECONDS: Final = 300.0  # how long a revocation may go unnoticed

# Messages that wait until it is known where a user is.
USER_WAITING_MESSAGES: Final = 4_096
USER_WAITING_PER_SENDER: Final = 256
USER_WAITING_BYTES: Final = 16 << 20
USER_LOOKUPS_AT_ONCE: Final = 16
USER_LOOKUP_SECONDS: Final = 13.0  # the registry's ten and the checks, below the 15 s of a requester
USER_PLACES_KNOWN: Final = 10_000
USER_PLACES_SECONDS: Final = 300.0
USER_MISSING_SECONDS: Final = 5.0
USER_NAMES: Final = 8  # of one record, here and abroad: one message is not to reach hundreds

# Identity. Source: message specification, section 13.3.
VERDICT_SECONDS: Final = 300.0
POLICY_GROUPS: Final = 128
POLICY_GROUP_MEMBERS: Final = 2_000
IDENTITY_GROUPS: Final = 64  # of one user
GROUP_CHARS: Final = 128
ASSERTION_VERDICTS: Final = 10_000
ASSERTION_CHECKS_PER_SECOND: Final = 200  # of one domain: up to 60 ms of CPU; of sessions of ours twice that
ASSERTION_CHECKS_PER_SESSION: Final = 20
KEYS_REFRESH_SECONDS: Final = 3600.0
KEYS_REFRESH_MIN_SECONDS: Final = 60.0
KEYS_ASKED_AGAIN_SECONDS: Final = 10.0  # tokens with unknown keys make us ask no more often
KEYS_RETRY_MAX_SECONDS: Final = 600.0
KEYS_KEPT_SECONDS: Final = 86_400.0  # while their issuer cannot be reached
KEYS_FETCH_SECONDS: Final = 8.0
KEYS_DOCUMENT_BYTES: Final = 256 << 10
PAGE_ENTRIES: Final = 50

# Session tokens that our own domain signs.
SESSION_TOKEN_SECONDS: Final = 3600.0
SESSION_TOKEN_MAX_SECONDS: Final = 86_400.0
SESSION_TOKEN_SKEW_SECONDS: Final = 5.0  # our own clock may be set back a little
LOGIN_SECONDS: Final = 43_200.0
LOGIN_MAX_SECONDS: Final = 30 * 86_400.0
TOKEN_MARKS: Final = 100_000
TOKEN_MARKS_PER_USER: Final = 1_000

# Inquiries of services at back-ends (registries, brokers, catalogues).
INQUIRIES: Final = 4096
INQUIRIES_PER_CONNECTOR: Final = 1024  # one slow back-end leaves room for the others
INQUIRIES_PER_ASKER: Final = 256  # a runtime that comes back registers everything it has in one go
INQUIRY_SECONDS: Final = 10.0  # below the 15 s after which a requester gives up by itself
INQUIRY_STEPS: Final = 4
BACKEND_CONNECTIONS: Final = 32  # to one back-end; more calls wait for one
BACKEND_ATTEMPTS: Final = 3
BACKEND_ATTEMPT_SECONDS: Final = 3.0  # three of them end before an inquiry does
BACKEND_RETRY_SECONDS: Final = 0.1
BACKEND_RETRIES_PER_CALL: Final = 0.1
BACKEND_RETRY_STOCK: Final = 10.0
BACKEND_FAILURES_BEFORE_OPEN: Final = 5
BACKEND_OPEN_SECONDS: Final = 5.0
BACKEND_OPEN_MAX_SECONDS: Final = 60.0
CERTIFICATES_LOOKED_AT_SECONDS: Final = 5.0
BACKEND_ANSWER_BYTES: Final = 512 << 10  # what is in it has to fit into a message

# External domain registry. Source: message specification, section 10.3; data formats, sections 5.1 and 5.3.
REGISTRY_POLL_SECONDS: Final = 5.0
REGISTRY_CACHE_SECONDS: Final = 5.0
REGISTRY_CACHED_ANSWERS: Final = 10_000
REGISTRY_CLOCK_SKEW_SECONDS: Final = 60.0
REGISTRY_PERSONS_FOLLOWED: Final = 16  # hyperties of one user whose data objects are asked for
REGISTRY_STATUSES_REMEMBERED: Final = 10_000
REGISTRY_DISCONNECTS_AT_ONCE: Final = 100
REGISTRY_RAW_BYTES: Final = 32 << 10  # of each answer; up to sixteen of them beside what they mean fit into a message

# QoS broker. Source: message specification, section 14.
QOS_LEASE_SECONDS: Final = 600
QOS_LEASE_MAX_SECONDS: Final = 86_400
QOS_LEASES: Final = 10_000
QOS_LEASES_PER_SESSION: Final = 100
QOS_WATCH_SECONDS: Final = 30.0
QOS_CALL_SECONDS: Final = 5.0  # the broker does not answer at all when a parameter is missing

# Catalogue connector. Source: data formats, section 2.
CATALOGUE_CACHE_SECONDS: Final = 300.0
CATALOGUE_CACHED: Final = 256  # of at most DESCRIPTOR_BYTES each
CATALOGUE_MISSING_SECONDS: Final = 60.0
CATALOGUE_READS_PER_MINUTE: Final = 2_400
CATALOGUE_READS_PER_MINUTE_AND_ASKER: Final = 240
CATALOGUE_PLACE_SECONDS: Final = 4.0

# Parked requests and inboxes. Source: message specification, sections 19.2 and 19.3.
PARKED_SECONDS: Final = 86_400.0
PARKED_MAX_SECONDS: Final = 7 * 86_400.0
PARKED_PER_AGENT: Final = 10_000
PARKED_PER_SENDER: Final = 5_000  # in all queues together: one sender leaves room for the others
PARKED_BYTES: Final = 256 << 20
PARKED_SENDER_PART: Final = 8  # one sender may fill an eighth of that
PARKED_EXPIRED_AT_ONCE: Final = 16  # a millisecond or two; the bus goes on in between
AGENT_QUEUES: Final = 100_000
AGENT_UNANSWERED: Final = 1_000
AGENT_UNANSWERED_DEFAULT: Final = 32
INBOX_NOTIFIED_AT_ONCE: Final = 32  # like PARKED_EXPIRED_AT_ONCE
INBOX_SECONDS: Final = 86_400.0
INBOX_PER_OWNER: Final = 1_000
INBOX_ENTRIES: Final = 200_000
INBOX_BYTES: Final = 256 << 20
INBOX_BYTES_PER_RUNTIME: Final = 8 << 20  # results may have as much as a message; the oldest make way
INBOX_PAGE_BYTES: Final = 512 << 10  # an answer has to fit into a message
REPEATED_SECONDS: Final = 30.0
FINISHED_REMEMBERED: Final = 10_000
FINISHED_BYTES: Final = 64 << 20
OUTBOX_WINDOW: Final = 256
OUTBOX_ASK_SECONDS: Final = 300.0  # another node that keeps a request is asked about it again after so long
OUTBOX_GRACE_SECONDS: Final = 5.0  # and has so long to say how it ended, when its time is over

# Events that subscribers acknowledge. Source: message specification, section 19.1.
GUARANTEED_EVENTS: Final = 10_000
GUARANTEED_PER_SESSION: Final = 1_000  # of one sender, who leaves room for the others
GUARANTEED_BYTES: Final = 64 << 20
GUARANTEED_BYTES_PER_SESSION: Final = 8 << 20
GUARANTEED_SECONDS: Final = 60.0
GUARANTEED_MAX_SECONDS: Final = 3600.0
GUARANTEED_RETRY_SECONDS: Final = 5.0
GUARANTEED_SENT_AT_ONCE: Final = 100  # about a millisecond; the bus goes on in between

# State store.
STATE_RETRY_SECONDS: Final = 1.0
STATE_GATHER_SECONDS: Final = 0.2
STATE_WAITING_ROWS: Final = 200_000

# Waiting for a foreign domain. Source: trust and hosts, section 2.5.
WAITING_MESSAGES: Final = 100
WAITING_BYTES: Final = 1 << 20
WAITING_SECONDS: Final = 15.0

# On a live link: what may be sent and not yet accepted by the other node (resent after a reconnect).
IN_FLIGHT_MESSAGES: Final = 8192
IN_FLIGHT_BYTES: Final = 8 << 20

ANSWERED_AT_ONCE: Final = 64  # of what a link gives up: two milliseconds; the bus goes on in between

# Requests with a `ttl` between our own runtimes, which the node answers in the end: 0.6 kB each.
AWAITED_ANSWERS: Final = 100_000
AWAITED_ANSWERS_PER_SESSION: Final = 1_000

# Decisions of the gates `local` and `peer` that are recorded: some 300 bytes each, half a MiB a minute at most.
DECISIONS_PER_SOURCE: Final = 60
DECISIONS_PER_MINUTE: Final = 1_200

# What rules want beside their decisions: events about them, and copies of messages for operators.
NOTICES_PER_SOURCE: Final = 30
"""In a minute, to one address, about one other domain or sender of our own."""
NOTICES_PER_MINUTE: Final = 300
"""In a minute, to one address."""
QUARANTINE_FILES: Final = 1_000
QUARANTINE_BYTES: Final = 32 << 20
"""In the folder of one domain; the oldest files make room."""
QUARANTINE_WAITING: Final = 64
QUARANTINE_WAITING_BYTES: Final = 4 << 20
"""Copies of one domain that wait to be written."""

# Documents. Source: trust and hosts, section 3.3.
ROOT_BYTES: Final = 64 << 10
LIVE_BYTES: Final = 50 << 10
MANIFEST_BYTES: Final = 16 << 10
MODULE_BYTES: Final = 2 << 20
DESCRIPTOR_BYTES: Final = 64 << 10
ROOT_STEPS: Final = 64
LIVE_VALIDITY_SECONDS: Final = 7 * 86_400.0  # so nobody believes a node key for longer either: section 2.7
CLOCK_SKEW_SECONDS: Final = 300.0
SERIAL_JUMP: Final = 1_000_000
FETCH_SECONDS: Final = 10.0
MODULE_FETCH_SECONDS: Final = 30.0
MINIMUM_FETCH_BYTES_PER_SECOND: Final = 8 << 10
MINIMUM_FETCH_WINDOW_SECONDS: Final = 10.0
EARLIEST_CLOCK_SECONDS: Final = 1_767_225_600.0  # 2026-01-01: this code did not exist; an earlier clock is wrong
EXPIRED_GRACE_SECONDS: Final = 86_400.0

# Discovery. Source: trust and hosts, section 2.5.
DISCOVERY_DEFAULT_SECONDS: Final = 86_400.0
DISCOVERY_MIN_SECONDS: Final = 300.0
DISCOVERY_MAX_SECONDS: Final = 172_800.0
NEGATIVE_SECONDS: Final = 3600.0
RECENTLY_VALID_SECONDS: Final = 7200.0
RECENTLY_VALID_RETRY_SECONDS: Final = 120.0
DNS_TTL_MIN_SECONDS: Final = 60.0
DNS_TTL_MAX_SECONDS: Final = 86_400.0
DISCOVERY_DOMAINS: Final = 10_000
DISCOVERY_NEGATIVE_DOMAINS: Final = 2_000
DISCOVERY_SECONDS: Final = 12.0
DISCOVERY_IN_FLIGHT: Final = 16
DISCOVERY_IN_FLIGHT_PER_ASKER: Final = 4
DISCOVERIES_PER_MINUTE: Final = 600
DISCOVERIES_PER_MINUTE_AND_ASKER: Final = 60
DISCOVERY_ATTEMPTS_REMEMBERED: Final = 64
NEGATIVE_MIN_SECONDS: Final = 60.0
RECENTLY_VALID_ATTEMPTS: Final = 3
RECENTLY_VALID_PAUSE_SECONDS: Final = 0.5
DISCOVERY_BACKOFF_BASE_SECONDS: Final = 5.0
DISCOVERY_BACKOFF_WAITING_SECONDS: Final = 600.0
DISCOVERY_BACKOFF_IDLE_SECONDS: Final = 86_400.0
DNS_ATTEMPT_SECONDS: Final = 2.0
DNS_QUESTION_SECONDS: Final = 5.0
DNS_PAYLOAD_BYTES: Final = 1232
DNS_RECORDS: Final = 32
DNS_TXT_CHARS: Final = 1024
DNS_ALIAS_STEPS: Final = 4
DIAL_ADDRESSES: Final = 8
DIAL_SECONDS: Final = 10.0
DIAL_STAGGER_SECONDS: Final = 0.25

# Authentication. Source: trust and hosts, section 2.7.
CHALLENGE_BYTES_MIN: Final = 16
CHALLENGE_BYTES_MAX: Final = 64
TOKEN_BYTES: Final = 4 << 10
TOKEN_SECONDS: Final = 30.0
TOKEN_SKEW_SECONDS: Final = 60.0
TOKENS_PER_MINUTE: Final = 10
HANDSHAKE_SECONDS: Final = 10.0
PENDING_LINKS: Final = 256  # links that prove themselves at once; each may cost a look-up of ours
PENDING_LINKS_PER_ADDRESS: Final = 16
PENDING_REVERSE_CHECKS: Final = 64
PENDING_REVERSE_CHECKS_PER_ADDRESS: Final = 4
ALIAS_SECONDS: Final = 3.0  # within a handshake; an alias that takes longer counts once it is known
ALIASES_PER_PEER: Final = 8  # names that a peer may have looked up as its aliases

# HTTP exchanges of stubs. The answer is one guest event and has to fit INPUT_BYTES_MAX; the time allows long polls.
HTTP_ANSWER_BYTES: Final = 1 << 20
HTTP_EXCHANGE_SECONDS: Final = 60.0

# The guest. Source: Wasmtime study, sections 4 and 8.
MODULE_FUNCTIONS: Final = 10_000
MODULE_BODY_BYTES: Final = 64 << 10
MODULE_LOCALS: Final = 500
MODULE_LOCAL_GROUPS: Final = 50_000  # of all functions together
MODULE_SECTIONS: Final = 256  # with custom ones; toolchains write about twenty
MEMORY_BYTES: Final = 16 << 20
TABLE_ELEMENTS: Final = 10_000
STACK_BYTES: Final = 256 << 10
FUEL_INSTANTIATE: Final = 50_000_000
FUEL_PER_EVENT: Final = 2_000_000
FUEL_PER_INPUT_BYTE: Final = 2_000
CPU_BACKSTOP_SECONDS: Final = 0.050
CPU_BACKSTOP_FUEL_PER_SECOND: Final = 20_000_000_000  # more time for more input: 0.1 s for 1 MiB
CPU_TICK_SECONDS: Final = 0.002
INPUT_BYTES: Final = 64 << 10
INPUT_BYTES_MAX: Final = 2 << 20
CROSSING_BYTES: Final = INPUT_BYTES_MAX - (1 << 10)  # of one message between domains: a guest reads it as one event
ACTIONS_PER_EVENT: Final = 64
OUTPUT_BASE_BYTES: Final = 256 << 10
OUTPUT_PER_INPUT_BYTE: Final = 4
INPUT_BYTES_PER_ACTION: Final = 16
ROUND_BYTES: Final = 1 << 20  # one write to a worker; longer batches go in several rounds, each with its own deadline
COMPILED_BYTES: Final = 64 << 20  # of one module, by our own compiler: 2 MiB of wasm gave 8 MiB here
WORKER_START_SECONDS: Final = 5.0
BATCH_SECONDS: Final = 2.0
COMPILE_ADDRESS_SPACE_BYTES: Final = 1 << 30
COMPILE_CPU_SECONDS: Final = 15
COMPILE_WALL_SECONDS: Final = 30.0
COMPILE_SHORT_SECONDS: Final = 3.0  # ten times what the largest stub of ours in C takes; then others may begin
WORKER_ADDRESS_SPACE_BYTES: Final = 1 << 30
WORKER_DESCRIPTORS: Final = 16
STUB_CPU_SHARE: Final = 0.5  # of a core, over time; a stub in C takes 2 us for a message, one in JavaScript 40
STUB_CPU_BURST_SECONDS: Final = 60.0  # so long a stub may save up what it does not use
STUB_EXCHANGE_US: Final = 100  # what an exchange with a worker takes in the node, beside what it takes there
STUB_UNASKED_PER_SECOND: Final = 100.0  # requests beyond those for what it hears: each is work of the node, some 0.2 ms
STUB_UNASKED_BURST_SECONDS: Final = 10.0
STUB_LOG_LINES_PER_SECOND: Final = 20
STUB_STATES_PER_SECOND: Final = 20  # a line that comes and goes has three each time, and pauses in between
STUB_LOG_BYTES: Final = 4 << 10
STUB_CHANNELS: Final = 8
STUB_LINES_PER_SECOND: Final = 50  # opened, of any kind: each costs a handshake here, and one at its other end
STUB_TIMERS: Final = 32
STUB_CONFIGURATION_BYTES: Final = 16 << 10
STUB_ADDRESSES: Final = 10_000  # of ours, that one stub hears of
STUB_REQUESTS_PER_ANSWER: Final = 256  # for lines, timers and tokens, besides one for each message and data event
STUB_USER_TOKENS: Final = 1024  # of users of one legacy service; the one used longest ago is forgotten

# Restarting a stub. Source: trust and hosts, section 4.2.
RESTART_BASE_SECONDS: Final = 1.0
RESTART_MAX_SECONDS: Final = 60.0
CRASHES_BEFORE_CIRCUIT: Final = 5
CRASH_WINDOW_SECONDS: Final = 600.0
CIRCUIT_OPEN_SECONDS: Final = 600.0
RELEASE_TRIAL_SECONDS: Final = 600.0
RECONNECT_BASE_SECONDS: Final = 0.5
RECONNECT_MAX_SECONDS: Final = 60.0
RECONNECT_ASKED_SECONDS: Final = 10.0
"""Longest pause of a link that was up before, while messages wait: six proofs a minute, of ten that are allowed."""

# Records. Source: pipeline study, section 8.1.
RECORD_FRAME_RECORDS: Final = 4096
"""Readers pay for each block and column, and dictionaries of larger blocks save more."""
RECORD_QUEUE_RECORDS: Final = 200_000
SEGMENT_BYTES: Final = 64 << 20
SEGMENT_SECONDS: Final = 60.0
RECORD_SYNC_SECONDS: Final = 0.2
RECORD_LIFE_SECONDS: Final = 1.0
"""How often a node without traffic notes that everything is written: a crash makes no more than this doubtful."""
RECORD_IDLE_SECONDS: Final = 3600.0
"""How long a node without messages waits until it seals an empty segment, which says so."""

# Policies. Source: trust and hosts, section 7, attacks 51 and 52 (deciding takes bounded time, whatever was loaded).
POLICY_FILE_BYTES: Final = 32 << 20
POLICY_BUNDLE_BYTES: Final = 1 << 20
POLICY_BUNDLE_FILES: Final = 16
POLICY_BUNDLES: Final = 32
POLICY_ROLL_BACKS: Final = 8
POLICY_REDIRECTS: Final = 4
POLICY_DOCUMENT_RULES: Final = 256
POLICY_SETS: Final = 256
POLICY_RULES: Final = 200_000
POLICY_RULES_PER_MESSAGE: Final = 2_000
POLICY_NESTING_LEVELS: Final = 32
POLICY_PROGRAM_STEPS: Final = 200_000
GATE_KNOWN_DOMAINS: Final = 10_000
POLICY_SIGNATURE_BYTES: Final = 8_192
TEMPORARY_GATES: Final = 256
LIMIT_PLACES: Final = 8_192
LIMIT_PLACES_PER_DOMAIN: Final = 1_024

# Expiry of what a domain publishes, and of its certificates. Source: trust and hosts, section 3.4.
EXPIRY_RENEW_SECONDS: Final = (
    30 * 86_400.0
)  # documents that end sooner are renewed: time for four weekly timers to fail
EXPIRY_WARNING_SECONDS: Final = 14 * 86_400.0  # nobody renewed it, and there is time to ask who should have
EXPIRY_WARNING_SHARE: Final = 0.25
"""Of a life that is too short for the two above: a certificate of six days, or `live`, which is renewed at half."""
EXPIRY_LOOK_SECONDS: Final = 3_600.0
EXPIRY_REMINDER_SECONDS: Final = 86_400.0
"""How often the log repeats what expires or has expired."""
