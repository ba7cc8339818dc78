/*
 * people-search: a connector. It serves the address `domain://discovery.<domain>` of the domain that runs it:
 *
 *     read, body.resource = "/people/ana"   ->   GET <endpoint>/people/ana   ->   200 with the JSON of the answer as value
 *
 * What the server says otherwise is the code of the answer: 404 stays 404, everything else is 502.
 */
#define STUB_NAME "people-search"
#define STUB_VERSION "1.0.0"
#define STUB_KIND "connector"
#include "trapezoid_stub.h"

enum { SLOTS = 8, ID_BYTES = 32, ADDRESS_BYTES = 512 };

/* One request at the server; its channel is its place in the table plus one. Texts are kept with their quotes. */
typedef struct {
    bool is_used;
    uint8_t id[ID_BYTES], from[ADDRESS_BYTES], to[ADDRESS_BYTES];
    uint32_t id_size, from_size, to_size;
} request;

static request requests[SLOTS];

static uint32_t keep(uint8_t *to, uint32_t room, stub_bytes text) {
    if (text.size > room) return 0;
    __builtin_memcpy(to, text.data, text.size);
    return text.size;
}

static void answer(const request *asked, stub_bytes code, stub_bytes value, stub_bytes why) {
    if (!stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
    stub_put(STUB_TEXT("{\"id\":"));
    stub_put((stub_bytes){asked->id, asked->id_size});
    stub_put(STUB_TEXT(",\"type\":\"response\",\"from\":"));
    stub_put((stub_bytes){asked->to, asked->to_size});
    stub_put(STUB_TEXT(",\"to\":"));
    stub_put((stub_bytes){asked->from, asked->from_size});
    stub_put(STUB_TEXT(",\"body\":{\"code\":"));
    stub_put(code);
    if (value.size) {
        stub_put(STUB_TEXT(",\"value\":"));
        stub_put(value);
    }
    if (why.size) {
        stub_put(STUB_TEXT(",\"description\":\""));
        stub_put(why);
        stub_put(STUB_TEXT("\""));
    }
    stub_put(STUB_TEXT("}}"));
    stub_end();
}

/* A path as it stands in a URL: nothing that would have to be escaped, or that begins a query. */
static bool is_path(stub_bytes text) {
    if (!text.size || text.data[0] != '/') return false;
    for (uint32_t at = 0; at < text.size; at++) {
        uint8_t letter = text.data[at];
        bool is_plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
        if (!is_plain && letter != '/' && letter != '-' && letter != '_' && letter != '.' && letter != '@') return false;
    }
    return true;
}

static void on_message(uint32_t number, stub_bytes message) {
    uint32_t slot = 0;
    while (slot < SLOTS && requests[slot].is_used) slot++;
    if (slot == SLOTS) {
        stub_refused(number, STUB_TEXT("503 overload all lines are busy"));
        return;
    }
    request *asked = &requests[slot];
    asked->id_size = keep(asked->id, ID_BYTES, stub_json_member(message, STUB_TEXT("id")));
    asked->from_size = keep(asked->from, ADDRESS_BYTES, stub_json_member(message, STUB_TEXT("from")));
    asked->to_size = keep(asked->to, ADDRESS_BYTES, stub_json_member(message, STUB_TEXT("to")));
    stub_bytes body = stub_json_member(message, STUB_TEXT("body"));
    stub_bytes path = stub_json_plain_string(stub_json_member(body, STUB_TEXT("resource")));
    if (!asked->id_size || !asked->from_size || !asked->to_size) {
        stub_refused(number, STUB_TEXT("400 bad-header"));
        return;
    }
    stub_accepted(number);
    if (!stub_equal(stub_json_member(message, STUB_TEXT("type")), STUB_TEXT("\"read\""))) {
        answer(asked, STUB_TEXT("405"), STUB_TEXT(""), STUB_TEXT("the directory is read"));
    } else if (!is_path(path)) {
        answer(asked, STUB_TEXT("400"), STUB_TEXT(""), STUB_TEXT("resource is a path, such as /people/ana"));
    } else if (stub_begin(STUB_ACT_OPEN, STUB_HTTP, slot + 1)) {
        asked->is_used = true;
        stub_put(STUB_TEXT("{\"endpoint\":\"mn\",\"path\":\""));
        stub_put(path);
        stub_put(STUB_TEXT("\"}"));
        stub_end();
    }
}

static bool is_list_or_object(stub_bytes text) {
    uint32_t at = stub_json_skip_space(text, 0);
    if (at == text.size || (text.data[at] != '{' && text.data[at] != '[')) return false;
    uint32_t end = stub_json_skip_value(text, at);
    return end && stub_json_skip_space(text, end) == text.size;
}

/* The head of the answer as JSON, a line feed, the body. */
static void on_response(request *asked, stub_bytes bytes) {
    uint32_t at = 0;
    while (at < bytes.size && bytes.data[at] != '\n') at++;
    stub_bytes status = stub_json_member((stub_bytes){bytes.data, at}, STUB_TEXT("status"));
    stub_bytes body = at < bytes.size ? (stub_bytes){bytes.data + at + 1, bytes.size - at - 1} : STUB_TEXT("");
    asked->is_used = false;
    if (stub_equal(status, STUB_TEXT("200")) && is_list_or_object(body)) {
        answer(asked, STUB_TEXT("200"), body, STUB_TEXT(""));
    } else if (stub_equal(status, STUB_TEXT("404"))) {
        answer(asked, STUB_TEXT("404"), STUB_TEXT(""), STUB_TEXT("not in the directory"));
    } else {
        answer(asked, STUB_TEXT("502"), STUB_TEXT(""), STUB_TEXT("the directory gave no usable answer"));
    }
}

static void stub_on_event(const stub_event *event) {
    request *asked = event->arg >= 1 && event->arg <= SLOTS ? &requests[event->arg - 1] : NULL;
    switch (event->op) {
    case STUB_START:
        stub_status(STUB_TEXT("live"));
        break;
    case STUB_MESSAGE:
        on_message(event->arg, event->bytes);
        break;
    case STUB_HTTP_RESPONSE:
        if (asked && asked->is_used) on_response(asked, event->bytes);
        break;
    case STUB_CLOSED:
        if (asked && asked->is_used) {
            asked->is_used = false;
            answer(asked, STUB_TEXT("502"), STUB_TEXT(""), STUB_TEXT("the directory does not answer"));
        }
        break;
    case STUB_DRAIN:
        stub_status(STUB_TEXT("disconnected drained"));
        break;
    }
}
