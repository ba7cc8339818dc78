/*
 * quickjs.c: QuickJS as a stub of the contract `trapezoid-stub/1` (docs/abi.md), for protostubs that are JavaScript.
 *
 * The script comes with the event `script`: a line of JSON about it, then its text. Everything that the script sees of the host is
 * made in prelude.js, out of the few functions here; what they hand over was checked by the host, and what they write is checked there
 * again. Nothing here runs on its own: time and randomness are those of the call.
 *
 * The libraries that QuickJS needs would call WASI. What they use of it is defined at the end, so the module has no imports.
 */
__asm__(".section \".custom_section.trapezoid-stub\",\"\",@\n"
        ".ascii \"{\\\"abi\\\": 1, \\\"name\\\": \\\"quickjs\\\", \\\"version\\\": \\\"0.17.0\\\"}\"\n"
        ".text\n");

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quickjs.h"

#define EXPORT(name) __attribute__((export_name(name)))

enum { EVENT_MESSAGE = 2, EVENT_DATA = 4, EVENT_SCRIPT = 12, EVENTS = 13 };
enum { ACT_LOG = 11, LOG_ERROR = 3 };
enum { HANDLER_FINISH = 0 }; /* no event has this number: the prelude is called last with it */

#define FLAG_TEXT 1u
#define CALL_BYTES 24u
#define RECORD_BYTES 12u
#define TEXT_BYTES_MAX (1u << 20)    /* longest message and frame; two copies and the objects have to fit into 16 MiB */
#define NESTING_MAX 100u             /* the host's own messages are nested 64 deep at most */
#define VALUES_MAX 10000u            /* in one text; each costs one or two microseconds of the 50 ms that a call has */
#define LONG_NUMBER 16u              /* from so many characters on, a number may not survive being a double */
#define LONG_NUMBERS_MAX 256u        /* of one text that keep their digits */
#define SCRIPT_STACK_BYTES (48u << 10) /* so that a script's recursion ends before the 256 KiB that the host gives */

static JSRuntime *runtime;
static JSContext *context;
static JSValue handlers[EVENTS];
static JSAtom number_texts; /* a symbol: own numbers of an object whose text is not what JavaScript would write */
static bool saw_long_number;
static uint64_t now_ms, random_state[2];

/* ------------------------------------------------------------------------------------------------------- bytes in and out */

static struct {
    uint8_t *data;
    size_t size, room, limit;
} output;
static uint32_t actions_left;
static uint8_t *window_area;
static uint32_t window_bytes;

static uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint8_t *reserve(size_t size) {
    if (size > output.limit - output.size) return NULL;
    if (output.size + size > output.room) {
        size_t room = (output.size + size) * 2 + 4096;
        uint8_t *data = realloc(output.data, room);
        if (!data) return NULL;
        output.data = data;
        output.room = room;
    }
    uint8_t *at = output.data + output.size;
    output.size += size;
    return at;
}

static bool write_action(uint8_t op, uint8_t flags, uint32_t arg, const void *bytes, size_t size) {
    uint8_t *at = actions_left && size < TEXT_BYTES_MAX * 4 ? reserve(RECORD_BYTES + size) : NULL;
    if (!at) return false;
    actions_left--;
    uint32_t header[3] = {(uint32_t)op | (uint32_t)flags << 8, arg, (uint32_t)size};
    memcpy(at, header, sizeof header);
    memcpy(at + RECORD_BYTES, bytes, size);
    return true;
}

/* Halves of a character that stand alone are no UTF-8: U+FFFD takes their place, which has three bytes as well. */
static void make_well_formed(uint8_t *text, size_t size) {
    for (size_t i = 0; i + 2 < size; i++) {
        if (text[i] != 0xed || text[i + 1] < 0xa0) continue;
        memcpy(text + i, "\xef\xbf\xbd", 3);
        i += 2;
    }
}

/* -------------------------------------------------------------------------------------------------------- JSON, with all digits */

typedef struct {
    uint32_t nesting, values;
    bool has_long_numbers;
} json_shape;

static bool is_number_letter(uint8_t letter) {
    return (letter >= '0' && letter <= '9') || letter == '-' || letter == '+' || letter == '.' || letter == 'e' || letter == 'E';
}

static size_t skip_string(const uint8_t *text, size_t size, size_t at) {
    for (at++; at < size && text[at] != '"'; at++) {
        if (text[at] == '\\') at++;
    }
    return at < size ? at + 1 : size;
}

static size_t skip_number(const uint8_t *text, size_t size, size_t at) {
    while (at < size && is_number_letter(text[at])) at++;
    return at;
}

/* What a text holds, read or not: the parser is recursive, and knows no measure. */
static json_shape shape_of(const uint8_t *text, size_t size) {
    json_shape shape = {0};
    uint32_t nesting = 0;
    for (size_t at = 0; at < size;) {
        uint8_t letter = text[at];
        if (letter == '"') {
            at = skip_string(text, size, at);
            continue;
        }
        if (letter == '-' || (letter >= '0' && letter <= '9')) {
            size_t end = skip_number(text, size, at);
            if (end - at >= LONG_NUMBER) {
                shape.has_long_numbers = true;
                shape.values += LONG_NUMBER; /* it costs as much as so many others */
            }
            at = end;
            continue;
        }
        if (letter == '{' || letter == '[') {
            shape.values++;
            if (++nesting > shape.nesting) shape.nesting = nesting;
        } else if (letter == ',') {
            shape.values++;
        } else if ((letter == '}' || letter == ']') && nesting) {
            nesting--;
        }
        at++;
    }
    return shape;
}

typedef struct {
    JSValue value;   /* the object or list; undefined while nobody has asked for it */
    bool is_list;
    uint32_t index;  /* of the current element */
    size_t key, key_size; /* of the current member, with its quotes */
} json_level;

static JSAtom atom_of(JSContext *ctx, const uint8_t *text, const json_level *level) {
    if (level->is_list) return JS_NewAtomUInt32(ctx, level->index);
    const char *key = (const char *)text + level->key;
    if (!memchr(key, '\\', level->key_size)) return JS_NewAtomLen(ctx, key + 1, level->key_size - 2);
    char *copy = malloc(level->key_size + 1);
    if (!copy) return JS_ATOM_NULL;
    memcpy(copy, key, level->key_size);
    copy[level->key_size] = 0;
    JSValue name = JS_ParseJSON(ctx, copy, level->key_size, "<key>");
    free(copy);
    JSAtom atom = JS_IsException(name) ? JS_ATOM_NULL : JS_ValueToAtom(ctx, name);
    JS_FreeValue(ctx, name);
    return atom;
}

/* Integers up to 2^53 are written as they were read. */
static bool is_exact(const char *digits, size_t size) {
    uint64_t value = 0;
    if (size > LONG_NUMBER) return false;
    for (size_t i = digits[0] == '-'; i < size; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        value = value * 10 + (uint64_t)(digits[i] - '0');
    }
    return value <= 1ull << 53;
}

/* Have `holder` remember value and text of its member `name`. */
static bool keep_number(JSContext *ctx, JSValueConst holder, JSAtom name, const char *digits, size_t size) {
    JSValue value = JS_GetProperty(ctx, holder, name);
    if (!JS_IsNumber(value)) { /* a name that comes twice: the last one counts */
        bool is_good = !JS_IsException(value);
        JS_FreeValue(ctx, value);
        return is_good;
    }
    saw_long_number = true;
    JSValue every = JS_GetProperty(ctx, holder, number_texts), one = JS_NewObjectProto(ctx, JS_NULL);
    if (JS_IsException(every) || JS_IsException(one)) goto failed;
    if (!JS_IsObject(every)) {
        JS_FreeValue(ctx, every);
        every = JS_NewObjectProto(ctx, JS_NULL);
        if (JS_IsException(every)) goto failed;
        if (JS_DefinePropertyValue(ctx, holder, number_texts, JS_DupValue(ctx, every), JS_PROP_C_W_E) < 0) goto failed;
    }
    if (JS_DefinePropertyValueStr(ctx, one, "value", value, JS_PROP_C_W_E) < 0) goto failed;
    if (JS_DefinePropertyValueStr(ctx, one, "text", JS_NewStringLen(ctx, digits, size), JS_PROP_C_W_E) < 0) goto failed;
    if (JS_DefinePropertyValue(ctx, every, name, one, JS_PROP_C_W_E) < 0) {
        JS_FreeValue(ctx, every);
        return false;
    }
    JS_FreeValue(ctx, every);
    return true;
failed:
    JS_FreeValue(ctx, one);
    JS_FreeValue(ctx, every);
    return false;
}

/* Walk through a text that was parsed, and have the objects made from it keep its long numbers. False: an exception is pending. */
static bool keep_long_numbers(JSContext *ctx, const uint8_t *text, size_t size, JSValueConst root) {
    static json_level levels[NESTING_MAX + 1];
    uint32_t depth = 0, kept = 0;
    bool is_good = true;
    for (size_t at = 0; at < size && is_good && kept < LONG_NUMBERS_MAX;) {
        uint8_t letter = text[at];
        json_level *level = &levels[depth];
        if (letter == '"') {
            size_t end = skip_string(text, size, at), after = end;
            while (after < size && (text[after] == ' ' || (text[after] >= 9 && text[after] <= 13))) after++;
            if (depth && !level->is_list && after < size && text[after] == ':') {
                level->key = at;
                level->key_size = end - at;
            }
            at = end;
            continue;
        }
        if (letter == '{' || letter == '[') {
            if (depth == NESTING_MAX) break;
            levels[++depth] = (json_level){.value = JS_UNDEFINED, .is_list = letter == '['};
        } else if ((letter == '}' || letter == ']') && depth) {
            JS_FreeValue(ctx, level->value);
            depth--;
        } else if (letter == ',' && depth && level->is_list) {
            level->index++;
        }
        if (letter != '-' && (letter < '0' || letter > '9')) {
            at++;
            continue;
        }
        size_t end = skip_number(text, size, at);
        if (end - at >= LONG_NUMBER && depth && !is_exact((const char *)text + at, end - at)) {
            kept++;
            for (uint32_t i = 1; i <= depth && is_good; i++) { /* from the root down to the object around the number */
                if (!JS_IsUndefined(levels[i].value)) continue;
                if (i == 1) {
                    levels[i].value = JS_DupValue(ctx, root);
                    continue;
                }
                JSAtom name = atom_of(ctx, text, &levels[i - 1]);
                levels[i].value = name == JS_ATOM_NULL ? JS_EXCEPTION : JS_GetProperty(ctx, levels[i - 1].value, name);
                JS_FreeAtom(ctx, name);
                is_good = !JS_IsException(levels[i].value);
                if (is_good && !JS_IsObject(levels[i].value)) { /* a name that comes twice: the last one counts */
                    JS_FreeValue(ctx, levels[i].value);
                    levels[i].value = JS_NULL;
                }
            }
            if (is_good && JS_IsObject(levels[depth].value)) {
                JSAtom name = atom_of(ctx, text, &levels[depth]);
                is_good = name != JS_ATOM_NULL &&
                          keep_number(ctx, levels[depth].value, name, (const char *)text + at, end - at);
                JS_FreeAtom(ctx, name);
            }
        }
        at = end;
    }
    while (depth) JS_FreeValue(ctx, levels[depth--].value);
    return is_good;
}

/* `text` ends with a zero byte. */
static JSValue parse_json(JSContext *ctx, const char *text, size_t size) {
    json_shape shape = shape_of((const uint8_t *)text, size);
    if (shape.nesting > NESTING_MAX) return JS_ThrowRangeError(ctx, "JSON nested deeper than %u", NESTING_MAX);
    if (shape.values > VALUES_MAX) return JS_ThrowRangeError(ctx, "JSON of more than %u values", VALUES_MAX);
    JSValue value = JS_ParseJSON(ctx, text, size, "<json>");
    if (!shape.has_long_numbers || !JS_IsObject(value)) return value;
    if (keep_long_numbers(ctx, (const uint8_t *)text, size, value)) return value;
    JS_FreeValue(ctx, value);
    return JS_EXCEPTION;
}

/* --------------------------------------------------------------------------------------------- what the prelude is made from */

static JSValue host_act(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    uint32_t op, flags, arg;
    if (JS_ToUint32(ctx, &op, arguments[0]) || JS_ToUint32(ctx, &flags, arguments[1]) || JS_ToUint32(ctx, &arg, arguments[2])) {
        return JS_EXCEPTION;
    }
    bool is_good;
    if (JS_IsUndefined(arguments[3])) {
        is_good = write_action((uint8_t)op, (uint8_t)flags, arg, "", 0);
    } else if (JS_IsNumber(arguments[3])) {
        uint32_t value;
        if (JS_ToUint32(ctx, &value, arguments[3])) return JS_EXCEPTION;
        is_good = write_action((uint8_t)op, (uint8_t)flags, arg, &value, sizeof value);
    } else {
        size_t size, before = output.size;
        const char *text = JS_ToCStringLen(ctx, &size, arguments[3]);
        if (!text) return JS_EXCEPTION;
        is_good = write_action((uint8_t)op, (uint8_t)flags, arg, text, size);
        if (is_good) make_well_formed(output.data + before + RECORD_BYTES, size);
        JS_FreeCString(ctx, text);
    }
    return is_good ? JS_UNDEFINED : JS_ThrowRangeError(ctx, "more output than one call may have");
}

static JSValue host_parse(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    size_t size;
    const char *text = JS_ToCStringLen(ctx, &size, arguments[0]);
    if (!text) return JS_EXCEPTION;
    JSValue value = parse_json(ctx, text, size);
    JS_FreeCString(ctx, text);
    return value;
}

/* Whether a text that was written from objects may have lost digits: none has, while no long number came in. */
static JSValue host_may_lose(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    return JS_NewBool(ctx, saw_long_number);
}

static JSValue host_now(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    return JS_NewInt64(ctx, (int64_t)now_ms);
}

static uint64_t next_random(void) { /* xorshift128+ */
    uint64_t x = random_state[0], y = random_state[1];
    random_state[0] = y;
    x ^= x << 23;
    random_state[1] = x ^ y ^ (x >> 17) ^ (y >> 26);
    return random_state[1] + y;
}

static JSValue host_random(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    return JS_NewFloat64(ctx, (double)(next_random() >> 11) * 0x1p-53);
}

static JSValue host_encode(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    size_t size;
    const char *text = JS_ToCStringLen(ctx, &size, arguments[0]);
    if (!text) return JS_EXCEPTION;
    JSValue bytes = JS_NewUint8ArrayCopy(ctx, (const uint8_t *)text, size);
    JS_FreeCString(ctx, text);
    uint8_t *data = JS_IsException(bytes) ? NULL : JS_GetUint8Array(ctx, &size, bytes);
    if (data) make_well_formed(data, size);
    return bytes;
}

static JSValue host_decode(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    size_t size;
    const uint8_t *data = JS_GetUint8Array(ctx, &size, arguments[0]);
    return data ? JS_NewStringLen(ctx, (const char *)data, size) : JS_EXCEPTION;
}

static const char *script_text; /* while the event `script` is handled */
static size_t script_size;

static void run_jobs(void);

static JSValue evaluate_module(JSContext *ctx, const char *name) {
    JSValue code = JS_Eval(ctx, script_text, script_size, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(code)) return code;
    JSModuleDef *module = JS_VALUE_GET_PTR(code);
    JSValue promise = JS_EvalFunction(ctx, code);
    if (JS_IsException(promise)) return promise;
    run_jobs();
    JSPromiseStateEnum state = JS_PromiseState(ctx, promise);
    JSValue result = state == JS_PROMISE_REJECTED ? JS_PromiseResult(ctx, promise) : JS_UNDEFINED;
    JS_FreeValue(ctx, promise);
    if (state == JS_PROMISE_REJECTED) return JS_Throw(ctx, result);
    if (state == JS_PROMISE_PENDING) return JS_ThrowTypeError(ctx, "a top-level await that does not end at once");
    return JS_GetModuleNamespace(ctx, module);
}

/* Run the script: (file name, whether it is a module). The namespace of a module, or else the value of its last statement. */
static JSValue host_evaluate(JSContext *ctx, JSValueConst self, int count, JSValueConst *arguments) {
    if (!script_text) return JS_ThrowTypeError(ctx, "there is no script");
    const char *name = JS_ToCString(ctx, arguments[0]);
    if (!name) return JS_EXCEPTION;
    JSValue result = JS_ToBool(ctx, arguments[1]) ? evaluate_module(ctx, name)
                                                  : JS_Eval(ctx, script_text, script_size, name, JS_EVAL_TYPE_GLOBAL);
    JS_FreeCString(ctx, name);
    return result;
}

static const JSCFunctionListEntry host_functions[] = {
    JS_CFUNC_DEF("act", 4, host_act),
    JS_CFUNC_DEF("parse", 1, host_parse),
    JS_CFUNC_DEF("mayLose", 0, host_may_lose),
    JS_CFUNC_DEF("now", 0, host_now),
    JS_CFUNC_DEF("random", 0, host_random),
    JS_CFUNC_DEF("encode", 1, host_encode),
    JS_CFUNC_DEF("decode", 1, host_decode),
    JS_CFUNC_DEF("evaluate", 2, host_evaluate),
};

/* ------------------------------------------------------------------------------------------------------- errors of nobody */

static void log_exception(const char *what, JSValueConst error) {
    char line[512];
    const char *text = JS_ToCString(context, error);
    if (!text) JS_FreeValue(context, JS_GetException(context));
    strncpy(line, what, sizeof line - 1);
    line[sizeof line - 1] = 0;
    strncat(line, text ? text : "an error without a text", sizeof line - strlen(line) - 1);
    if (text) JS_FreeCString(context, text);
    write_action(ACT_LOG, 0, LOG_ERROR, line, strlen(line));
}

static uint32_t unhandled_count;
static JSValue unhandled_reason;

static void on_rejection(JSContext *ctx, JSValueConst promise, JSValueConst reason, bool is_handled, void *opaque) {
    if (is_handled) {
        if (unhandled_count) unhandled_count--;
        return;
    }
    unhandled_count++;
    JS_FreeValue(ctx, unhandled_reason);
    unhandled_reason = JS_DupValue(ctx, reason);
}

static void report_rejections(void) {
    if (unhandled_count) log_exception("rejected and not handled: ", unhandled_reason);
    unhandled_count = 0;
    JS_FreeValue(context, unhandled_reason);
    unhandled_reason = JS_UNDEFINED;
}

static void log_pending_exception(const char *what) {
    JSValue error = JS_GetException(context);
    log_exception(what, error);
    JS_FreeValue(context, error);
}

static void run_jobs(void) {
    JSContext *where;
    int done;
    while ((done = JS_ExecutePendingJob(runtime, &where)) != 0) {
        if (done < 0) log_pending_exception("");
    }
}

/* ------------------------------------------------------------------------------------------------------------------- events */

static void call_handler(uint8_t op, uint8_t flags, uint32_t arg, JSValue payload) {
    if (JS_IsException(payload)) {
        log_pending_exception("unreadable event: ");
        payload = JS_UNDEFINED;
    }
    JSValue arguments[3] = {JS_NewUint32(context, arg), payload, JS_NewUint32(context, flags)};
    JSValue result = JS_Call(context, handlers[op], JS_UNDEFINED, 3, arguments);
    if (JS_IsException(result)) log_pending_exception("");
    JS_FreeValue(context, result);
    JS_FreeValue(context, payload);
    run_jobs();
}

static void on_script(const uint8_t *bytes, size_t size) {
    const uint8_t *end = memchr(bytes, '\n', size);
    size_t head_size = end ? (size_t)(end - bytes) : size;
    size_t text_size = end ? size - head_size - 1 : 0;
    char *text = malloc(text_size + 1);
    if (!text) abort();
    memcpy(text, bytes + head_size + 1, text_size);
    text[text_size] = 0;
    script_text = text;
    script_size = text_size;
    call_handler(EVENT_SCRIPT, 0, 0, JS_NewStringLen(context, (const char *)bytes, head_size));
    script_text = NULL;
    free(text);
}

static JSValue payload_of(uint8_t op, uint8_t flags, const uint8_t *bytes, size_t size) {
    if (size > TEXT_BYTES_MAX) return JS_NULL;
    if (op == EVENT_DATA && !(flags & FLAG_TEXT)) return JS_NewUint8ArrayCopy(context, bytes, size);
    if (op != EVENT_MESSAGE) return JS_NewStringLen(context, (const char *)bytes, size);
    char *text = malloc(size + 1);
    if (!text) return JS_ThrowOutOfMemory(context);
    memcpy(text, bytes, size);
    text[size] = 0;
    JSValue message = parse_json(context, text, size);
    free(text);
    return message;
}

EXPORT("window") uint32_t window(uint32_t size) {
    if (size <= window_bytes) return (uint32_t)(uintptr_t)window_area;
    free(window_area);
    window_area = malloc(size);
    window_bytes = window_area ? size : 0;
    return (uint32_t)(uintptr_t)window_area;
}

EXPORT("handle") uint64_t handle(uint32_t pointer, uint32_t length) {
    const uint8_t *at = (const uint8_t *)(uintptr_t)pointer, *end = at + length;
    if (at < window_area || length < CALL_BYTES || length > window_bytes) return 0;
    if ((size_t)(at - window_area) > window_bytes - length) return 0;
    uint64_t random[2];
    memcpy(&now_ms, at, sizeof now_ms);
    memcpy(random, at + sizeof now_ms, sizeof random);
    random_state[0] ^= random[0];
    random_state[1] ^= random[1] | 1;
    at += CALL_BYTES;
    JS_UpdateStackTop(runtime);
    output.size = 0;
    output.limit = (256u << 10) + 4 * (size_t)length;
    actions_left = length >> 4;
    while (at < end) {
        if ((size_t)(end - at) < RECORD_BYTES) return 0;
        uint8_t op = at[0], flags = at[1];
        uint32_t arg = read_u32(at + 4), size = read_u32(at + 8);
        at += RECORD_BYTES;
        if (size > (size_t)(end - at)) return 0;
        actions_left += 64;
        if (op == EVENT_SCRIPT) on_script(at, size);
        else if (op && op < EVENTS) call_handler(op, flags, arg, payload_of(op, flags, at, size));
        at += size;
    }
    call_handler(HANDLER_FINISH, 0, 0, JS_UNDEFINED);
    report_rejections();
    return (uint64_t)(uintptr_t)output.data << 32 | (uint32_t)output.size;
}

/* -------------------------------------------------------------------------------------------------------------------- start */

static const char prelude[] = {
#embed "stub_prelude.js"
    , 0};

/* Runs in `_initialize`, which the linker makes. */
__attribute__((constructor)) static void initialize(void) {
    unhandled_reason = JS_UNDEFINED;
    runtime = JS_NewRuntime();
    context = runtime ? JS_NewContext(runtime) : NULL;
    output.room = 4096; /* a call without any action has an address to answer as well */
    output.data = malloc(output.room);
    if (!context || !output.data) abort();
    JS_SetMaxStackSize(runtime, SCRIPT_STACK_BYTES);
    JS_SetHostPromiseRejectionTracker(runtime, on_rejection, NULL);
    JSValue host = JS_NewObject(context);
    JS_SetPropertyFunctionList(context, host, host_functions, sizeof host_functions / sizeof host_functions[0]);
    JSValue symbol = JS_NewSymbol(context, "text of numbers", false);
    number_texts = JS_ValueToAtom(context, symbol);
    JS_SetPropertyStr(context, host, "numberTexts", symbol);
    JSValue made = JS_Eval(context, prelude, sizeof prelude - 1, "prelude.js", JS_EVAL_TYPE_GLOBAL);
    JSValue every = JS_Call(context, made, JS_UNDEFINED, 1, &host);
    if (JS_IsException(every)) abort();
    for (uint32_t op = 0; op < EVENTS; op++) handlers[op] = JS_GetPropertyUint32(context, every, op);
    JS_FreeValue(context, every);
    JS_FreeValue(context, made);
    JS_FreeValue(context, host);
}

/* --------------------------------------------------------------------------------------------------------------------- WASI */

/* There are no files; standard output is one of them. The numbers are those of WASI. */
#define WASI(name) __imported_wasi_snapshot_preview1_##name
#define BAD_DESCRIPTOR 8

int32_t WASI(clock_time_get)(int32_t id, int64_t precision, int32_t result) {
    uint64_t nanoseconds = now_ms * 1000000u;
    memcpy((void *)(uintptr_t)(uint32_t)result, &nanoseconds, sizeof nanoseconds);
    return 0;
}

int close(int file) { return -1; }
int32_t WASI(fd_fdstat_get)(int32_t file, int32_t result) { return BAD_DESCRIPTOR; }
int32_t WASI(fd_seek)(int32_t file, int64_t offset, int32_t whence, int32_t result) { return BAD_DESCRIPTOR; }
int32_t WASI(fd_write)(int32_t file, int32_t vectors, int32_t count, int32_t result) { return BAD_DESCRIPTOR; }
