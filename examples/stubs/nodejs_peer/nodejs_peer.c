/*
 * nodejs_peer: a stub for the reTHINK Node.js messaging node, which knows nothing of other domains (docs/interop/nodejs.md).
 *
 * The node speaks Socket.IO 1.x over Engine.IO 3. A WebSocket may be opened at once, without the polling that comes before elsewhere:
 *
 *     <- 0{"sid":…}                        the transport is open
 *     <- 40                                the namespace is: now messages may go
 *     -> 42["message","<JSON as a text>"]  to the node: a text that holds the message
 *     <- 42["message",{…}]                 from the node: the message itself
 *     -> 2   <- 3                          are you there; without it the node closes after a minute
 *     <- 41, 1                             it is over
 *
 * Addresses are rooms that a connection joins by subscriptions; senders are not learnt. An id of 0 counts as none.
 */
#define STUB_NAME "nodejs_peer"
#define STUB_VERSION "1.0.0"
#define STUB_CONFIGURATION {"type": "object", "additionalProperties": false, "properties": { \
    "runtime": {"type": "string", "maxLength": 400, "pattern": "^[a-z-]+://[!#-Z^-~]+$"}, \
    "msg_node": {"type": "string", "maxLength": 400, "pattern": "^domain://[!#-Z^-~]+$"}}}
#define NODE_READS_OLD_SUBSCRIPTIONS
#include "foreign_node.h"
#include "trapezoid_text.h"

enum { PING_TIMER = FIRST_TIMER, ANSWER_TIMER = FIRST_TIMER + 1 };

#define PING_MS 20000u
#define ANSWER_MS 10000u

static bool waits_for_pong;

static void send_packet(stub_bytes packet) { stub_send(CHANNEL, true, packet); }

static void frame_begin(void) {
    if (stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) stub_put(STUB_TEXT("42[\"message\",\""));
}

/* The message goes as a JSON text: what would end it is escaped. */
static void frame_put(stub_bytes text) { stub_put_json_part(text); }

static void frame_end(void) {
    stub_put(STUB_TEXT("\"]"));
    stub_end();
}

static bool takes_id(stub_bytes id) {
    bool is_text = id.size > 2 && id.data[0] == '"';
    bool is_number = id.size && id.data[0] >= '1' && id.data[0] <= '9';
    return id.size <= ID_BYTES && (is_text || is_number);
}

static bool needs_subscription(stub_bytes from) { return from.size > 0; }

static void open_channel(void) {
    stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL, STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true,"
        "\"path\":\"/socket.io/?EIO=3&transport=websocket\"}"));
}

static void on_opened(void) {
    state = ASKING;
    forget_known(); /* rooms end with their connection */
    stub_set_timer(ANSWER_TIMER, ANSWER_MS);
}

static void open_session(void) {
    if (state != ASKING) return;
    state = RESUMING;
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":1,\"type\":\"open\",\"from\":\""));
    frame_put(kept(&runtime_url));
    frame_put(STUB_TEXT("\",\"to\":\"mn:/session\"}"));
    frame_end();
}

static void on_session(void) {
    if (state != RESUMING) return;
    stub_set_timer(ANSWER_TIMER, 0);
    waits_for_pong = false;
    stub_set_timer(PING_TIMER, PING_MS);
    become_live();
}

static void on_frame(stub_bytes text) {
    const stub_bytes head = STUB_TEXT("42[\"message\",");
    if (stub_equal(text, STUB_TEXT("40"))) open_session();
    else if (stub_equal(text, STUB_TEXT("3"))) waits_for_pong = false;
    else if (stub_equal(text, STUB_TEXT("41")) || stub_equal(text, STUB_TEXT("1"))) hang_up(STUB_TEXT("the node says goodbye"));
    else if (starts_with(text, head)) {
        stub_bytes rest = {text.data + head.size, text.size - head.size};
        bool is_usual = rest.size > 2 && rest.data[rest.size - 1] == ']' && rest.data[rest.size - 2] == '}';
        message came = read_message((stub_bytes){rest.data, is_usual ? rest.size - 1 : stub_json_skip_value(rest, 0)});
        if (stub_equal(came.from, STUB_TEXT("\"mn:/session\""))) on_session();
        else on_message(&came);
    }
}

static void on_tick(uint32_t timer) {
    if (timer == ANSWER_TIMER && state != LIVE && state != CLOSED) hang_up(STUB_TEXT("the node does not answer"));
    if (timer != PING_TIMER || state != LIVE) return;
    if (waits_for_pong) {
        hang_up(STUB_TEXT("the node does not answer"));
        return;
    }
    waits_for_pong = true;
    send_packet(STUB_TEXT("2"));
    stub_set_timer(PING_TIMER, PING_MS);
}

static void before_close(void) { send_packet(STUB_TEXT("41")); }
