/*
 * trapezoid_text.h: lines and JSON for stubs in C. Include it after `trapezoid_stub.h`; it allocates nothing.
 *
 * Lines: a stream (`tcp-tls`) cuts its text anywhere. `stub_lines_add` gathers it and gives every whole line to a function.
 * Reading JSON: `stub_json_path` finds a nested member, `stub_json_text` takes the escapes out of a string, `stub_json_number`
 * reads a number. Writing JSON: `stub_put_json_text` writes a quoted string, `stub_put_json_part` some of its content, between
 * `stub_begin` and `stub_end`.
 */
#ifndef TRAPEZOID_TEXT_H
#define TRAPEZOID_TEXT_H

/* ------------------------------------------------------------------------------------------------------------- lines */

/* Bytes of a line that is not whole yet, in a buffer of the stub. `is_too_long` is set by a line that does not fit. */
typedef struct {
    uint8_t *buffer;
    uint32_t capacity, used;
    bool is_too_long;
} stub_lines;

/* Gives `on_line` each line that ends in `bytes`, without its line feed (and carriage return). False: a line is too long. */
STUB_NOINLINE static bool stub_lines_add(stub_lines *lines, stub_bytes bytes, void (*on_line)(stub_bytes line)) {
    uint32_t start = 0;
    for (uint32_t i = 0; i < bytes.size && !lines->is_too_long; i++) {
        if (bytes.data[i] != '\n') continue;
        stub_bytes line = {bytes.data + start, i - start};
        if (lines->used) {
            if (line.size > lines->capacity - lines->used) break;
            __builtin_memcpy(lines->buffer + lines->used, line.data, line.size);
            line = (stub_bytes){lines->buffer, lines->used + line.size};
        }
        if (line.size && line.data[line.size - 1] == '\r') line.size--;
        lines->used = 0;
        start = i + 1;
        on_line(line);
    }
    uint32_t rest = bytes.size - start;
    if (lines->is_too_long || rest > lines->capacity - lines->used) {
        lines->is_too_long = true;
        return false;
    }
    __builtin_memcpy(lines->buffer + lines->used, bytes.data + start, rest);
    lines->used += rest;
    return true;
}

/* ------------------------------------------------------------------------------------------------------ reading JSON */

/* The value of a nested member: "body.value" of {"body":{"value":1}}. Names with a point in them are not found. */
STUB_NOINLINE static stub_bytes stub_json_path(stub_bytes json, stub_bytes path) {
    uint32_t start = 0;
    for (uint32_t i = 0; i <= path.size; i++) {
        if (i < path.size && path.data[i] != '.') continue;
        json = stub_json_member(json, (stub_bytes){path.data + start, i - start});
        if (!json.size) return json;
        start = i + 1;
    }
    return json;
}

static inline int32_t stub_hex_digit(uint8_t letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
    if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
    return -1;
}

/* The code unit of `\uXXXX` whose digits begin at `at`, or -1. */
static inline int32_t stub_json_unit(stub_bytes text, uint32_t at) {
    int32_t unit = 0;
    if (at + 4 > text.size) return -1;
    for (uint32_t i = 0; i < 4; i++) {
        int32_t digit = stub_hex_digit(text.data[at + i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static inline uint32_t stub_put_utf8(uint8_t *at, uint32_t code) {
    if (code < 0x80) {
        at[0] = (uint8_t)code;
        return 1;
    }
    uint32_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (uint32_t i = size - 1; i; i--) {
        at[i] = (uint8_t)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    at[0] = (uint8_t)(0xf00u >> size | code);
    return size;
}

/*
 * The content of a JSON string value as UTF-8, in `buffer`, which has to have as many bytes as the value. False for anything that
 * is no string, with a broken escape or half a surrogate pair in it, or too long. An escape is never shorter than its UTF-8.
 */
STUB_NOINLINE static bool stub_json_text(stub_bytes value, uint8_t *buffer, uint32_t capacity, stub_bytes *text) {
    uint32_t used = 0;
    if (value.size < 2 || value.data[0] != '"' || value.data[value.size - 1] != '"' || capacity < value.size) return false;
    value = (stub_bytes){value.data + 1, value.size - 2};
    for (uint32_t i = 0; i < value.size; i++) {
        uint8_t letter = value.data[i];
        if (letter == '"' || letter < 0x20) return false;
        if (letter != '\\') {
            buffer[used++] = letter;
            continue;
        }
        if (++i >= value.size) return false;
        letter = value.data[i];
        if (letter == 'u') {
            int32_t unit = stub_json_unit(value, i + 1);
            i += 4;
            uint32_t code = (uint32_t)unit;
            if (unit >= 0xd800 && unit < 0xdc00) {
                if (i + 2 >= value.size || value.data[i + 1] != '\\' || value.data[i + 2] != 'u') return false;
                int32_t low = stub_json_unit(value, i + 3);
                if (low < 0xdc00 || low > 0xdfff) return false;
                i += 6;
                code = 0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
            } else if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000)) {
                return false;
            }
            used += stub_put_utf8(buffer + used, code);
            continue;
        }
        switch (letter) {
        case '"': case '\\': case '/': break;
        case 'b': letter = '\b'; break;
        case 'f': letter = '\f'; break;
        case 'n': letter = '\n'; break;
        case 'r': letter = '\r'; break;
        case 't': letter = '\t'; break;
        default: return false;
        }
        buffer[used++] = letter;
    }
    *text = (stub_bytes){buffer, used};
    return true;
}

/* A JSON number as a double; false for anything else. Exact up to 2^53; what must stay as it came, copy as text. */
STUB_NOINLINE static bool stub_json_number(stub_bytes value, double *number) {
    double digits = 0, scale = 1;
    int32_t exponent = 0;
    uint32_t i = 0, begin;
    bool is_negative = value.size && value.data[0] == '-';
    if (is_negative) i++;
    for (begin = i; i < value.size && value.data[i] >= '0' && value.data[i] <= '9'; i++) digits = digits * 10 + (value.data[i] - '0');
    if (i == begin) return false;
    if (i < value.size && value.data[i] == '.') {
        for (begin = ++i; i < value.size && value.data[i] >= '0' && value.data[i] <= '9'; i++) {
            digits = digits * 10 + (value.data[i] - '0');
            scale *= 10;
        }
        if (i == begin) return false;
    }
    if (i < value.size && (value.data[i] | 0x20) == 'e') {
        bool is_small = ++i < value.size && value.data[i] == '-';
        if (is_small || (i < value.size && value.data[i] == '+')) i++;
        for (begin = i; i < value.size && value.data[i] >= '0' && value.data[i] <= '9'; i++) {
            if (exponent < 400) exponent = exponent * 10 + (value.data[i] - '0');
        }
        if (i == begin) return false;
        for (int32_t left = exponent; left; left--) {
            if (is_small) scale *= 10;
            else digits *= 10;
        }
    }
    if (i != value.size) return false;
    *number = (is_negative ? -digits : digits) / scale;
    return true;
}

/* ------------------------------------------------------------------------------------------------------ writing JSON */

/*
 * The lowest bit that is set is in the first of eight bytes that is a quote, a backslash or a control character, which JSON strings
 * hold escaped only; 0 if there is none. (Bits above the lowest may come from a borrow.)
 */
static inline uint64_t stub_json_special(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = word ^ 0x22 * ones, backslash = word ^ 0x5c * ones;
    return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - 0x20 * ones) & ~word)) & tops;
}

static inline uint8_t *stub_escape(uint8_t *at, uint8_t letter) {
    static const char digits[] = "0123456789abcdef";
    if (letter >= 0x20 && letter != '"' && letter != '\\') {
        *at++ = letter;
        return at;
    }
    *at++ = '\\';
    if (letter >= 0x20) {
        *at++ = letter;
        return at;
    }
    *at++ = 'u';
    *at++ = '0';
    *at++ = '0';
    *at++ = (uint8_t)digits[letter >> 4];
    *at++ = (uint8_t)digits[letter & 15];
    return at;
}

/*
 * The content of a JSON string, escaped, without its quotes; UTF-8 stays as it is. Between `stub_begin` and `stub_end`. Eight
 * bytes at a time up to what is to be escaped; room is made for 64 bytes of text at their longest, and what is left given back.
 */
STUB_NOINLINE static void stub_put_json_part(stub_bytes text) {
    for (uint32_t start = 0; start < text.size && !stub_self.failed;) {
        uint32_t end = text.size - start > 64 ? start + 64 : text.size, i = start;
        uint8_t *at = stub_reserve(6 * (end - start));
        if (!at) return;
        while (i + 8 <= end) {
            uint64_t word;
            __builtin_memcpy(&word, text.data + i, 8);
            __builtin_memcpy(at, &word, 8);
            uint64_t special = stub_json_special(word);
            uint32_t plain = special ? (uint32_t)__builtin_ctzll(special) >> 3 : 8;
            at += plain;
            i += plain;
            if (special) at = stub_escape(at, text.data[i++]);
        }
        for (; i < end; i++) at = stub_escape(at, text.data[i]);
        stub_self.next = at;
        start = end;
    }
}

/* A quoted JSON string with `text` as its content; see `stub_put_json_part`. */
STUB_NOINLINE static void stub_put_json_text(stub_bytes text) {
    stub_put(STUB_TEXT("\""));
    stub_put_json_part(text);
    stub_put(STUB_TEXT("\""));
}

#endif
