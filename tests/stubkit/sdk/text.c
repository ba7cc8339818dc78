#define STUB_NAME "text"
#define STUB_VERSION "1"
#define STUB_KIND "connector"
#define STUB_CONFIGURATION {"type": "object"}
#include "trapezoid_stub.h"
#include "trapezoid_text.h"

static uint8_t buffer[64], line_buffer[16];
static stub_lines lines = {line_buffer, sizeof line_buffer, 0, false};

static void on_line(stub_bytes line) { stub_log(STUB_LOG_INFO, line); }

static void on_message(uint32_t number, stub_bytes json) {
    stub_bytes text;
    double value;
    bool has_text = stub_json_text(stub_json_path(json, STUB_TEXT("body.text")), buffer, sizeof buffer, &text);
    bool has_number = stub_json_number(stub_json_path(json, STUB_TEXT("body.number")), &value);
    stub_begin(STUB_ACT_DELIVER, 0, number);
    stub_put(STUB_TEXT("{\"text\":"));
    if (has_text) stub_put_json_text(text);
    else stub_put(STUB_TEXT("null"));
    stub_put(STUB_TEXT(",\"half\":"));
    if (has_number) stub_put_decimal((uint32_t)(value / 2));
    else stub_put(STUB_TEXT("null"));
    stub_put(STUB_TEXT("}"));
    stub_end();
}

static void stub_on_event(const stub_event *event) {
    if (event->op == STUB_START) stub_status(STUB_TEXT("live"));
    if (event->op == STUB_MESSAGE) on_message(event->arg, event->bytes);
    if (event->op == STUB_DATA && !stub_lines_add(&lines, event->bytes, on_line)) stub_status(STUB_TEXT("failed too-long"));
}
