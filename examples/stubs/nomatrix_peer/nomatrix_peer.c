/*
 * nomatrix_peer: a stub for the reTHINK NoMatrix messaging node, which knows nothing of other domains (docs/interop/nomatrix.md).
 *
 * The address in the query is the whole handshake; then one JSON message per text frame. The node takes ids of any kind, learns every
 * sender, and keeps what it has learnt for ever. Two of its faults matter here:
 *
 * - It forgets the connection of a runtime when an older one of the same runtime ends, so that this one hears nothing any more. The stub
 *   sends itself a message now and then, and connects anew when it does not come back.
 * - A message to a runtime that has said `disconnect` ends its process. The stub never says it.
 */
#define STUB_NAME "nomatrix_peer"
#define STUB_VERSION "1.0.0"
#define STUB_CONFIGURATION {"type": "object", "additionalProperties": false, "properties": { \
    "runtime": {"type": "string", "maxLength": 400, "pattern": "^[a-z-]+://[!#-Z^-~]+$"}, \
    "msg_node": {"type": "string", "maxLength": 400, "pattern": "^domain://[!#-Z^-~]+$"}}}
#include "foreign_node.h"

enum { ECHO_TIMER = FIRST_TIMER };

#define ECHO_MS 20000u

static bool waits_for_echo;

static void frame_begin(void) { stub_begin(STUB_ACT_SEND, STUB_FLAG, CHANNEL); }
static void frame_put(stub_bytes text) { stub_put(text); }
static void frame_end(void) { stub_end(); }

static bool takes_id(stub_bytes id) {
    (void)id;
    return true;
}

static bool needs_subscription(stub_bytes from) {
    (void)from;
    return false;
}

static void put_percent_encoded(stub_bytes text) {
    for (uint32_t i = 0; i < text.size; i++) {
        uint8_t letter = text.data[i];
        bool is_plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
        uint8_t encoded[3] = {'%', (uint8_t)"0123456789ABCDEF"[letter >> 4], (uint8_t)"0123456789ABCDEF"[letter & 15]};
        if (is_plain || letter == '-' || letter == '.' || letter == '_') stub_put((stub_bytes){&letter, 1});
        else stub_put((stub_bytes){encoded, 3});
    }
}

static void open_channel(void) {
    if (!stub_begin(STUB_ACT_OPEN, STUB_WEBSOCKET, CHANNEL)) return;
    stub_put(STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true,\"path\":\"?runtimeURL="));
    put_percent_encoded(kept(&runtime_url));
    stub_put(STUB_TEXT("\"}"));
    stub_end();
}

static void send_echo(void) {
    waits_for_echo = true;
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":1,\"type\":\"ping\",\"from\":\""));
    frame_put(kept(&runtime_url));
    frame_put(STUB_TEXT("/echo\",\"to\":\""));
    frame_put(kept(&runtime_url));
    frame_put(STUB_TEXT("/echo\",\"body\":{}}"));
    frame_end();
    stub_set_timer(ECHO_TIMER, ECHO_MS);
}

static void on_opened(void) {
    become_live();
    send_echo();
}

static void on_frame(stub_bytes text) {
    message came = read_message(text);
    bool is_ping = stub_equal(came.type, STUB_TEXT("\"ping\""));
    if (is_ping && starts_with(stub_json_plain_string(came.to), kept(&runtime_url))) waits_for_echo = false;
    on_message(&came);
}

static void on_tick(uint32_t timer) {
    if (timer != ECHO_TIMER || state != LIVE) return;
    if (waits_for_echo) hang_up(STUB_TEXT("the node has forgotten this connection"));
    else send_echo();
}

static void before_close(void) {}
