/*
 * line-translator: a stub for a domain that speaks something quite different, a protocol of text lines.
 *
 * Nobody but that domain has to know the protocol: it comes with the stub. Over a WebSocket, text frames of lines:
 *
 *     <- CHALLENGE <64 hex digits>            -> TOKEN <our token>
 *     <- WELCOME <its token>
 *    <-> MSG <number> <length> LF <length bytes of JSON> LF       any number of them in one frame
 *    <-> OK <number>                                              everything up to that number arrived
 *     <- NO <number> <status word text>                           this one is not wanted
 *
 * No resumption: a lost connection is made anew after a second, and the host hands over again what was not accepted.
 */
#define STUB_NAME "line-translator"
#define STUB_VERSION "1.0.0"
#include "trapezoid_stub.h"

enum { CHANNEL = 1, RECONNECT_TIMER = 1 };

#define RECONNECT_MS 1000u
#define CHALLENGE_BYTES 32u
#define MESSAGE_BYTES_MIN 12u /* {"type":"x"}; keeps deliveries within one action per 16 bytes of input */

typedef enum { CLOSED, OPENING, GREETED, SIGNING, PROVING, VERIFYING, LIVE } line_state;

static line_state state;
static bool is_draining;
static uint32_t highest_sent;

/* `text` asks the host for text frames on this channel. */
static void open_channel(void) {
    state = OPENING;
    static const char request[] =
        "{\"endpoint\":\"lines\",\"path\":\"\",\"headers\":{},\"subprotocol\":\"lines.1\",\"text\":true}";
    stub_act(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL, STUB_TEXT(request));
}

static void lose(stub_bytes reason) {
    state = CLOSED;
    stub_status_because(STUB_TEXT("disconnected"), reason);
    if (!is_draining) stub_set_timer(RECONNECT_TIMER, RECONNECT_MS);
}

static void hang_up(stub_bytes reason) {
    stub_close(CHANNEL);
    lose(reason);
}

static void send_line(stub_bytes word, stub_bytes rest) {
    if (!stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) return;
    stub_put(word);
    stub_put(rest);
    stub_put(STUB_TEXT("\n"));
    stub_end();
}

static void send_message(uint32_t number, stub_bytes message) {
    if (!stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) return;
    stub_put(STUB_TEXT("MSG "));
    stub_put_decimal(number);
    stub_put(STUB_TEXT(" "));
    stub_put_decimal(message.size);
    stub_put(STUB_TEXT("\n"));
    stub_put(message);
    stub_put(STUB_TEXT("\n"));
    stub_end();
    if (number > highest_sent) highest_sent = number;
}

static void send_ok(uint32_t number) {
    if (!stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL)) return;
    stub_put(STUB_TEXT("OK "));
    stub_put_decimal(number);
    stub_put(STUB_TEXT("\n"));
    stub_end();
}

/* --------------------------------------------------------------------------------------------------- reading lines */

/* Takes everything before `end` off the front of `text`, and `end` with it; all of it when there is none. */
static stub_bytes take_until(stub_bytes *text, uint8_t end) {
    uint32_t size = 0;
    while (size < text->size && text->data[size] != end) size++;
    stub_bytes taken = {text->data, size};
    uint32_t skipped = size < text->size ? size + 1 : size;
    *text = (stub_bytes){text->data + skipped, text->size - skipped};
    return taken;
}

static int32_t hex_digit(uint8_t letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
    return -1;
}

static bool on_challenge(stub_bytes hex) {
    uint8_t challenge[CHALLENGE_BYTES];
    if (state != GREETED || hex.size != 2 * CHALLENGE_BYTES) return false;
    for (uint32_t i = 0; i < CHALLENGE_BYTES; i++) {
        int32_t high = hex_digit(hex.data[2 * i]), low = hex_digit(hex.data[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        challenge[i] = (uint8_t)(high << 4 | low);
    }
    state = SIGNING;
    stub_request_auth_token(CHANNEL, (stub_bytes){challenge, CHALLENGE_BYTES});
    return true;
}

static bool on_welcome(stub_bytes token) {
    if (state != PROVING || !token.size) return false;
    state = VERIFYING;
    stub_verify_peer(CHANNEL, token);
    return true;
}

/* `words` is the rest of the MSG line; the JSON text follows in `rest`. */
static bool on_msg(stub_bytes words, stub_bytes *rest, uint32_t *number) {
    uint32_t size;
    stub_bytes first = take_until(&words, ' ');
    if (state != LIVE || !stub_read_decimal(first, number) || !*number || !stub_read_decimal(words, &size)) return false;
    if (size < MESSAGE_BYTES_MIN || size >= rest->size || rest->data[size] != '\n') return false;
    stub_deliver(0, (stub_bytes){rest->data, size});
    *rest = (stub_bytes){rest->data + size + 1, rest->size - size - 1};
    return true;
}

static bool is_sent(stub_bytes text, uint32_t *number) {
    return state == LIVE && stub_read_decimal(text, number) && *number && *number <= highest_sent;
}

static bool on_ok(stub_bytes words) {
    uint32_t number;
    if (!is_sent(words, &number)) return false;
    stub_accepted(number);
    return true;
}

static bool on_no(stub_bytes words) {
    uint32_t number;
    if (!is_sent(take_until(&words, ' '), &number) || !words.size) return false;
    stub_refused(number, words);
    return true;
}

static bool on_line(stub_bytes line, stub_bytes *rest, uint32_t *last_message) {
    stub_bytes word = take_until(&line, ' ');
    if (stub_equal(word, STUB_TEXT("MSG"))) return on_msg(line, rest, last_message);
    if (stub_equal(word, STUB_TEXT("OK"))) return on_ok(line);
    if (stub_equal(word, STUB_TEXT("NO"))) return on_no(line);
    if (stub_equal(word, STUB_TEXT("CHALLENGE"))) return on_challenge(line);
    if (stub_equal(word, STUB_TEXT("WELCOME"))) return on_welcome(line);
    return false;
}

static void on_text(stub_bytes text) {
    uint32_t last_message = 0;
    uint32_t lines_allowed = 48 + text.size / 16; /* each line is at most one action */
    while (text.size) {
        stub_bytes line = take_until(&text, '\n');
        if (!lines_allowed-- || !on_line(line, &text, &last_message)) {
            hang_up(STUB_TEXT("protocol-error"));
            return;
        }
    }
    if (last_message) send_ok(last_message);
}

/* ------------------------------------------------------------------------------------------------------------ events */

static void on_answer(const stub_event *event, bool is_good, line_state expected) {
    if (state != expected) return;
    if (!is_good) {
        hang_up(event->bytes);
        return;
    }
    if (expected == SIGNING) {
        state = PROVING;
        send_line(STUB_TEXT("TOKEN "), event->bytes);
    } else {
        state = LIVE;
        highest_sent = 0;
        stub_status(STUB_TEXT("live"));
    }
}

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        stub_status(STUB_TEXT("created"));
        open_channel();
        break;
    case STUB_MESSAGE:
        if (state == LIVE) send_message(event->arg, event->bytes);
        break;
    case STUB_OPENED:
        if (state != OPENING) break;
        state = GREETED;
        stub_status(STUB_TEXT("in-progress"));
        break;
    case STUB_DATA:
        if (state < GREETED) break;
        if (event->flags & STUB_FLAG) on_text(event->bytes);
        else hang_up(STUB_TEXT("protocol-error"));
        break;
    case STUB_CLOSED:
        if (state != CLOSED) lose(event->bytes);
        break;
    case STUB_TIMER:
        if (state == CLOSED && !is_draining) open_channel();
        break;
    case STUB_AUTH_TOKEN:
        on_answer(event, event->flags & STUB_FLAG, SIGNING);
        break;
    case STUB_PEER_VERIFIED:
        on_answer(event, event->flags & STUB_FLAG, VERIFYING);
        break;
    case STUB_DRAIN:
        is_draining = true;
        if (state != CLOSED) hang_up(STUB_TEXT("drained"));
        break;
    }
}
