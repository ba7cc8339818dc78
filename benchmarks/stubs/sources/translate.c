/* translate: reads the members of each message, and writes them again under other names. See translate.js. */
#define STUB_NAME "translate"
#define STUB_VERSION "1.0.0"
#include "trapezoid_stub.h"
#include "trapezoid_text.h"

/* A value that is only passed on stays the text that it stands as. */
static void put_member(stub_bytes head, stub_bytes value) {
    stub_put(head);
    stub_put(value.size ? value : STUB_TEXT("null"));
}

static void on_message(uint32_t number, stub_bytes message) {
    stub_bytes body = stub_json_member(message, STUB_TEXT("body"));
    stub_begin(STUB_ACT_SEND, STUB_FLAG, 1);
    put_member(STUB_TEXT("{\"seq\":"), stub_json_member(message, STUB_TEXT("id")));
    put_member(STUB_TEXT(",\"verb\":"), stub_json_member(message, STUB_TEXT("type")));
    put_member(STUB_TEXT(",\"source\":"), stub_json_member(message, STUB_TEXT("from")));
    put_member(STUB_TEXT(",\"target\":"), stub_json_member(message, STUB_TEXT("to")));
    put_member(STUB_TEXT(",\"realm\":"), stub_json_path(body, STUB_TEXT("identity.idp")));
    put_member(STUB_TEXT(",\"content\":"), stub_json_member(body, STUB_TEXT("value")));
    stub_put(STUB_TEXT("}"));
    stub_end();
    stub_accepted(number);
}

static void stub_on_event(const stub_event *event) {
    if (event->op == STUB_START) stub_status(STUB_TEXT("created"));
    if (event->op == STUB_START && stub_begin(STUB_ACT_OPEN, STUB_WEBSOCKET, 1)) {
        stub_put(STUB_TEXT("{\"endpoint\":\"mn\",\"text\":true}"));
        stub_end();
    }
    if (event->op == STUB_OPENED) stub_status(STUB_TEXT("live"));
    if (event->op == STUB_MESSAGE) on_message(event->arg, event->bytes);
}
