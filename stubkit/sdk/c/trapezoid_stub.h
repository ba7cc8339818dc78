/*
 * trapezoid_stub.h: the whole C kit for a protostub of the contract `trapezoid-stub/1` (docs/abi.md).
 *
 * Freestanding: no libc, no imports, no allocation behind your back. Include it once, in the one C file of a stub, after
 *
 *     #define STUB_NAME "my-stub"
 *     #define STUB_VERSION "1.0.0"
 *
 * and write one function:
 *
 *     static void stub_on_event(const stub_event *event);
 *
 * With `#define STUB_CONFIGURATION {"type": "object", …}` the stub states the JSON Schema of the settings that an operator may
 * give it; they come with `start`, as its member `configuration`. (Include no other header before this one then.)
 * With `#define STUB_KIND "connector"` it is one: it answers a service address of its host's own domain (docs/connectors.md).
 *
 * With `#define STUB_EVENTS "addresses"` it hears STUB_ADDRESSES as well: lines `+address` and `-address`, each with a line feed; with
 * STUB_FLAG, what it heard before does not count any more.
 *
 * It is called once for every event, in order; it answers by calling the `stub_…` actions below, any number of times.
 * With `#define STUB_HAS_BATCH_END` also write `static void stub_on_batch_end(void)`, called once after the last event of a call:
 * the place to flush what was gathered from several events.
 *
 * Bytes of an event are valid only during the call. What a stub wants to keep, it copies into static variables.
 *
 * Everything that comes in is checked before it is used, everything that goes out is checked against the contract's limits:
 * an event buffer that is not well formed, or more output than allowed, ends the call with 0, which the host treats as a fault.
 */
#ifndef TRAPEZOID_STUB_H
#define TRAPEZOID_STUB_H

#if !defined(STUB_NAME) || !defined(STUB_VERSION)
#error "define STUB_NAME and STUB_VERSION before including trapezoid_stub.h"
#endif

#define STUB_LITERAL_(...) #__VA_ARGS__
#define STUB_LITERAL(...) STUB_LITERAL_(__VA_ARGS__)
#ifdef STUB_CONFIGURATION
#define STUB_SCHEMA ".ascii \", \\\"configuration\\\": \"\n.ascii " STUB_LITERAL(STUB_LITERAL(STUB_CONFIGURATION)) "\n"
#else
#define STUB_SCHEMA ""
#endif
#ifdef STUB_EVENTS
#define STUB_WANTED ".ascii \", \\\"events\\\": \"\n.ascii " STUB_LITERAL(STUB_LITERAL([STUB_EVENTS])) "\n"
#else
#define STUB_WANTED ""
#endif

#ifdef STUB_KIND
#define STUB_MADE_FOR ".ascii \", \\\"kind\\\": \\\"" STUB_KIND "\\\"\"\n"
#else
#define STUB_MADE_FOR ""
#endif

/* The custom section by which the host recognises the module: it never has to run it to know what it is. */
__asm__(".section \".custom_section.trapezoid-stub\",\"\",@\n"
        ".ascii \"{\\\"abi\\\": 1, \\\"name\\\": \\\"" STUB_NAME "\\\", \\\"version\\\": \\\"" STUB_VERSION "\\\"\"\n"
        STUB_SCHEMA STUB_WANTED STUB_MADE_FOR
        ".ascii \"}\"\n"
        ".text\n");

#include <stdbool.h> /* behind the section: its `true` and `false` would get into the schema */
#include <stddef.h>
#include <stdint.h>

/* Calls cost a nanosecond; copies of a body at every call site cost compile time on the host's first contact. */
#define STUB_NOINLINE __attribute__((noinline, unused))

/* ---------------------------------------------------------------------------------------------------- the contract's numbers */

enum {
    STUB_START = 1, STUB_MESSAGE = 2, STUB_OPENED = 3, STUB_DATA = 4, STUB_CLOSED = 5,
    STUB_TIMER = 6, STUB_HTTP_RESPONSE = 7, STUB_AUTH_TOKEN = 8, STUB_PEER_VERIFIED = 9, STUB_DRAIN = 10,
    STUB_ADDRESSES = 11,
};

enum {
    STUB_ACT_OPEN = 1, STUB_ACT_SEND = 2, STUB_ACT_CLOSE = 3, STUB_ACT_DELIVER = 4, STUB_ACT_SET_TIMER = 5,
    STUB_ACT_REQUEST_AUTH_TOKEN = 6, STUB_ACT_VERIFY_PEER = 7, STUB_ACT_ACCEPTED = 8, STUB_ACT_REFUSED = 9,
    STUB_ACT_STATUS = 10, STUB_ACT_LOG = 11, STUB_ACT_PEER_STREAM = 12,
};

enum { STUB_WEBSOCKET = 1, STUB_TCP_TLS = 2, STUB_HTTP = 3 };
enum { STUB_LOG_DEBUG = 0, STUB_LOG_INFO = 1, STUB_LOG_WARNING = 2, STUB_LOG_ERROR = 3 };

#define STUB_FLAG 1u            /* bit 0: text frame, granted or verified, by event */
#define STUB_RECORD_BYTES 12u   /* header of every record */
#define STUB_CALL_BYTES 24u     /* head of an event buffer: time and random bytes */

/* ------------------------------------------------------------------------------------------------------------- bytes */

typedef struct {
    const uint8_t *data;
    uint32_t size;
} stub_bytes;

typedef struct {
    uint8_t op;
    uint8_t flags;
    uint32_t arg;
    stub_bytes bytes;
} stub_event;

/* The compiler may call these by itself; both become single instructions of the bulk memory feature. */
void *memcpy(void *restrict to, const void *restrict from, size_t size) { return __builtin_memcpy(to, from, size); }
void *memmove(void *to, const void *from, size_t size) { return __builtin_memmove(to, from, size); }
void *memset(void *to, int value, size_t size) { return __builtin_memset(to, value, size); }

/* Little-endian is the byte order of both wasm and the contract, so a plain (unaligned) load is the decoder. */
static inline uint32_t stub_read_u32(const uint8_t *at) {
    uint32_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static inline void stub_write_u32(uint8_t *at, uint32_t value) { __builtin_memcpy(at, &value, sizeof value); }

/* Bytes of a C string literal, without its final zero. */
#define STUB_TEXT(literal) ((stub_bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

static inline bool stub_equal(stub_bytes left, stub_bytes right) {
    if (left.size != right.size) return false;
    for (uint32_t i = 0; i < left.size; i++) {
        if (left.data[i] != right.data[i]) return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- output */

/* One call may answer with 256 KiB + 4 x its input, and with 64 actions per event + 1 per 16 bytes of input. */
static struct {
    uint8_t *window, *output, *next, *memory_end, *limit;
    uint32_t window_bytes, actions, actions_allowed;
    uint8_t *open_record;
    uint64_t now_ms;
    const uint8_t *random;
    bool failed;
} stub_self;

static inline uint64_t stub_now_ms(void) { return stub_self.now_ms; }
static inline uint32_t stub_random_u32(void) { return stub_read_u32(stub_self.random); }
static inline uint32_t stub_actions_left(void) { return stub_self.actions_allowed - stub_self.actions; }
static inline uint32_t stub_output_left(void) { return (uint32_t)(stub_self.limit - stub_self.next); }

STUB_NOINLINE static bool stub_grow_to(const uint8_t *end) {
    uintptr_t missing = (uintptr_t)end - (uintptr_t)stub_self.memory_end;
    uint32_t pages = (uint32_t)((missing + 0xffff) >> 16);
    if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1) return false;
    stub_self.memory_end += (size_t)pages << 16;
    return true;
}

/* Room for `size` bytes of output, or NULL; then the whole call fails, as a half-written answer must not be acted upon. */
static inline uint8_t *stub_reserve(uint32_t size) {
    uint8_t *at = stub_self.next;
    if (size > stub_output_left()) goto fail;
    if (size > (size_t)(stub_self.memory_end - at) && !stub_grow_to(at + size)) goto fail;
    stub_self.next = at + size;
    return at;
fail:
    stub_self.failed = true;
    return NULL;
}

/* An action in pieces: begin, any number of puts, end. Nothing else may be written in between. */
STUB_NOINLINE static bool stub_begin(uint8_t op, uint8_t flags, uint32_t arg) {
    if (stub_self.actions >= stub_self.actions_allowed) stub_self.failed = true;
    uint8_t *at = stub_self.failed ? NULL : stub_reserve(STUB_RECORD_BYTES);
    stub_self.open_record = at;
    if (!at) return false;
    stub_self.actions++;
    stub_write_u32(at, (uint32_t)op | (uint32_t)flags << 8);
    stub_write_u32(at + 4, arg);
    return true;
}

STUB_NOINLINE static void stub_put(stub_bytes bytes) {
    if (stub_self.failed) return;
    uint8_t *at = stub_reserve(bytes.size);
    if (at) __builtin_memcpy(at, bytes.data, bytes.size);
}

STUB_NOINLINE static void stub_put_u32(uint32_t value) {
    if (stub_self.failed) return;
    uint8_t *at = stub_reserve(4);
    if (at) stub_write_u32(at, value);
}

STUB_NOINLINE static void stub_put_decimal(uint32_t value) {
    uint8_t digits[10];
    uint32_t first = sizeof digits;
    do {
        digits[--first] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value);
    stub_put((stub_bytes){digits + first, (uint32_t)sizeof digits - first});
}

static inline void stub_end(void) {
    uint8_t *record = stub_self.open_record;
    if (stub_self.failed || !record) return;
    stub_write_u32(record + 8, (uint32_t)(stub_self.next - record) - STUB_RECORD_BYTES);
    stub_self.open_record = NULL;
}

STUB_NOINLINE static void stub_act(uint8_t op, uint8_t flags, uint32_t arg, stub_bytes bytes) {
    if (!stub_begin(op, flags, arg)) return;
    stub_put(bytes);
    stub_end();
}

/* ------------------------------------------------------------------------------------------------- actions by their names */

static inline void stub_send(uint32_t channel, bool is_text, stub_bytes bytes) {
    stub_act(STUB_ACT_SEND, is_text ? STUB_FLAG : 0, channel, bytes);
}
static inline void stub_close(uint32_t channel) { stub_act(STUB_ACT_CLOSE, 0, channel, (stub_bytes){NULL, 0}); }
static inline void stub_deliver(uint32_t number, stub_bytes message) { stub_act(STUB_ACT_DELIVER, 0, number, message); }
static inline void stub_accepted(uint32_t number) { stub_act(STUB_ACT_ACCEPTED, 0, number, (stub_bytes){NULL, 0}); }
static inline void stub_refused(uint32_t number, stub_bytes why) { stub_act(STUB_ACT_REFUSED, 0, number, why); }
static inline void stub_request_auth_token(uint32_t channel, stub_bytes challenge) {
    stub_act(STUB_ACT_REQUEST_AUTH_TOKEN, 0, channel, challenge);
}
static inline void stub_verify_peer(uint32_t channel, stub_bytes token) { stub_act(STUB_ACT_VERIFY_PEER, 0, channel, token); }
static inline void stub_log(uint32_t level, stub_bytes text) { stub_act(STUB_ACT_LOG, 0, level, text); }
static inline void stub_status(stub_bytes state) { stub_act(STUB_ACT_STATUS, 0, 0, state); }

/* A state and why: `text` is foreign, so only printable ASCII of it is kept, at most 200 characters. */
STUB_NOINLINE static void stub_status_because(stub_bytes state, stub_bytes text) {
    if (!stub_begin(STUB_ACT_STATUS, 0, 0)) return;
    stub_put(state);
    if (text.size) stub_put(STUB_TEXT(" "));
    uint32_t size = text.size < 200 ? text.size : 200;
    for (uint32_t i = 0; i < size; i++) {
        uint8_t letter = text.data[i] >= 0x20 && text.data[i] < 0x7f ? text.data[i] : '?';
        stub_put((stub_bytes){&letter, 1});
    }
    stub_end();
}

/* `delay_ms` 0 cancels. */
static inline void stub_set_timer(uint32_t timer, uint32_t delay_ms) {
    if (!stub_begin(STUB_ACT_SET_TIMER, 0, timer)) return;
    stub_put_u32(delay_ms);
    stub_end();
}

/* ------------------------------------------------------------------------------------------------- reading JSON, in place */

/*
 * Enough to find members of an object without building anything: the start settings, the header of a message. Values are
 * returned as the text they stand as (a string with its quotes), ready to be written out again. The host hands over well-formed
 * JSON; text from elsewhere gives "not found" or some slice of itself, never a read outside of it.
 */
static inline bool stub_json_is_space(uint8_t letter) {
    return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t';
}

STUB_NOINLINE static uint32_t stub_json_skip_space(stub_bytes json, uint32_t at) {
    while (at < json.size && stub_json_is_space(json.data[at])) at++;
    return at;
}

/*
 * The lowest bit that is set is in the first of eight bytes that is a quote or a backslash; 0 if there is none. (Bits above the
 * lowest may come from a borrow.)
 */
static inline uint64_t stub_json_mark(const uint8_t *at) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word;
    __builtin_memcpy(&word, at, sizeof word);
    uint64_t quote = word ^ 0x22 * ones, backslash = word ^ 0x5c * ones;
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & tops;
}

/* Position after the string that begins at `at`, or 0 when there is none. Eight bytes at a time up to what means something. */
STUB_NOINLINE static uint32_t stub_json_skip_string(stub_bytes json, uint32_t at) {
    if (at >= json.size || json.data[at] != '"') return 0;
    for (at++; at < json.size && json.size - at >= 8;) {
        uint64_t mark = stub_json_mark(json.data + at);
        at += mark ? (uint32_t)__builtin_ctzll(mark) >> 3 : 8;
        if (!mark) continue;
        if (json.data[at] == '"') return at + 1;
        at += 2;
    }
    for (; at < json.size; at++) {
        if (json.data[at] == '"') return at + 1;
        if (json.data[at] == '\\') at++;
    }
    return 0;
}

/* Position after the value that begins at `at`, or 0 when it does not end. Counts brackets instead of recursing. */
STUB_NOINLINE static uint32_t stub_json_skip_value(stub_bytes json, uint32_t at) {
    uint32_t depth = 0;
    while (at < json.size) {
        uint8_t letter = json.data[at];
        if (letter == '"') {
            at = stub_json_skip_string(json, at);
            if (!at) return 0;
            if (!depth) return at;
            continue;
        }
        if (letter == '{' || letter == '[') depth++;
        if (letter == '}' || letter == ']') {
            if (!depth) return at; /* the end of what surrounds a number or a word */
            if (!--depth) return at + 1;
        }
        if (!depth && (letter == ',' || stub_json_is_space(letter))) return at;
        at++;
    }
    return depth ? 0 : at;
}

/* The value of the first member `name` (as it is written, without escapes) of the object `json`; size 0 = not there. */
STUB_NOINLINE static stub_bytes stub_json_member(stub_bytes json, stub_bytes name) {
    const stub_bytes none = {NULL, 0};
    uint32_t at = stub_json_skip_space(json, 0);
    if (at >= json.size || json.data[at] != '{') return none;
    at++;
    for (;;) {
        uint32_t key = stub_json_skip_space(json, at);
        uint32_t key_end = stub_json_skip_string(json, key);
        if (!key_end) return none;
        at = stub_json_skip_space(json, key_end);
        if (at >= json.size || json.data[at] != ':') return none;
        uint32_t value = stub_json_skip_space(json, at + 1);
        uint32_t value_end = stub_json_skip_value(json, value);
        if (value_end <= value) return none;
        if (stub_equal((stub_bytes){json.data + key + 1, key_end - key - 2}, name)) {
            return (stub_bytes){json.data + value, value_end - value};
        }
        at = stub_json_skip_space(json, value_end);
        if (at >= json.size || json.data[at] != ',') return none;
        at++;
    }
}

/* Inside of a string value without escapes; size 0 for anything else. */
static inline stub_bytes stub_json_plain_string(stub_bytes value) {
    const stub_bytes none = {NULL, 0};
    if (value.size < 2 || value.data[0] != '"' || value.data[value.size - 1] != '"') return none;
    for (uint32_t i = 1; i < value.size - 1; i++) {
        if (value.data[i] == '\\' || value.data[i] == '"') return none;
    }
    return (stub_bytes){value.data + 1, value.size - 2};
}

/* Decimal digits as a number; false when there are none, others, or too many for 32 bits. */
STUB_NOINLINE static bool stub_read_decimal(stub_bytes text, uint32_t *number) {
    uint64_t value = 0;
    if (!text.size || text.size > 10) return false;
    for (uint32_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (value > UINT32_MAX) return false;
    *number = (uint32_t)value;
    return true;
}

/* -------------------------------------------------------------------------------------------- what the host calls */

static void stub_on_event(const stub_event *event);
#ifdef STUB_HAS_BATCH_END
static void stub_on_batch_end(void);
#endif

extern uint8_t __heap_base; /* from the linker: first byte after stack and static data */

/* The window lies first, the output after it; both only ever grow, so an address once given out stays good. */
__attribute__((export_name("window"))) uint32_t stub_export_window(uint32_t size) {
    if (!stub_self.window) {
        stub_self.window = (uint8_t *)(((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15);
        stub_self.memory_end = (uint8_t *)((uintptr_t)__builtin_wasm_memory_size(0) << 16);
    }
    if (size > 64u << 20) return 0;
    if (size <= stub_self.window_bytes) return (uint32_t)(uintptr_t)stub_self.window;
    uint8_t *end = stub_self.window + ((size + 15) & ~15u);
    if (end > stub_self.memory_end && !stub_grow_to(end)) return 0;
    stub_self.window_bytes = size;
    stub_self.output = end;
    return (uint32_t)(uintptr_t)stub_self.window;
}

/* Number of records in the buffer, or -1 when it is not made of whole records. */
static int32_t stub_count_records(const uint8_t *at, uint32_t left) {
    int32_t records = 0;
    for (; left; records++) {
        if (left < STUB_RECORD_BYTES) return -1;
        uint32_t size = stub_read_u32(at + 8);
        if (size > left - STUB_RECORD_BYTES) return -1;
        at += STUB_RECORD_BYTES + size;
        left -= STUB_RECORD_BYTES + size;
    }
    return records;
}

__attribute__((export_name("handle"))) uint64_t stub_export_handle(uint32_t pointer, uint32_t length) {
    uintptr_t window = (uintptr_t)stub_self.window;
    if (!window || pointer < window || length < STUB_CALL_BYTES || length > stub_self.window_bytes) return 0;
    if (pointer - window > stub_self.window_bytes - length) return 0;
    const uint8_t *at = (const uint8_t *)(uintptr_t)pointer;
    const uint8_t *end = at + length;
    __builtin_memcpy(&stub_self.now_ms, at, sizeof stub_self.now_ms);
    stub_self.random = at + 8;
    at += STUB_CALL_BYTES;
    int32_t records = stub_count_records(at, (uint32_t)(end - at));
    if (records < 0) return 0;

    stub_self.next = stub_self.output;
    stub_self.limit = stub_self.output + (256u << 10) + 4 * length;
    stub_self.actions = 0;
    stub_self.actions_allowed = 64 * (uint32_t)records + (length >> 4);
    stub_self.failed = false;
    while (at < end) {
        stub_event event = {at[0], at[1], stub_read_u32(at + 4), {at + STUB_RECORD_BYTES, stub_read_u32(at + 8)}};
        stub_on_event(&event);
        at += STUB_RECORD_BYTES + event.bytes.size;
    }
#ifdef STUB_HAS_BATCH_END
    stub_on_batch_end();
#endif
    if (stub_self.failed) return 0;
    return (uint64_t)(uintptr_t)stub_self.output << 32 | (uint32_t)(stub_self.next - stub_self.output);
}

#endif
