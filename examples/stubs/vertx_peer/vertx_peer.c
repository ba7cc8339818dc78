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
#define STUB_EVENTS "addresses"
#define STUB_HAS_BATCH_END
#include "trapezoid_stub.h"
#include "foreign_node.h"

enum { CHANNEL = 1, RECONNECT_TIMER = 1, ANSWER_TIMER = 2 };

#define RECONNECT_MS 500u
#define RECONNECT_MS_MAX 30000u
#define ANSWER_MS 5000u
#define SESSION STUB_TEXT("\"mn:/session\"")

typedef enum { CLOSED, OPENING, ASKING, RESUMING, LIVE } session_state;

static session_state state;
static bool is_draining;
static uint32_t failures, highest_sent;
static kept_text runtime_url, token, msg_node, our_domain;

static void frame_begin(void) { stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL); }
static void frame_put(stub_bytes text) { stub_put(text); }
static void frame_end(void) { stub_end(); }

/* -------------------------------------------------------------------------------------------------------------- session */

static void put_session_url(void) {
    frame_put(kept(&runtime_url));
    if (!token.size) return;
    frame_put(STUB_TEXT("/"));
    frame_put(kept(&token));
}

static void ask_session(stub_bytes type, session_state next) {
    state = next;
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":1,\"type\":\""));
    frame_put(type);
    frame_put(STUB_TEXT("\",\"from\":\""));
    put_session_url();
    frame_put(STUB_TEXT("\",\"to\":\"mn:/session\",\"body\":{}}"));
    frame_end();
}

static void open_session(void) {
    token.size = 0;
    forget_known(); /* a new session has no addresses */
    ask_session(STUB_TEXT("open"), ASKING);
}

static void open_channel(void) {
    state = OPENING;
    stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL, STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true}"));
}

static void lose(stub_bytes reason) {
    state = CLOSED;
    stub_set_timer(ANSWER_TIMER, 0);
    stub_status_because(STUB_TEXT("disconnected"), reason);
    if (is_draining) return;
    uint32_t delay = failures < 6 ? RECONNECT_MS << failures : RECONNECT_MS_MAX;
    failures++;
    stub_set_timer(RECONNECT_TIMER, delay + stub_random_u32() % (delay / 4));
}

static void hang_up(stub_bytes reason) {
    stub_close(CHANNEL);
    lose(reason);
}

static void session_answer(const message *came) {
    stub_bytes body = stub_json_member(came->json, STUB_TEXT("body"));
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
    state = LIVE;
    failures = 0;
    stub_set_timer(ANSWER_TIMER, 0);
    stub_status(STUB_TEXT("live"));
}

/* ----------------------------------------------------------------------------------------------------------- subscriptions */

static void begin_subscription(stub_bytes type) {
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":2,\"type\":\""));
    frame_put(type);
    frame_put(STUB_TEXT("\",\"from\":\""));
    frame_put(kept(&runtime_url));
    frame_put(STUB_TEXT("/sm\",\"to\":\""));
    frame_put(kept(&msg_node));
    frame_put(STUB_TEXT("\",\"body\":{\"resources\":["));
}

static void end_subscription(void) {
    frame_put(STUB_TEXT("]}}"));
    frame_end();
}

static void name_resource(stub_bytes before, stub_bytes address, stub_bytes after) {
    frame_put(before);
    frame_put(address);
    frame_put(after);
}

/* Lines of one sign: have their addresses lead here, and the changes of objects go there; or no longer. */
static void on_addresses(stub_bytes lines, uint8_t sign, stub_bytes type) {
    bool has_begun = false;
    for (stub_bytes rest = lines; rest.size;) {
        stub_bytes line = next_line(&rest);
        if (line.size < 2 || line.data[0] != sign) continue;
        stub_bytes address = {line.data + 1, line.size - 1};
        if (!has_begun) begin_subscription(type);
        name_resource(has_begun ? STUB_TEXT(",\"") : STUB_TEXT("\""), address, STUB_TEXT("\""));
        if (!is_hyperty(address)) name_resource(STUB_TEXT(",\""), address, STUB_TEXT("/subscription\""));
        has_begun = true;
    }
    if (has_begun) end_subscription();
    observe_ours(type, kept(&msg_node), kept(&our_domain), lines, sign);
}

/* ---------------------------------------------------------------------------------------------------------------- messages */

static void send_message(uint32_t number, stub_bytes json) {
    message sent = read_message(json);
    if (stub_equal(stub_json_plain_string(sent.to), kept(&msg_node)) && is_response(&sent)) {
        highest_sent = number; /* what our own node says to `observe_ours` */
        return;
    }
    if (!starts_with(sent.from, STUB_TEXT("\"hyperty:")) && learn(sent.from)) {
        begin_subscription(STUB_TEXT("subscribe"));
        frame_put(sent.from);
        end_subscription();
    }
    if (send_with_id(&sent)) highest_sent = number;
    else stub_refused(number, STUB_TEXT("400 bad-header an id of more than 128 bytes"));
}

static void on_text(stub_bytes json) {
    message came = read_message(json);
    stub_bytes to = stub_json_plain_string(came.to);
    if (stub_equal(came.from, SESSION)) session_answer(&came);
    else if (state != LIVE) return;
    else if (starts_with(to, kept(&runtime_url))) return; /* answers to what the stub itself asked */
    else if (starts_with(came.from, STUB_TEXT("\"mn:/"))) stub_log(STUB_LOG_WARNING, json); /* the node takes offence */
    else if (came.type.size && came.from.size && came.to.size) deliver_with_id(&came);
}

/* ------------------------------------------------------------------------------------------------------------------ events */

static void configure(stub_bytes settings) {
    stub_bytes configuration = stub_json_member(settings, STUB_TEXT("configuration"));
    stub_bytes named = stub_json_plain_string(stub_json_member(configuration, STUB_TEXT("runtime")));
    stub_bytes own = stub_json_plain_string(stub_json_member(settings, STUB_TEXT("stub_url")));
    keep_text(&runtime_url, named.size ? named : own);
    named = stub_json_plain_string(stub_json_member(configuration, STUB_TEXT("msg_node")));
    keep_text(&our_domain, stub_json_plain_string(stub_json_member(settings, STUB_TEXT("our_domain"))));
    stub_bytes domain = stub_json_plain_string(stub_json_member(settings, STUB_TEXT("peer_domain")));
    if (keep_text(&msg_node, named) && named.size) return;
    const stub_bytes before = STUB_TEXT("domain://msg-node."), after = STUB_TEXT("/sm");
    if (before.size + domain.size + after.size > URL_BYTES) return;
    __builtin_memcpy(msg_node.data, before.data, before.size);
    __builtin_memcpy(msg_node.data + before.size, domain.data, domain.size);
    __builtin_memcpy(msg_node.data + before.size + domain.size, after.data, after.size);
    msg_node.size = before.size + domain.size + after.size;
}

static void on_timer(uint32_t timer) {
    if (timer == RECONNECT_TIMER && state == CLOSED && !is_draining) open_channel();
    if (timer == ANSWER_TIMER && (state == ASKING || state == RESUMING)) {
        hang_up(STUB_TEXT("the node does not answer"));
    }
}

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        configure(event->bytes);
        stub_status(STUB_TEXT("created"));
        open_channel();
        break;
    case STUB_MESSAGE:
        if (state == LIVE) send_message(event->arg, event->bytes);
        break;
    case STUB_OPENED:
        if (state != OPENING) break;
        stub_status(STUB_TEXT("in-progress"));
        stub_set_timer(ANSWER_TIMER, ANSWER_MS);
        if (token.size) ask_session(STUB_TEXT("re-open"), RESUMING);
        else open_session();
        break;
    case STUB_DATA:
        if (state >= ASKING) on_text(event->bytes);
        break;
    case STUB_CLOSED:
        if (state != CLOSED) lose(event->bytes);
        break;
    case STUB_ADDRESSES:
        if (state != LIVE) break;
        on_addresses(event->bytes, '-', STUB_TEXT("unsubscribe"));
        on_addresses(event->bytes, '+', STUB_TEXT("subscribe"));
        break;
    case STUB_TIMER:
        on_timer(event->arg);
        break;
    case STUB_DRAIN:
        is_draining = true;
        if (state == CLOSED) break;
        if (state == LIVE) ask_session(STUB_TEXT("close"), CLOSED);
        hang_up(STUB_TEXT("drained"));
        break;
    }
}

static void stub_on_batch_end(void) {
    if (highest_sent) stub_accepted(highest_sent); /* sent is all that can be known */
    highest_sent = 0;
}
