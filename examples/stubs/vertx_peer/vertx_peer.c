/*
 * vertx_peer: a stub for the reTHINK Vert.x messaging node, which knows nothing of other domains (docs/interop/vertx.md).
 *
 * The node takes it for one of its runtimes. Over a WebSocket, one JSON message per text frame:
 *
 *     -> open     from the stub's address, to mn:/session   <- 200 with a token: the session is <address>/<token>
 *     -> re-open  from the session, after a lost line       <- 200, or 500: the node was started anew, so `open` again
 *     -> subscribe {"resources": [address]}                 for every address of ours that is to be reached there: those that
 *                                                           our node names, and senders that it does not name
 *     -> close    from the session                          in the end, else the node keeps the session for ever
 *
 * Ids have to be integers. Senders `hyperty:…` are learnt by the node. It never says that a message has arrived.
 */
#define STUB_NAME "vertx_peer"
#define STUB_VERSION "1.0.0"
#define STUB_CONFIGURATION {"type": "object", "additionalProperties": false, "properties": { \
    "runtime": {"type": "string", "maxLength": 400, "pattern": "^[a-z-]+://[!#-Z^-~]+$"}, \
    "msg_node": {"type": "string", "maxLength": 400, "pattern": "^domain://[!#-Z^-~]+$"}}}
#include "foreign_node.h"

enum { ANSWER_TIMER = FIRST_TIMER };

#define ANSWER_MS 5000u
#define SESSION STUB_TEXT("\"mn:/session\"")

static kept_text token;

static void frame_begin(void) { stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL); }
static void frame_put(stub_bytes text) { stub_put(text); }
static void frame_end(void) { stub_end(); }
static bool takes_id(stub_bytes id) { return is_plain_id(id); }
static bool needs_subscription(stub_bytes from) { return !starts_with(from, STUB_TEXT("\"hyperty:")); }

static void open_channel(void) {
    stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL, STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true}"));
}

static void ask_session(stub_bytes type) {
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":1,\"type\":\""));
    frame_put(type);
    frame_put(STUB_TEXT("\",\"from\":\""));
    frame_put(kept(&runtime_url));
    if (token.size) frame_put(STUB_TEXT("/"));
    frame_put(kept(&token));
    frame_put(STUB_TEXT("\",\"to\":\"mn:/session\",\"body\":{}}"));
    frame_end();
}

static void open_session(void) {
    token.size = 0;
    forget_known(); /* a new session has no addresses */
    state = ASKING;
    ask_session(STUB_TEXT("open"));
}

static void on_opened(void) {
    stub_set_timer(ANSWER_TIMER, ANSWER_MS);
    if (token.size) {
        state = RESUMING;
        ask_session(STUB_TEXT("re-open"));
    } else {
        open_session();
    }
}

static void on_session(stub_bytes answer) {
    stub_bytes body = stub_json_member(answer, STUB_TEXT("body"));
    bool is_good = stub_equal(stub_json_member(body, STUB_TEXT("code")), STUB_TEXT("200"));
    if (state != ASKING && state != RESUMING) return;
    if (!is_good && state == RESUMING) {
        open_session(); /* it was started anew, and knows neither token nor addresses */
        return;
    }
    stub_bytes given = stub_json_plain_string(stub_json_member(body, STUB_TEXT("runtimeToken")));
    if (!is_good || (state == ASKING && (!given.size || !keep_text(&token, given)))) {
        hang_up(STUB_TEXT("the node refuses the session"));
        return;
    }
    stub_set_timer(ANSWER_TIMER, 0);
    become_live();
}

static void on_frame(stub_bytes text) {
    message came = read_message(text);
    if (stub_equal(came.from, SESSION)) on_session(text);
    else if (starts_with(came.from, STUB_TEXT("\"mn:/"))) stub_log(STUB_LOG_WARNING, text); /* it refuses what we sent */
    else on_message(&came);
}

static void on_tick(uint32_t timer) {
    if (timer == ANSWER_TIMER && (state == ASKING || state == RESUMING)) hang_up(STUB_TEXT("the node does not answer"));
}

static void before_close(void) { ask_session(STUB_TEXT("close")); }
