/*
 * echo: the smallest useful stub. It has no far end; it answers every message itself with what it said.
 *
 * Good for trying a policy, a catalogue or a node without a second one, and as the first page of docs/writing-a-stub.md.
 */
#define STUB_NAME "echo"
#define STUB_VERSION "1.0.0"
#include "trapezoid_stub.h"

/* The mirrored header of a response: who asked becomes who is told. Members are copied as the text they stand as. */
static void answer(stub_bytes id, stub_bytes from, stub_bytes to, stub_bytes body) {
    if (!stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
    stub_put(STUB_TEXT("{\"id\":"));
    stub_put(id);
    stub_put(STUB_TEXT(",\"type\":\"response\",\"from\":"));
    stub_put(to);
    stub_put(STUB_TEXT(",\"to\":"));
    stub_put(from);
    stub_put(STUB_TEXT(",\"body\":{\"code\":200,\"value\":"));
    stub_put(body.size ? body : STUB_TEXT("null"));
    stub_put(STUB_TEXT("}}"));
    stub_end();
}

static void on_message(uint32_t number, stub_bytes message) {
    stub_bytes id = stub_json_member(message, STUB_TEXT("id"));
    stub_bytes from = stub_json_member(message, STUB_TEXT("from"));
    stub_bytes to = stub_json_member(message, STUB_TEXT("to"));
    if (!id.size || !from.size || !to.size) {
        stub_refused(number, STUB_TEXT("400 bad-header id, from or to is missing"));
        return;
    }
    /* Nothing answers a response, or two echoes would talk for ever. */
    if (!stub_equal(stub_json_member(message, STUB_TEXT("type")), STUB_TEXT("\"response\""))) {
        answer(id, from, to, stub_json_member(message, STUB_TEXT("body")));
    }
    stub_accepted(number);
}

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        stub_status(STUB_TEXT("created"));
        stub_status(STUB_TEXT("live"));
        break;
    case STUB_MESSAGE:
        on_message(event->arg, event->bytes);
        break;
    case STUB_DRAIN:
        stub_status(STUB_TEXT("disconnected drained"));
        break;
    }
}
