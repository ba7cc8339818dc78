/*
 * foreign_node.h: a stub for a messaging node that cannot be changed, but for its dialect; include it in place of trapezoid_stub.h.
 *
 * Such a node takes our messages as if a runtime of its own had sent them: it takes no acknowledgements, has its own idea of ids, and
 * delivers to addresses that the connection has used or subscribed to. Here are the life of the connection, ids, subscriptions and
 * messages. The stub of a dialect adds:
 *
 *     static void open_channel(void);               ask for the channel CHANNEL
 *     static void on_opened(void);                  it is open: greet; `become_live` when the node takes messages
 *     static void on_frame(stub_bytes text);        one frame of the node: `read_message`, `on_message`
 *     static void on_tick(uint32_t timer);          timers from FIRST_TIMER on
 *     static void before_close(void);               last words to the node
 *     static bool takes_id(stub_bytes id);          the node takes and returns this id as it is
 *     static bool needs_subscription(stub_bytes);   the node does not learn this sender (with its quotes) by itself
 *     static void frame_begin(void);                begin one frame to the node
 *     static void frame_put(stub_bytes text);       some of the text of a message
 *     static void frame_end(void);                  send it
 *
 * With `#define NODE_READS_OLD_SUBSCRIPTIONS` lists of addresses are sent under their older names as well.
 */
#ifndef FOREIGN_NODE_H
#define FOREIGN_NODE_H

#define STUB_EVENTS "addresses"
#define STUB_HAS_BATCH_END
#include "trapezoid_stub.h"

static void open_channel(void);
static void on_opened(void);
static void on_frame(stub_bytes text);
static void on_tick(uint32_t timer);
static void before_close(void);
static bool takes_id(stub_bytes id);
static bool needs_subscription(stub_bytes from);
static void frame_begin(void);
static void frame_put(stub_bytes text);
static void frame_end(void);

#define URL_BYTES 512u

/* ------------------------------------------------------------------------------------------------------- reading messages */

typedef struct {
    stub_bytes json, id, type, from, to; /* values as they stand in `json`, strings with their quotes; size 0 = absent */
} message;

static bool is_named(stub_bytes json, uint32_t key, uint32_t end, stub_bytes name) {
    return stub_equal((stub_bytes){json.data + key + 1, end - key - 2}, name);
}

/* The header of a message. One pass, which ends when all members are found: mostly before the body. A first one of a name counts. */
STUB_NOINLINE static message read_message(stub_bytes json) {
    message read = {.json = json};
    uint32_t at = stub_json_skip_space(json, 0), missing = 4;
    if (at >= json.size || json.data[at] != '{') return read;
    for (at++; missing; at++) {
        uint32_t key = stub_json_skip_space(json, at), key_end = stub_json_skip_string(json, key);
        if (!key_end) return read;
        at = stub_json_skip_space(json, key_end);
        if (at >= json.size || json.data[at] != ':') return read;
        uint32_t value = stub_json_skip_space(json, at + 1), value_end = stub_json_skip_value(json, value);
        if (value_end <= value) return read;
        stub_bytes *member = NULL;
        if (is_named(json, key, key_end, STUB_TEXT("id"))) member = &read.id;
        else if (is_named(json, key, key_end, STUB_TEXT("to"))) member = &read.to;
        else if (is_named(json, key, key_end, STUB_TEXT("type"))) member = &read.type;
        else if (is_named(json, key, key_end, STUB_TEXT("from"))) member = &read.from;
        if (member && !member->size) {
            *member = (stub_bytes){json.data + value, value_end - value};
            missing--;
        }
        at = stub_json_skip_space(json, value_end);
        if (at >= json.size || json.data[at] != ',') return read;
    }
    return read;
}

static bool is_response(const message *read) { return stub_equal(read->type, STUB_TEXT("\"response\"")); }

static bool starts_with(stub_bytes text, stub_bytes start) {
    return text.size >= start.size && stub_equal((stub_bytes){text.data, start.size}, start);
}

/* A copy of a short text that outlives the call. */
typedef struct {
    uint8_t data[URL_BYTES];
    uint32_t size;
} kept_text;

static bool keep_text(kept_text *kept, stub_bytes text) {
    if (text.size > URL_BYTES) return false;
    __builtin_memcpy(kept->data, text.data, text.size);
    kept->size = text.size;
    return true;
}

static stub_bytes kept(const kept_text *text) { return (stub_bytes){text->data, text->size}; }

/* ------------------------------------------------------------------------------------------------------------------ ids */

/*
 * Ids that the node takes pass as they are. For every other one, and where there is none, it gets an integer from IDS_BASE on, and
 * the answer to the same asker gets back what stood there. The last IDS_KEPT of them are known; an answer that comes later than that
 * is nobody's any more.
 */
#define IDS_BASE (1u << 30)
#define IDS_KEPT 1024u
#define ID_BYTES 128u

static struct {
    uint64_t asker;
    uint32_t number, size;
    uint8_t text[ID_BYTES];
} ids[IDS_KEPT];
static uint32_t ids_given;

static uint64_t hash_of(stub_bytes text) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (uint32_t i = 0; i < text.size; i++) hash = (hash ^ text.data[i]) * 1099511628211u;
    return hash ? hash : 1;
}

static inline bool is_plain_id(stub_bytes id) {
    uint32_t number;
    return stub_read_decimal(id, &number) && number && number < IDS_BASE && id.data[0] != '0';
}

/* The integer that stands for an id; 0 when the id is too long. */
static uint32_t number_of_id(stub_bytes id, stub_bytes asker) {
    if (id.size > ID_BYTES) return 0;
    uint32_t number = IDS_BASE + ids_given++ % IDS_BASE;
    uint32_t slot = number % IDS_KEPT;
    ids[slot].asker = hash_of(asker);
    ids[slot].number = number;
    ids[slot].size = id.size;
    __builtin_memcpy(ids[slot].text, id.data, id.size);
    return number;
}

/* Whether this integer stands for an id of `asker`; `id` is what stood there, size 0 = nothing. An answer comes once. */
static bool id_of_number(uint32_t number, stub_bytes asker, stub_bytes *id) {
    uint32_t slot = number % IDS_KEPT;
    if (ids[slot].number != number || ids[slot].asker != hash_of(asker)) return false;
    ids[slot].number = 0;
    *id = (stub_bytes){ids[slot].text, ids[slot].size};
    return true;
}

/* --------------------------------------------------------------------------------------------- addresses that the node knows */

/* Hashes of addresses of ours that lead to this connection at the node. A full table forgets all: then they are named again. */
#define KNOWN_SLOTS 16384u
#define KNOWN_MOST 12288u

static uint64_t known[KNOWN_SLOTS];
static uint32_t known_count;

STUB_NOINLINE static void forget_known(void) {
    memset(known, 0, sizeof known);
    known_count = 0;
}

/* Whether an address is new to the node; it is known from now on. */
static bool learn(stub_bytes address) {
    uint64_t hash = hash_of(address);
    if (known_count >= KNOWN_MOST) forget_known();
    for (uint32_t slot = (uint32_t)hash;; slot++) {
        uint64_t *at = &known[slot % KNOWN_SLOTS];
        if (*at == hash) return false;
        if (*at) continue;
        *at = hash;
        known_count++;
        return true;
    }
}

/* The next line of a text, without its end; the text begins behind it then. */
static stub_bytes next_line(stub_bytes *text) {
    uint32_t size = 0;
    while (size < text->size && text->data[size] != '\n') size++;
    stub_bytes line = {text->data, size};
    uint32_t skipped = size < text->size ? size + 1 : size;
    *text = (stub_bytes){text->data + skipped, text->size - skipped};
    return line;
}

static bool is_hyperty(stub_bytes address) { return starts_with(address, STUB_TEXT("hyperty:")); }

/*
 * Ask our own node for the changes of objects of ours, so that they are sent to the foreign node as well: every line of `lines` with
 * that sign, whose address is no hyperty. In the name of the foreign node's subscription manager, which would ask if it knew of us: it
 * does not say for which objects it has listeners.
 */
#define OBSERVED_AT_ONCE 256u

static void observe_ours(stub_bytes type, stub_bytes node, stub_bytes domain, stub_bytes lines, uint8_t sign) {
    static uint32_t asked;
    uint32_t count = 0;
    while (lines.size) {
        stub_bytes line = next_line(&lines);
        stub_bytes address = {line.data + 1, line.size ? line.size - 1 : 0};
        if (!address.size || line.data[0] != sign || is_hyperty(address)) continue;
        if (!count) {
            if (!stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
            stub_put(STUB_TEXT("{\"id\":"));
            stub_put_decimal(IDS_BASE + asked++ % IDS_BASE);
            stub_put(STUB_TEXT(",\"type\":\""));
            stub_put(type);
            stub_put(STUB_TEXT("\",\"from\":\""));
            stub_put(node);
            stub_put(STUB_TEXT("\",\"to\":\"domain://msg-node."));
            stub_put(domain);
            stub_put(STUB_TEXT("/sm\",\"body\":{\"resources\":["));
        }
        stub_put(count ? STUB_TEXT(",\"") : STUB_TEXT("\""));
        stub_put(address);
        stub_put(STUB_TEXT("/changes\""));
        if (++count < OBSERVED_AT_ONCE) continue;
        stub_put(STUB_TEXT("]}}"));
        stub_end();
        count = 0;
    }
    if (!count) return;
    stub_put(STUB_TEXT("]}}"));
    stub_end();
}

/* -------------------------------------------------------------------------------------------------------- writing messages */

static void put_decimal(uint32_t value) {
    uint8_t digits[10];
    uint32_t first = sizeof digits;
    do {
        digits[--first] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value);
    frame_put((stub_bytes){digits + first, (uint32_t)sizeof digits - first});
}

/* One frame with a message of ours, its id as the node takes it. False: the message cannot be put so. */
static bool send_with_id(const message *sent) {
    bool is_kept = is_response(sent) || takes_id(sent->id);
    uint32_t number = is_kept ? 0 : number_of_id(sent->id, sent->from);
    if (!is_kept && !number) return false;
    frame_begin();
    if (is_kept) {
        frame_put(sent->json);
    } else if (sent->id.size) {
        uint32_t before = (uint32_t)(sent->id.data - sent->json.data);
        frame_put((stub_bytes){sent->json.data, before});
        put_decimal(number);
        uint32_t after = before + sent->id.size;
        frame_put((stub_bytes){sent->json.data + after, sent->json.size - after});
    } else {
        frame_put(STUB_TEXT("{\"id\":"));
        put_decimal(number);
        frame_put(STUB_TEXT(","));
        uint32_t brace = stub_json_skip_space(sent->json, 0) + 1;
        frame_put((stub_bytes){sent->json.data + brace, sent->json.size - brace});
    }
    frame_end();
    return true;
}

/* Hand one message of the node to our bus, with the id that its asker used. */
static void deliver_with_id(const message *came) {
    uint32_t number;
    stub_bytes id;
    if (!is_response(came) || !stub_read_decimal(came->id, &number) || number < IDS_BASE) {
        stub_deliver(0, came->json);
    } else if (!id_of_number(number, came->to, &id)) {
        if (takes_id(came->id)) stub_deliver(0, came->json);
    } else if (id.size && stub_begin(STUB_ACT_DELIVER, 0, 0)) {
        uint32_t before = (uint32_t)(came->id.data - came->json.data), after = before + came->id.size;
        stub_put((stub_bytes){came->json.data, before});
        stub_put(id);
        stub_put((stub_bytes){came->json.data + after, came->json.size - after});
        stub_end();
    }
}

/* ---------------------------------------------------------------------------------------------------------- the connection */

enum { CHANNEL = 1, RECONNECT_TIMER = 1, FIRST_TIMER = 2 };

#define RECONNECT_MS 500u
#define RECONNECT_MS_MAX 30000u

typedef enum { CLOSED, OPENING, ASKING, RESUMING, LIVE } connection_state;

static connection_state state;
static bool is_draining;
static uint32_t failures, highest_sent;
static kept_text runtime_url, manager, our_domain; /* the stub's address there; the node's subscription manager */

static void lose(stub_bytes reason) {
    state = CLOSED;
    for (uint32_t timer = FIRST_TIMER; timer < FIRST_TIMER + 2; timer++) stub_set_timer(timer, 0);
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

static void become_live(void) {
    state = LIVE;
    failures = 0;
    stub_status(STUB_TEXT("live"));
}

static bool named(stub_bytes configuration, stub_bytes name, kept_text *setting) {
    stub_bytes value = stub_json_plain_string(stub_json_member(configuration, name));
    return value.size && keep_text(setting, value);
}

/* Settings that all dialects have: `runtime` and `msg_node`. */
static void configure(stub_bytes settings) {
    stub_bytes configuration = stub_json_member(settings, STUB_TEXT("configuration"));
    keep_text(&our_domain, stub_json_plain_string(stub_json_member(settings, STUB_TEXT("our_domain"))));
    stub_bytes own = stub_json_plain_string(stub_json_member(settings, STUB_TEXT("stub_url")));
    if (!named(configuration, STUB_TEXT("runtime"), &runtime_url)) keep_text(&runtime_url, own);
    if (named(configuration, STUB_TEXT("msg_node"), &manager)) return;
    stub_bytes domain = stub_json_plain_string(stub_json_member(settings, STUB_TEXT("peer_domain")));
    const stub_bytes before = STUB_TEXT("domain://msg-node."), after = STUB_TEXT("/sm");
    if (before.size + domain.size + after.size > URL_BYTES) return;
    __builtin_memcpy(manager.data, before.data, before.size);
    __builtin_memcpy(manager.data + before.size, domain.data, domain.size);
    __builtin_memcpy(manager.data + before.size + domain.size, after.data, after.size);
    manager.size = before.size + domain.size + after.size;
}

/* ----------------------------------------------------------------------------------------------------------- subscriptions */

static void begin_subscription(stub_bytes type) {
    frame_begin();
    frame_put(STUB_TEXT("{\"id\":2,\"type\":\""));
    frame_put(type);
    frame_put(STUB_TEXT("\",\"from\":\""));
    frame_put(kept(&runtime_url));
    frame_put(STUB_TEXT("/sm\",\"to\":\""));
    frame_put(kept(&manager));
    frame_put(STUB_TEXT("\",\"body\":{"));
}

/* The list of addresses with that sign, and of what is subscribed to at objects, under the name `list`. */
static void put_resources(stub_bytes list, stub_bytes lines, uint8_t sign) {
    bool has_begun = false;
    frame_put(STUB_TEXT("\""));
    frame_put(list);
    frame_put(STUB_TEXT("\":["));
    while (lines.size) {
        stub_bytes line = next_line(&lines);
        if (line.size < 2 || line.data[0] != sign) continue;
        stub_bytes address = {line.data + 1, line.size - 1};
        frame_put(has_begun ? STUB_TEXT(",\"") : STUB_TEXT("\""));
        frame_put(address);
        frame_put(STUB_TEXT("\""));
        has_begun = true;
        if (is_hyperty(address)) continue;
        frame_put(STUB_TEXT(",\""));
        frame_put(address);
        frame_put(STUB_TEXT("/subscription\""));
    }
    frame_put(STUB_TEXT("]"));
}

static bool has_sign(stub_bytes lines, uint8_t sign) {
    while (lines.size) {
        stub_bytes line = next_line(&lines);
        if (line.size > 1 && line.data[0] == sign) return true;
    }
    return false;
}

/* Have the addresses of lines of one sign lead here, and the changes of objects go there; or no longer. */
static void on_addresses(stub_bytes lines, uint8_t sign, stub_bytes type) {
    if (!has_sign(lines, sign)) return;
    begin_subscription(type);
    put_resources(STUB_TEXT("resources"), lines, sign);
#ifdef NODE_READS_OLD_SUBSCRIPTIONS
    frame_put(STUB_TEXT(","));
    put_resources(type, lines, sign);
#endif
    frame_put(STUB_TEXT("}}"));
    frame_end();
    observe_ours(type, kept(&manager), kept(&our_domain), lines, sign);
}

/* Have one address, with its quotes, lead here. */
static void subscribe_sender(stub_bytes from) {
    begin_subscription(STUB_TEXT("subscribe"));
    frame_put(STUB_TEXT("\"resources\":["));
    frame_put(from);
#ifdef NODE_READS_OLD_SUBSCRIPTIONS
    frame_put(STUB_TEXT("],\"subscribe\":["));
    frame_put(from);
#endif
    frame_put(STUB_TEXT("]}}"));
    frame_end();
}

/* ---------------------------------------------------------------------------------------------------------------- messages */

/*
 * One of our reporters accepts an observer of theirs: from now on the changes of that object may go there. Where reporters are asked
 * for their consent, what `on_addresses` asked for was refused until then.
 */
STUB_NOINLINE static void observe_accepted(const message *sent) {
    static uint8_t line[URL_BYTES + 1];
    const stub_bytes end = STUB_TEXT("/subscription");
    stub_bytes from = stub_json_plain_string(sent->from);
    if (from.size <= end.size || from.size - end.size > URL_BYTES) return;
    uint32_t size = from.size - end.size;
    if (!stub_equal((stub_bytes){from.data + size, end.size}, end)) return;
    stub_bytes code = stub_json_member(stub_json_member(sent->json, STUB_TEXT("body")), STUB_TEXT("code"));
    uint32_t first = code.size && code.data[0] == '"';
    if (code.size != 3 + 2 * first || code.data[first] != '2') return;
    line[0] = '+';
    __builtin_memcpy(line + 1, from.data, size);
    observe_ours(STUB_TEXT("subscribe"), kept(&manager), kept(&our_domain), (stub_bytes){line, size + 1}, '+');
}

static void send_message(uint32_t number, stub_bytes json) {
    message sent = read_message(json);
    if (is_response(&sent) && stub_equal(stub_json_plain_string(sent.to), kept(&manager))) {
        highest_sent = number; /* what our own node says to `observe_ours` */
        return;
    }
    if (needs_subscription(sent.from) && learn(sent.from)) subscribe_sender(sent.from);
    if (is_response(&sent)) observe_accepted(&sent);
    if (send_with_id(&sent)) highest_sent = number;
    else stub_refused(number, STUB_TEXT("400 bad-header an id of more than 128 bytes"));
}

static void on_message(const message *came) {
    if (state != LIVE || !came->type.size || !came->from.size || !came->to.size) return;
    if (starts_with(stub_json_plain_string(came->to), kept(&runtime_url))) return; /* answers to what the stub itself asked */
    deliver_with_id(came);
}

/* ------------------------------------------------------------------------------------------------------------------ events */

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        configure(event->bytes);
        stub_status(STUB_TEXT("created"));
        state = OPENING;
        open_channel();
        break;
    case STUB_MESSAGE:
        if (state == LIVE) send_message(event->arg, event->bytes);
        break;
    case STUB_OPENED:
        if (state != OPENING) break;
        stub_status(STUB_TEXT("in-progress"));
        on_opened();
        break;
    case STUB_DATA:
        if (state >= ASKING) on_frame(event->bytes);
        break;
    case STUB_CLOSED:
        if (state != CLOSED) lose(event->bytes);
        break;
    case STUB_TIMER:
        if (event->arg >= FIRST_TIMER) {
            on_tick(event->arg);
        } else if (state == CLOSED && !is_draining) {
            state = OPENING;
            open_channel();
        }
        break;
    case STUB_ADDRESSES:
        if (state != LIVE) break;
        on_addresses(event->bytes, '-', STUB_TEXT("unsubscribe"));
        on_addresses(event->bytes, '+', STUB_TEXT("subscribe"));
        break;
    case STUB_DRAIN:
        is_draining = true;
        if (state == CLOSED) break;
        if (state == LIVE) before_close();
        hang_up(STUB_TEXT("drained"));
        break;
    }
}

static void stub_on_batch_end(void) {
    if (highest_sent) stub_accepted(highest_sent); /* sent is all that can be known */
    highest_sent = 0;
}

#endif
