/*
 * foreign_node.h: what stubs for messaging nodes that cannot be changed have in common; include it after trapezoid_stub.h.
 *
 * Such a node takes our messages as if a runtime of its own had sent them: it takes no acknowledgements, mostly integer ids, and
 * delivers to addresses that the connection has used or subscribed to. Here are ids, addresses that the node knows, and messages.
 * The stub says how its node frames a text, by three functions; everything that is put goes through them:
 *
 *     static void frame_begin(void);           begin one frame to the node
 *     static void frame_put(stub_bytes text);  some of its text
 *     static void frame_end(void);             send it
 */
#ifndef FOREIGN_NODE_H
#define FOREIGN_NODE_H

#include "trapezoid_stub.h"

static void frame_begin(void);
static void frame_put(stub_bytes text);
static void frame_end(void);

#define URL_BYTES 512u

/* ------------------------------------------------------------------------------------------------------- reading messages */

typedef struct {
    stub_bytes json, id, type, from, to; /* values as they stand in `json`, strings with their quotes; size 0 = absent */
} message;

static message read_message(stub_bytes json) {
    return (message){
        json,
        stub_json_member(json, STUB_TEXT("id")),
        stub_json_member(json, STUB_TEXT("type")),
        stub_json_member(json, STUB_TEXT("from")),
        stub_json_member(json, STUB_TEXT("to")),
    };
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
 * Integers from 1 to IDS_BASE - 1 pass as they are. For every other id, and where there is none, the node gets an integer from
 * IDS_BASE on, and its answer gets back what stood there. The last IDS_KEPT of them are known; an answer that comes later than
 * that is nobody's any more.
 */
#define IDS_BASE (1u << 30)
#define IDS_KEPT 1024u
#define ID_BYTES 128u

static struct {
    uint32_t number, size;
    uint8_t text[ID_BYTES];
} ids[IDS_KEPT];
static uint32_t ids_given;

static bool is_plain_id(stub_bytes id) {
    uint32_t number;
    return stub_read_decimal(id, &number) && number && number < IDS_BASE && id.data[0] != '0';
}

/* The integer that stands for an id; 0 when the id is too long. */
static uint32_t number_of_id(stub_bytes id) {
    if (id.size > ID_BYTES) return 0;
    uint32_t number = IDS_BASE + ids_given++ % IDS_BASE;
    uint32_t slot = number % IDS_KEPT;
    ids[slot].number = number;
    ids[slot].size = id.size;
    __builtin_memcpy(ids[slot].text, id.data, id.size);
    return number;
}

/* What stood in the place of this integer; size 0 = nobody waits for it. It is forgotten with that: an answer comes once. */
static stub_bytes id_of_number(uint32_t number) {
    uint32_t slot = number % IDS_KEPT;
    if (ids[slot].number != number) return (stub_bytes){NULL, 0};
    ids[slot].number = 0;
    return (stub_bytes){ids[slot].text, ids[slot].size};
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

static uint64_t hash_of(stub_bytes text) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (uint32_t i = 0; i < text.size; i++) hash = (hash ^ text.data[i]) * 1099511628211u;
    return hash ? hash : 1;
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

static void observe_ours(stub_bytes type, stub_bytes manager, stub_bytes our_domain, stub_bytes lines, uint8_t sign) {
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
            stub_put(manager);
            stub_put(STUB_TEXT("\",\"to\":\"domain://msg-node."));
            stub_put(our_domain);
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
    bool is_kept = is_plain_id(sent->id) || is_response(sent);
    uint32_t number = is_kept ? 0 : number_of_id(sent->id);
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
    if (is_response(came) && stub_read_decimal(came->id, &number) && number >= IDS_BASE) {
        stub_bytes id = id_of_number(number);
        if (!id.size || !stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
        uint32_t before = (uint32_t)(came->id.data - came->json.data), after = before + came->id.size;
        stub_put((stub_bytes){came->json.data, before});
        stub_put(id);
        stub_put((stub_bytes){came->json.data + after, came->json.size - after});
        stub_end();
        return;
    }
    stub_deliver(0, came->json);
}

#endif
