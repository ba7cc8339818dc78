/*
 * legacy-chat: an interworking stub. Behind it is no messaging node but an old chat service that speaks lines over TLS,
 * and its users are `chat://<user>@<host>`. The stub's domain is `chat.<host>`; its manifest signs the range `chat://<host>`.
 *
 *     <- HERE <user>                          is reachable: registered with the host's registry, or registered again
 *     <- GONE <user>                          is not
 *     <- ROOM <user> <name>                   has opened a room: registered as a data object
 *     <- MSG <user> <to> <text>               says something to an address of the reTHINK world
 *     -> SAY <user> <number> <type> <from> <body as JSON, one line>
 *     <- OK <number>   <- NO <number>         it was shown to the user, it was not
 *     -> WHO                                  who is here? answered with HERE lines; asked again before registrations expire
 *
 * With a token for the service (`tokens` of the start settings) the roster is read over HTTP instead of asked for with WHO:
 * `GET /who` at the endpoint `api`. The stub names the token; it never sees it.
 */
#define STUB_NAME "legacy-chat"
#define STUB_VERSION "1.0.0"
#include "trapezoid_stub.h"

enum { LINES = 1, API = 2 };
enum { RECONNECT_TIMER = 1, WHO_TIMER = 2, CONTINUE_TIMER = 3 };

/* What one line may lead to: a fate, an acceptance, an answer. */
#define ACTIONS_PER_LINE 3u

#define RECONNECT_MS 1000u
#define WHO_MS 100000u
#define EXPIRES "300" /* seconds that a registration lives; asked for again three times within */
#define LINE_BYTES 4096u
#define NAME_BYTES 64u
#define ADDRESS_BYTES 512u
#define PENDING 64u

typedef struct {
    uint32_t number;
    uint8_t id[64], from[ADDRESS_BYTES], to[ADDRESS_BYTES];
    uint32_t id_size, from_size, to_size;
} request;

static bool is_open, is_draining, has_token, is_asking;
static uint8_t our_domain[256], stub_domain[256], buffer[1u << 16];
static uint32_t our_domain_size, stub_domain_size, buffered, next_id, highest_seen, highest_accepted;
static request pending[PENDING];

static stub_bytes ours(void) { return (stub_bytes){our_domain, our_domain_size}; }
static stub_bytes whole(void) { return (stub_bytes){stub_domain, stub_domain_size}; }

/* `chat.legacy.example` is the stub's domain, `legacy.example` the host of its users. */
static stub_bytes host(void) {
    uint32_t at = 0;
    while (at < stub_domain_size && stub_domain[at] != '.') at++;
    if (at < stub_domain_size) at++;
    return (stub_bytes){stub_domain + at, stub_domain_size - at};
}

static uint32_t keep(uint8_t *to, uint32_t room, stub_bytes text) {
    if (text.size > room) return 0;
    __builtin_memcpy(to, text.data, text.size);
    return text.size;
}

/* ------------------------------------------------------------------------------------------------------ writing messages */

static void put_user(stub_bytes user) {
    stub_put(STUB_TEXT("chat://"));
    stub_put(user);
    stub_put(STUB_TEXT("@"));
    stub_put(host());
}

/* Text of the service as the inside of a JSON string. */
static void put_escaped(stub_bytes text) {
    for (uint32_t i = 0; i < text.size; i++) {
        uint8_t letter = text.data[i] < 0x20 ? ' ' : text.data[i];
        if (letter == '"' || letter == '\\') stub_put(STUB_TEXT("\\"));
        stub_put((stub_bytes){&letter, 1});
    }
}

/* The header of a message to the host's registry, up to the value of its body. */
static bool begin_registry(stub_bytes type, stub_bytes user) {
    if (!stub_begin(STUB_ACT_DELIVER, 0, 0)) return false;
    stub_put(STUB_TEXT("{\"id\":"));
    stub_put_decimal(++next_id);
    stub_put(STUB_TEXT(",\"type\":\""));
    stub_put(type);
    stub_put(STUB_TEXT("\",\"from\":\""));
    put_user(user);
    stub_put(STUB_TEXT("\",\"to\":\"domain://registry."));
    stub_put(ours());
    stub_put(STUB_TEXT("\",\"body\":{"));
    return true;
}

static void put_hyperty(stub_bytes user) {
    stub_put(STUB_TEXT("hyperty://"));
    stub_put(whole());
    stub_put(STUB_TEXT("/"));
    stub_put(user);
}

static void on_here(stub_bytes user) {
    if (!begin_registry(STUB_TEXT("create"), user)) return;
    stub_put(STUB_TEXT("\"value\":{\"url\":\""));
    put_hyperty(user);
    stub_put(STUB_TEXT("\",\"user\":\""));
    put_user(user);
    stub_put(STUB_TEXT("\",\"descriptor\":\"hyperty-catalogue://catalogue."));
    stub_put(whole());
    stub_put(STUB_TEXT("/.well-known/hyperty/LegacyChat\",\"resources\":[\"chat\"],\"dataSchemes\":[],\"expires\":" EXPIRES "}}}"));
    stub_end();
}

static void on_gone(stub_bytes user) {
    if (!begin_registry(STUB_TEXT("update"), user)) return;
    stub_put(STUB_TEXT("\"resource\":\""));
    put_hyperty(user);
    stub_put(STUB_TEXT("\",\"attribute\":\"status\",\"value\":\"disconnected\"}}"));
    stub_end();
}

static void on_room(stub_bytes user, stub_bytes name) {
    if (!begin_registry(STUB_TEXT("create"), user)) return;
    stub_put(STUB_TEXT("\"value\":{\"url\":\"comm://"));
    stub_put(whole());
    stub_put(STUB_TEXT("/"));
    stub_put(name);
    stub_put(STUB_TEXT("\",\"name\":\""));
    stub_put(name);
    stub_put(STUB_TEXT("\",\"schema\":\"hyperty-catalogue://catalogue."));
    stub_put(whole());
    stub_put(STUB_TEXT("/.well-known/dataschema/Communication\",\"resources\":[\"chat\"],\"expires\":" EXPIRES "}}}"));
    stub_end();
}

static void on_msg(stub_bytes user, stub_bytes to, stub_bytes text) {
    if (!stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
    stub_put(STUB_TEXT("{\"type\":\"create\",\"from\":\""));
    put_user(user);
    stub_put(STUB_TEXT("\",\"to\":\""));
    put_escaped(to);
    stub_put(STUB_TEXT("\",\"body\":{\"value\":{\"content\":\""));
    put_escaped(text);
    stub_put(STUB_TEXT("\"}}}"));
    stub_end();
}

/* ----------------------------------------------------------------------------------------------- messages for the service */

static stub_bytes inside(stub_bytes json, stub_bytes name) { return stub_json_plain_string(stub_json_member(json, name)); }

static bool starts_with(stub_bytes text, stub_bytes start) {
    return text.size > start.size && stub_equal((stub_bytes){text.data, start.size}, start);
}

/*
 * The user of `chat://<user>@<host>…`, `chat:<user>@<host>…`, `hyperty://<domain>/<user>…` or `user://<domain>/<user>`;
 * size 0 for any other address.
 */
static stub_bytes user_of(stub_bytes to) {
    uint32_t start = 0;
    if (starts_with(to, STUB_TEXT("hyperty://"))) start = 11 + stub_domain_size;
    else if (starts_with(to, STUB_TEXT("user://"))) start = 8 + stub_domain_size;
    else if (starts_with(to, STUB_TEXT("chat://"))) start = 7;
    else if (starts_with(to, STUB_TEXT("chat:"))) start = 5;
    else return (stub_bytes){NULL, 0};
    uint32_t end = start;
    while (end < to.size && to.data[end] != '@' && to.data[end] != '/') end++;
    if (end <= start || end - start > NAME_BYTES || end > to.size) return (stub_bytes){NULL, 0};
    return (stub_bytes){to.data + start, end - start};
}

static request *slot_for(uint32_t number) {
    for (uint32_t i = 0; i < PENDING; i++) {
        if (pending[i].number == number) return &pending[i];
    }
    return NULL;
}

/* Whoever waits for an answer gets one when the service has shown the message, or has not. */
static bool remember(uint32_t number, stub_bytes message) {
    request *slot = slot_for(0);
    if (!slot) return false;
    slot->id_size = keep(slot->id, sizeof slot->id, stub_json_member(message, STUB_TEXT("id")));
    slot->from_size = keep(slot->from, sizeof slot->from, stub_json_member(message, STUB_TEXT("from")));
    slot->to_size = keep(slot->to, sizeof slot->to, stub_json_member(message, STUB_TEXT("to")));
    slot->number = number;
    return true;
}

/* The mirrored header of a response; the texts stand as they came, with their quotes. */
static void answer(stub_bytes id, stub_bytes from, stub_bytes to) {
    if (!id.size || !from.size || !to.size || !stub_begin(STUB_ACT_DELIVER, 0, 0)) return;
    stub_put(STUB_TEXT("{\"id\":"));
    stub_put(id);
    stub_put(STUB_TEXT(",\"type\":\"response\",\"from\":"));
    stub_put(to);
    stub_put(STUB_TEXT(",\"to\":"));
    stub_put(from);
    stub_put(STUB_TEXT(",\"body\":{\"code\":200}}"));
    stub_end();
}

/* `accepted` covers everything up to a number, so it goes no further than to the oldest message under way. */
static void accept_settled(void) {
    uint32_t settled = highest_seen;
    for (uint32_t i = 0; i < PENDING; i++) {
        if (pending[i].number && pending[i].number <= settled) settled = pending[i].number - 1;
    }
    if (settled <= highest_accepted) return;
    highest_accepted = settled;
    stub_accepted(settled);
}

static void on_message(uint32_t number, stub_bytes message) {
    stub_bytes type = inside(message, STUB_TEXT("type"));
    highest_seen = number;
    if (stub_equal(type, STUB_TEXT("response"))) { /* what we asked the registry for; nobody here waits for it */
        accept_settled();
        return;
    }
    bool is_subscription = stub_equal(type, STUB_TEXT("subscribe")) || stub_equal(type, STUB_TEXT("unsubscribe"));
    stub_bytes user = user_of(inside(message, STUB_TEXT("to")));
    if (is_subscription) { /* whoever is here hears everything: there is nothing to ask the service for */
        answer(stub_json_member(message, STUB_TEXT("id")), stub_json_member(message, STUB_TEXT("from")),
               stub_json_member(message, STUB_TEXT("to")));
        accept_settled();
        return;
    }
    if (!user.size) {
        stub_refused(number, STUB_TEXT("404 no-route no such user"));
        return;
    }
    if (!remember(number, message)) {
        stub_refused(number, STUB_TEXT("503 overload too many messages under way"));
        return;
    }
    if (!stub_begin(STUB_ACT_SEND, 0, LINES)) return;
    stub_put(STUB_TEXT("SAY "));
    stub_put(user);
    stub_put(STUB_TEXT(" "));
    stub_put_decimal(number);
    stub_put(STUB_TEXT(" "));
    stub_put(type);
    stub_put(STUB_TEXT(" "));
    stub_put(inside(message, STUB_TEXT("from")));
    stub_put(STUB_TEXT(" "));
    stub_bytes body = stub_json_member(message, STUB_TEXT("body"));
    for (uint32_t i = 0; i < body.size; i++) {
        uint8_t letter = body.data[i] < 0x20 ? ' ' : body.data[i];
        stub_put((stub_bytes){&letter, 1});
    }
    stub_put(STUB_TEXT("\n"));
    stub_end();
}

static void on_fate(stub_bytes word, bool is_shown) {
    uint32_t number;
    if (!stub_read_decimal(word, &number) || !number) return;
    request *slot = slot_for(number);
    if (!slot) return;
    slot->number = 0;
    if (!is_shown) stub_refused(number, STUB_TEXT("404 no-route the service does not know this user"));
    accept_settled();
    if (is_shown) {
        answer((stub_bytes){slot->id, slot->id_size}, (stub_bytes){slot->from, slot->from_size},
               (stub_bytes){slot->to, slot->to_size});
    }
}

/* ------------------------------------------------------------------------------------------------------- reading lines */

static stub_bytes take_word(stub_bytes *text) {
    uint32_t size = 0;
    while (size < text->size && text->data[size] != ' ') size++;
    stub_bytes taken = {text->data, size};
    uint32_t skipped = size < text->size ? size + 1 : size;
    *text = (stub_bytes){text->data + skipped, text->size - skipped};
    return taken;
}

/* Names of users and rooms go into addresses as they are. */
static bool is_name(stub_bytes word) {
    if (!word.size || word.size > NAME_BYTES) return false;
    for (uint32_t i = 0; i < word.size; i++) {
        uint8_t letter = word.data[i];
        bool is_good = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') || letter == '-' || letter == '.';
        if (!is_good) return false;
    }
    return true;
}

static void on_line(stub_bytes line) {
    stub_bytes word = take_word(&line);
    stub_bytes first = take_word(&line);
    if (stub_equal(word, STUB_TEXT("OK"))) on_fate(first, true);
    else if (stub_equal(word, STUB_TEXT("NO"))) on_fate(first, false);
    else if (!is_name(first)) return;
    else if (stub_equal(word, STUB_TEXT("HERE"))) on_here(first);
    else if (stub_equal(word, STUB_TEXT("GONE"))) on_gone(first);
    else if (stub_equal(word, STUB_TEXT("ROOM"))) {
        stub_bytes name = take_word(&line);
        if (is_name(name)) on_room(first, name);
    } else if (stub_equal(word, STUB_TEXT("MSG"))) {
        stub_bytes to = take_word(&line);
        if (to.size) on_msg(first, to, line);
    }
}

/* Takes whole lines out of the buffer, as many as one call may answer; the rest is for the next one. */
static void read_lines(void) {
    uint32_t start = 0;
    for (uint32_t at = 0; at < buffered; at++) {
        if (buffer[at] != '\n') continue;
        if (stub_actions_left() < ACTIONS_PER_LINE || stub_output_left() < 8 * LINE_BYTES) {
            stub_set_timer(CONTINUE_TIMER, 1);
            break;
        }
        if (at - start <= LINE_BYTES) on_line((stub_bytes){buffer + start, at - start});
        start = at + 1;
    }
    __builtin_memmove(buffer, buffer + start, buffered - start);
    buffered -= start;
}

static void lose(stub_bytes reason) {
    is_open = is_asking = false;
    buffered = 0;
    highest_seen = highest_accepted; /* what was under way comes again, with the same numbers */
    for (uint32_t i = 0; i < PENDING; i++) pending[i].number = 0;
    stub_status_because(STUB_TEXT("disconnected"), reason);
    if (!is_draining) stub_set_timer(RECONNECT_TIMER, RECONNECT_MS);
}

static void on_data(stub_bytes data) {
    if (data.size > sizeof buffer - buffered) { /* a line without end */
        stub_close(LINES);
        lose(STUB_TEXT("protocol-error"));
        return;
    }
    __builtin_memcpy(buffer + buffered, data.data, data.size);
    buffered += data.size;
    read_lines();
}

/* ------------------------------------------------------------------------------------------------------------ events */

static void open_lines(void) {
    static const char wanted[] = "{\"endpoint\":\"lines\"}";
    stub_act(STUB_ACT_OPEN, STUB_TCP_TLS, LINES, STUB_TEXT(wanted));
}

static void ask_who(void) {
    static const char wanted[] = "{\"endpoint\":\"api\",\"path\":\"/who\",\"token\":\"service\"}";
    if (!has_token) stub_act(STUB_ACT_SEND, 0, LINES, STUB_TEXT("WHO\n"));
    else if (!is_asking) {
        is_asking = true;
        stub_act(STUB_ACT_OPEN, STUB_HTTP, API, STUB_TEXT(wanted));
    }
    stub_set_timer(WHO_TIMER, WHO_MS);
}

/* The answer's body is lines like those of the service. They go before the line that may be half here. */
static void on_roster(stub_bytes answer) {
    uint32_t at = 0;
    while (at < answer.size && answer.data[at] != '\n') at++;
    stub_bytes status = stub_json_member((stub_bytes){answer.data, at}, STUB_TEXT("status"));
    if (at == answer.size || !stub_equal(status, STUB_TEXT("200")) || answer.size - at > sizeof buffer - buffered) {
        stub_log(STUB_LOG_WARNING, STUB_TEXT("the roster of the service cannot be read"));
        return;
    }
    uint32_t size = answer.size - at; /* of the body, and a line feed behind it */
    __builtin_memmove(buffer + size, buffer, buffered);
    __builtin_memcpy(buffer, answer.data + at + 1, size - 1);
    buffer[size - 1] = '\n';
    buffered += size;
    read_lines();
}

static void on_start(stub_bytes settings) {
    our_domain_size = keep(our_domain, sizeof our_domain, inside(settings, STUB_TEXT("our_domain")));
    stub_domain_size = keep(stub_domain, sizeof stub_domain, inside(settings, STUB_TEXT("peer_domain")));
    has_token = stub_json_member(settings, STUB_TEXT("tokens")).size > 2; /* more than [] */
    stub_status(STUB_TEXT("created"));
    open_lines();
}

static void stub_on_event(const stub_event *event) {
    switch (event->op) {
    case STUB_START:
        on_start(event->bytes);
        break;
    case STUB_MESSAGE:
        if (is_open) on_message(event->arg, event->bytes);
        break;
    case STUB_OPENED:
        if (event->arg != LINES) break;
        is_open = true;
        stub_status(STUB_TEXT("live"));
        ask_who();
        break;
    case STUB_DATA:
        if (event->arg == LINES && is_open) on_data(event->bytes);
        break;
    case STUB_HTTP_RESPONSE:
        if (is_open) on_roster(event->bytes);
        break;
    case STUB_CLOSED:
        if (event->arg == API) is_asking = false;
        else if (event->arg == LINES && is_open) lose(event->bytes);
        else if (event->arg == LINES && !is_draining) stub_set_timer(RECONNECT_TIMER, RECONNECT_MS);
        break;
    case STUB_TIMER:
        if (event->arg == RECONNECT_TIMER && !is_open && !is_draining) open_lines();
        else if (event->arg == WHO_TIMER && is_open) ask_who();
        else if (event->arg == CONTINUE_TIMER && is_open) read_lines();
        break;
    case STUB_DRAIN:
        is_draining = true;
        if (is_open) {
            stub_close(LINES);
            lose(STUB_TEXT("drained"));
        }
        break;
    }
}
