/*
 * @NAME@: speaks a small protocol of text frames over a WebSocket. Make it yours.
 *
 *     <- HELLO <16 to 64 letters>         -> TOKEN <token that proves the host's node>
 *     <- WELCOME <token of this side>
 *    <-> MSG <number> <message>           our numbers are the host's; theirs are theirs
 *    <-> OK <number>                      everything up to that number arrived
 *     <- NO <number> <status word text>   this one is not wanted
 */
#define STUB_NAME "@NAME@"
#define STUB_VERSION "0.1.0"
#include "trapezoid_stub.h"

enum { CHANNEL = 1, RECONNECT_TIMER = 1 };
#define RECONNECT_MS 1000u
#define RECONNECT_MS_MAX 60000u

typedef enum { CLOSED, OPENING, GREETED, SIGNING, PROVING, VERIFYING, LIVE } line_state;

static line_state state;
static bool is_draining;
static uint32_t delay_ms = RECONNECT_MS, highest_sent;

static void open_line(void) {
    state = OPENING;
    stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL, STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true}"));
}

/* The line is gone: the host keeps what was not accepted, and hands it over again once we are live. */
static void lose(stub_bytes why) {
    state = CLOSED;
    stub_status_because(STUB_TEXT("disconnected"), why);
    if (is_draining) return;
    stub_set_timer(RECONNECT_TIMER, delay_ms + stub_random_u32() % (delay_ms / 4));
    delay_ms = delay_ms * 2 < RECONNECT_MS_MAX ? delay_ms * 2 : RECONNECT_MS_MAX;
}

static void hang_up(stub_bytes why) {
    stub_close(CHANNEL);
    lose(why);
}

static void send_words(stub_bytes word, stub_bytes rest) {
    if (!stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) return;
    stub_put(word);
    stub_put(rest);
    stub_end();
}

static void send_numbered(stub_bytes word, uint32_t number, stub_bytes message) {
    if (!stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) return;
    stub_put(word);
    stub_put_decimal(number);
    if (message.size) stub_put(STUB_TEXT(" "));
    stub_put(message);
    stub_end();
}

/* Takes the first word off the front of `text`. */
static stub_bytes take_word(stub_bytes *text) {
    uint32_t size = 0;
    while (size < text->size && text->data[size] != ' ') size++;
    stub_bytes word = {text->data, size};
    uint32_t skipped = size < text->size ? size + 1 : size;
    *text = (stub_bytes){text->data + skipped, text->size - skipped};
    return word;
}

static bool on_answer(stub_bytes word, stub_bytes rest) {
    uint32_t number;
    if (!stub_read_decimal(take_word(&rest), &number) || !number) return false;
    if (stub_equal(word, STUB_TEXT("MSG"))) {
        if (!rest.size) return false;
        stub_deliver(0, rest);
        send_numbered(STUB_TEXT("OK "), number, (stub_bytes){NULL, 0});
        return true;
    }
    if (number > highest_sent) return false; /* nobody can answer what was never sent */
    if (stub_equal(word, STUB_TEXT("OK"))) {
        stub_accepted(number);
        return true;
    }
    if (!stub_equal(word, STUB_TEXT("NO")) || !rest.size) return false;
    stub_refused(number, rest);
    return true;
}

/* One frame of the far end; false: it speaks something else, or out of turn. */
static bool on_frame(stub_bytes text) {
    stub_bytes word = take_word(&text);
    if (state == LIVE) return on_answer(word, text);
    if (state == GREETED && stub_equal(word, STUB_TEXT("HELLO")) && text.size >= 16 && text.size <= 64) {
        state = SIGNING;
        stub_request_auth_token(CHANNEL, text);
        return true;
    }
    if (state == PROVING && stub_equal(word, STUB_TEXT("WELCOME")) && text.size) {
        state = VERIFYING;
        stub_verify_peer(CHANNEL, text);
        return true;
    }
    return false;
}

static void on_verdict(const stub_event *event) {
    bool is_good = event->flags & STUB_FLAG;
    if (event->op == STUB_AUTH_TOKEN && state == SIGNING && is_good) {
        state = PROVING;
        send_words(STUB_TEXT("TOKEN "), event->bytes);
    } else if (event->op == STUB_PEER_VERIFIED && state == VERIFYING && is_good) {
        state = LIVE;
        highest_sent = 0;
        delay_ms = RECONNECT_MS;
        stub_status(STUB_TEXT("live"));
    } else if (state == SIGNING || state == VERIFYING) {
        hang_up(event->bytes);
    }
}

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        stub_status(STUB_TEXT("created"));
        open_line();
        break;
    case STUB_OPENED:
        if (state != OPENING) break;
        state = GREETED;
        stub_status(STUB_TEXT("in-progress"));
        break;
    case STUB_MESSAGE:
        if (state != LIVE) break;
        send_numbered(STUB_TEXT("MSG "), event->arg, event->bytes);
        if (event->arg > highest_sent) highest_sent = event->arg;
        break;
    case STUB_DATA:
        if (state >= GREETED && !on_frame(event->bytes)) hang_up(STUB_TEXT("protocol-error"));
        break;
    case STUB_AUTH_TOKEN:
    case STUB_PEER_VERIFIED:
        on_verdict(event);
        break;
    case STUB_CLOSED:
        if (state != CLOSED) lose(event->bytes);
        break;
    case STUB_TIMER:
        if (state == CLOSED && !is_draining) open_line();
        break;
    case STUB_DRAIN:
        is_draining = true;
        if (state != CLOSED) hang_up(STUB_TEXT("drained"));
        break;
    }
}
