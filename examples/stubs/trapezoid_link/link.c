/*
 * trapezoid-link: the protostub of our own node-to-node protocol, LINK/1 (README.md beside this file).
 *
 * Every WebSocket message is one frame:   u8 kind | u8 flags = 0 | u16 reserved = 0 | u32 arg | payload
 *
 * Theory of operation. One connection at a time, one state variable. A connection goes
 *
 *     WAITING -> OPENING -> GREETED -> SIGNING -> PROVING -> VERIFYING -> LIVE
 *     (timer)    open       HELLO      CHALLENGE  TOKEN     WELCOME      peer_verified
 *
 * and falls back to WAITING whenever it is lost; drain and refusals end in STOPPED. Each attempt uses a channel number of
 * its own, so that a late event of an old connection cannot be taken for one of the new.
 *
 * Messages are never looked into: out, records are re-framed by copying; in, each becomes one `deliver`. Numbers come from
 * the two hosts. What arrives between WELCOME and the verdict on the peer is held, and released in order within the output
 * limits.
 */
#define STUB_NAME "trapezoid-link"
#define STUB_VERSION "1.0.0"
#define STUB_HAS_BATCH_END
#include "trapezoid_stub.h"

enum { HELLO = 1, CHALLENGE = 2, TOKEN = 3, WELCOME = 4, MESSAGES = 5, ACK = 6, REFUSE = 7, BYE = 8 };
enum { RECONNECT_TIMER = 1, HANDSHAKE_TIMER = 2, RELEASE_TIMER = 3 };

typedef enum { IDLE, WAITING, OPENING, GREETED, SIGNING, PROVING, VERIFYING, LIVE, STOPPED } link_state;

#define PROTOCOL_VERSION 1u
#define SUBPROTOCOL "trapezoid-link.1"
#define FRAME_HEADER_BYTES 8u
#define FRAME_BYTES (60u << 10)        /* a batch stops growing here: fits the far end's 64 KiB calls with their headers */
#define MESSAGE_BYTES_MIN 12u          /* {"type":"x"}; 16 with its length: one action per 16 input bytes */
#define MESSAGE_BYTES_MAX (8u << 20)   /* protofly.limits.FRAME_BYTES_MAX */
#define CHALLENGE_BYTES 32u
#define STREAM_CHARS 32u
#define TOKEN_BYTES_MAX 4096u          /* protofly.limits.TOKEN_BYTES */
#define REFUSAL_BYTES_MAX 1024u
#define HELD_BYTES (4u << 20)          /* half of what a node has in flight at most; untouched pages cost nothing */
#define HELD_MESSAGE_BYTES (248u << 10) /* the most that the call of a timer may answer, with room for its other actions */
#define RECONNECT_BASE_MS 500u
#define RECONNECT_MAX_MS 60000u
#define STEADY_MS 10000u               /* a connection that lived this long starts the back-off anew */
#define HANDSHAKE_MS 30000u            /* the far end discovers our domain meanwhile: name server, documents */
#define RELEASE_MS 1u

static link_state state;
static uint32_t channel;
static uint32_t attempts;
static uint64_t live_since_ms;

/* JSON texts of the start settings, kept as they stand (strings with their quotes). */
static uint8_t our_domain_text[1024], our_node_text[4096], our_stream_text[64];
static stub_bytes our_domain, our_node, our_stream;

static uint8_t peer_stream[STREAM_CHARS], welcomed_stream[STREAM_CHARS];
static bool knows_peer_stream;
static uint32_t resume;        /* the far end has processed our messages up to here (from WELCOME) */
static uint32_t highest_sent;  /* on this connection, or `resume`: nothing above can be acknowledged */
static uint32_t received;      /* highest number of the peer's stream taken in; later ones only, duplicates are dropped */
static uint32_t delivered;     /* highest number handed to our bus */

/* The MESSAGES frame that is being filled: part of an open `send` action. */
static uint8_t *batch;
static uint32_t batch_next, batch_bytes;

/* Messages that wait for the verdict, as whole `deliver` records in order, between `held_from` and `held_to`. */
static uint8_t held[HELD_BYTES];
static uint32_t held_from, held_to;

/* --------------------------------------------------------------------------------------------------- frames out */

STUB_NOINLINE static bool begin_frame(uint8_t kind, uint32_t arg) {
    if (!stub_begin(STUB_ACT_SEND, 0, channel)) return false;
    stub_put_u32(kind);
    stub_put_u32(arg);
    return true;
}

STUB_NOINLINE static void send_frame(uint8_t kind, uint32_t arg, stub_bytes payload) {
    if (!begin_frame(kind, arg)) return;
    stub_put(payload);
    stub_end();
}

static void send_hello(void) {
    if (!begin_frame(HELLO, PROTOCOL_VERSION)) return;
    stub_put(STUB_TEXT("{\"stream\":"));
    stub_put(our_stream);
    stub_put(STUB_TEXT(",\"peer_stream\":\""));
    if (knows_peer_stream) stub_put((stub_bytes){peer_stream, STREAM_CHARS});
    stub_put(STUB_TEXT("\",\"delivered\":"));
    stub_put_decimal(delivered);
    stub_put(STUB_TEXT(",\"domain\":"));
    stub_put(our_domain);
    stub_put(STUB_TEXT(",\"node\":"));
    stub_put(our_node);
    stub_put(STUB_TEXT("}"));
    stub_end();
}

static void end_batch(void) {
    if (!batch) return;
    stub_end();
    batch = NULL;
}

static void add_to_batch(uint32_t number, stub_bytes message) {
    if (batch && (number != batch_next || batch_bytes + 4 + message.size > FRAME_BYTES)) end_batch();
    if (!batch) {
        if (!begin_frame(MESSAGES, number)) return;
        batch = stub_self.open_record;
        batch_bytes = FRAME_HEADER_BYTES;
    }
    uint8_t *at = stub_reserve(4 + message.size);
    if (!at) return;
    stub_write_u32(at, message.size);
    __builtin_memcpy(at + 4, message.data, message.size);
    batch_bytes += 4 + message.size;
    batch_next = number + 1;
    if (number > highest_sent) highest_sent = number;
}

/* ---------------------------------------------------------------------------------------- the life of a connection */

static void open_channel(void) {
    channel = channel % 65535 + 1;
    state = OPENING;
    if (!stub_begin(STUB_ACT_OPEN, STUB_WEBSOCKET, channel)) return;
    stub_put(STUB_TEXT("{\"endpoint\":\"mn\",\"path\":\"\",\"headers\":{},\"subprotocol\":\"" SUBPROTOCOL "\"}"));
    stub_end();
}

/* Forget what belongs to the connection. Held messages were never acknowledged: the far end sends them again. */
STUB_NOINLINE static void leave_connection(void) {
    if (state != OPENING) stub_set_timer(HANDSHAKE_TIMER, 0);
    held_from = held_to = 0;
    received = delivered;
}

static uint32_t back_off_ms(void) {
    uint32_t delay = attempts > 6 ? RECONNECT_MAX_MS : RECONNECT_BASE_MS << attempts;
    uint32_t spread = delay / 4;
    delay = delay - spread + stub_random_u32() % (2 * spread + 1);
    return delay < RECONNECT_MAX_MS ? delay : RECONNECT_MAX_MS;
}

STUB_NOINLINE static void wait_to_reconnect(stub_bytes reason) {
    if (state == LIVE && stub_now_ms() - live_since_ms >= STEADY_MS) attempts = 0;
    leave_connection();
    state = WAITING;
    stub_status_because(STUB_TEXT("disconnected"), reason);
    stub_set_timer(RECONNECT_TIMER, back_off_ms());
    if (attempts < 7) attempts++;
}

STUB_NOINLINE static void say_bye(stub_bytes code) {
    if (state > OPENING && state < STOPPED) send_frame(BYE, 0, code);
    stub_close(channel);
}

STUB_NOINLINE static void hang_up(stub_bytes code) {
    say_bye(code);
    wait_to_reconnect(code);
}

/* The end, until the host starts a new instance: somebody refused, and asking again would not change it. */
STUB_NOINLINE static void fail(stub_bytes code, stub_bytes reason) {
    say_bye(code);
    leave_connection();
    state = STOPPED;
    stub_status_because(STUB_TEXT("failed"), reason.size ? reason : code);
}

STUB_NOINLINE static void protocol_error(void) { hang_up(STUB_TEXT("protocol-error")); }

/* --------------------------------------------------------------------------------------------------- messages in */

/* Makes room at the end of what is held; false when even moving it down is not enough. */
static bool has_room_to_hold(uint32_t size) {
    if (size <= HELD_BYTES - held_to) return true;
    if (size > HELD_BYTES - (held_to - held_from)) return false;
    __builtin_memmove(held, held + held_from, held_to - held_from);
    held_to -= held_from;
    held_from = 0;
    return true;
}

/* False when it cannot be held: then the connection is given up, and the far end repeats after the next verdict. */
static bool hold(uint32_t number, stub_bytes message) {
    if (message.size > HELD_MESSAGE_BYTES || !has_room_to_hold(STUB_RECORD_BYTES + message.size)) return false;
    uint8_t *at = held + held_to;
    stub_write_u32(at, STUB_ACT_DELIVER);
    stub_write_u32(at + 4, number);
    stub_write_u32(at + 8, message.size);
    __builtin_memcpy(at + STUB_RECORD_BYTES, message.data, message.size);
    held_to += STUB_RECORD_BYTES + message.size;
    return true;
}

/* Delivers what was held, as much as this call may still say; the rest with the next event, at the latest with the timer. */
static void release_held(void) {
    uint32_t number = 0;
    while (held_from < held_to && stub_actions_left() > 8) {
        uint32_t size = stub_read_u32(held + held_from + 8);
        if (size + 4096 > stub_output_left() && number) break;
        number = stub_read_u32(held + held_from + 4);
        stub_deliver(number, (stub_bytes){held + held_from + STUB_RECORD_BYTES, size});
        held_from += STUB_RECORD_BYTES + size;
    }
    if (number) {
        delivered = number;
        send_frame(ACK, number, (stub_bytes){NULL, 0});
    }
    if (held_from < held_to) {
        stub_set_timer(RELEASE_TIMER, RELEASE_MS);
    } else {
        held_from = held_to = 0;
    }
}

/* Number of messages in the frame, 0 when it is not made of whole messages of a permitted size. */
static uint32_t count_messages(stub_bytes frame) {
    uint32_t messages = 0;
    for (uint32_t at = 0; at < frame.size; messages++) {
        uint32_t left = frame.size - at;
        if (left < 4) return 0;
        uint32_t size = stub_read_u32(frame.data + at);
        if (size < MESSAGE_BYTES_MIN || size > MESSAGE_BYTES_MAX || size > left - 4) return 0;
        at += 4 + size;
    }
    return messages;
}

/* A number that was taken in before is a repetition after a reconnect: acknowledged again, not delivered. */
static void take_messages(uint32_t first, stub_bytes frame) {
    uint32_t messages = count_messages(frame);
    if (!first || !messages || messages - 1 > UINT32_MAX - first) {
        protocol_error();
        return;
    }
    bool must_hold = state != LIVE || held_from < held_to;
    uint32_t number = first;
    for (uint32_t at = 0; at < frame.size; number++) {
        stub_bytes message = {frame.data + at + 4, stub_read_u32(frame.data + at)};
        at += 4 + message.size;
        if (number <= received) continue;
        received = number;
        if (!must_hold) {
            stub_deliver(number, message);
        } else if (!hold(number, message)) {
            hang_up(STUB_TEXT("overload"));
            return;
        }
    }
    if (must_hold) return;
    delivered = received;
    send_frame(ACK, delivered, (stub_bytes){NULL, 0});
}

/* ------------------------------------------------------------------------------------------------------ frames in */

static bool is_stream_name(const uint8_t *name) {
    for (uint32_t i = 0; i < STREAM_CHARS; i++) {
        bool is_hex = (name[i] >= '0' && name[i] <= '9') || (name[i] >= 'a' && name[i] <= 'f');
        if (!is_hex) return false;
    }
    return true;
}

/* Whether the far end goes on with the stream that we know. */
static bool is_known_stream_welcomed(void) {
    return knows_peer_stream && stub_equal((stub_bytes){peer_stream, STREAM_CHARS}, (stub_bytes){welcomed_stream, STREAM_CHARS});
}

static void on_challenge(stub_bytes challenge) {
    if (state != GREETED || challenge.size != CHALLENGE_BYTES) {
        protocol_error();
        return;
    }
    state = SIGNING;
    stub_request_auth_token(channel, challenge);
}

static void on_welcome(uint32_t processed, stub_bytes payload) {
    bool has_token = payload.size > STREAM_CHARS && payload.size <= STREAM_CHARS + TOKEN_BYTES_MAX;
    if (state != PROVING || !has_token || !is_stream_name(payload.data)) {
        protocol_error();
        return;
    }
    state = VERIFYING;
    resume = highest_sent = processed;
    __builtin_memcpy(welcomed_stream, payload.data, STREAM_CHARS);
    received = is_known_stream_welcomed() ? delivered : 0;
    stub_verify_peer(channel, (stub_bytes){payload.data + STREAM_CHARS, payload.size - STREAM_CHARS});
}

static void on_frame(stub_bytes frame) {
    if (frame.size < FRAME_HEADER_BYTES || frame.data[1] || frame.data[2] || frame.data[3]) {
        protocol_error();
        return;
    }
    uint32_t arg = stub_read_u32(frame.data + 4);
    stub_bytes payload = {frame.data + FRAME_HEADER_BYTES, frame.size - FRAME_HEADER_BYTES};
    bool is_ours = state == LIVE && arg && arg <= highest_sent;
    switch (frame.data[0]) {
    case CHALLENGE:
        on_challenge(payload);
        return;
    case WELCOME:
        on_welcome(arg, payload);
        return;
    case MESSAGES:
        if (state != VERIFYING && state != LIVE) break;
        take_messages(arg, payload);
        return;
    case ACK:
        if (!is_ours || payload.size) break;
        stub_accepted(arg);
        return;
    case REFUSE:
        if (!is_ours || !payload.size || payload.size > REFUSAL_BYTES_MAX) break;
        stub_refused(arg, payload);
        return;
    case BYE:
        stub_close(channel);
        wait_to_reconnect(payload.size ? payload : STUB_TEXT("bye"));
        return;
    }
    protocol_error();
}

/* ------------------------------------------------------------------------------------------------------ events */

/* Keeps the text of a member that is a string; false when there is none or it is too long. */
static bool keep_member(stub_bytes settings, stub_bytes name, uint8_t *to, uint32_t room, stub_bytes *kept) {
    stub_bytes value = stub_json_member(settings, name);
    if (value.size < 2 || value.size > room || value.data[0] != '"') return false;
    __builtin_memcpy(to, value.data, value.size);
    *kept = (stub_bytes){to, value.size};
    return true;
}

static void on_start(stub_bytes settings) {
    if (state != IDLE) return;
    if (!keep_member(settings, STUB_TEXT("our_domain"), our_domain_text, sizeof our_domain_text, &our_domain) ||
        !keep_member(settings, STUB_TEXT("our_node"), our_node_text, sizeof our_node_text, &our_node) ||
        !keep_member(settings, STUB_TEXT("stream"), our_stream_text, sizeof our_stream_text, &our_stream)) {
        state = STOPPED;
        stub_status(STUB_TEXT("failed settings"));
        return;
    }
    stub_bytes stream = stub_json_plain_string(stub_json_member(settings, STUB_TEXT("peer_stream")));
    knows_peer_stream = stream.size == STREAM_CHARS && is_stream_name(stream.data) &&
                        stub_read_decimal(stub_json_member(settings, STUB_TEXT("delivered")), &delivered);
    if (knows_peer_stream) __builtin_memcpy(peer_stream, stream.data, STREAM_CHARS);
    received = delivered;
    stub_status(STUB_TEXT("created"));
    open_channel();
}

static void on_opened(stub_bytes subprotocol) {
    if (subprotocol.size && !stub_equal(subprotocol, STUB_TEXT(SUBPROTOCOL))) {
        hang_up(STUB_TEXT("subprotocol"));
        return;
    }
    state = GREETED;
    stub_status(STUB_TEXT("in-progress"));
    stub_set_timer(HANDSHAKE_TIMER, HANDSHAKE_MS);
    send_hello();
}

static void on_auth_token(bool is_granted, stub_bytes token) {
    if (!is_granted) {
        fail(STUB_TEXT("auth-refused"), token);
        return;
    }
    state = PROVING;
    send_frame(TOKEN, 0, token);
}

static void on_peer_verified(bool is_verified, stub_bytes reason) {
    if (!is_verified) {
        fail(STUB_TEXT("auth-failed"), reason);
        return;
    }
    if (!is_known_stream_welcomed()) delivered = 0;
    __builtin_memcpy(peer_stream, welcomed_stream, STREAM_CHARS);
    knows_peer_stream = true;
    state = LIVE;
    live_since_ms = stub_now_ms();
    stub_set_timer(HANDSHAKE_TIMER, 0);
    stub_act(STUB_ACT_PEER_STREAM, 0, 0, (stub_bytes){peer_stream, STREAM_CHARS});
    if (resume) stub_accepted(resume);
    stub_status(STUB_TEXT("live"));
}

static void on_timer(uint32_t timer) {
    if (timer == RECONNECT_TIMER && state == WAITING) open_channel();
    if (timer == HANDSHAKE_TIMER && state > OPENING && state < LIVE) hang_up(STUB_TEXT("timeout"));
}

static void on_drain(void) {
    if (state == STOPPED) return;
    if (state == WAITING) stub_set_timer(RECONNECT_TIMER, 0);
    if (state > WAITING) {
        say_bye(STUB_TEXT("draining"));
        leave_connection();
    }
    state = STOPPED;
    stub_status(STUB_TEXT("disconnected drained"));
}

static void stub_on_event(const stub_event *event) {
    if (event->op == STUB_MESSAGE) {
        if (state == LIVE) add_to_batch(event->arg, event->bytes); /* else it stays the host's, which hands it over again */
        return;
    }
    end_batch();
    bool is_current = event->arg == channel && state > WAITING && state < STOPPED;
    switch (event->op) {
    case STUB_START:
        on_start(event->bytes);
        break;
    case STUB_OPENED:
        if (is_current && state == OPENING) on_opened(event->bytes);
        break;
    case STUB_DATA:
        if (!is_current || state == OPENING) break;
        if (event->flags & STUB_FLAG) protocol_error();
        else on_frame(event->bytes);
        break;
    case STUB_CLOSED:
        if (is_current) wait_to_reconnect(event->bytes);
        break;
    case STUB_AUTH_TOKEN:
        if (is_current && state == SIGNING) on_auth_token(event->flags & STUB_FLAG, event->bytes);
        break;
    case STUB_PEER_VERIFIED:
        if (is_current && state == VERIFYING) on_peer_verified(event->flags & STUB_FLAG, event->bytes);
        break;
    case STUB_TIMER:
        on_timer(event->arg);
        break;
    case STUB_DRAIN:
        on_drain();
        break;
    }
}

static void stub_on_batch_end(void) {
    end_batch();
    if (state == LIVE && held_from < held_to) release_held();
}
