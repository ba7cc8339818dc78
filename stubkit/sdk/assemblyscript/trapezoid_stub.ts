// The kit for stubs in AssemblyScript: the contract `trapezoid-stub/1` (docs/abi.md) without its records and memory.
//
// A stub is one file with
//
//     export const STUB_NAME: string = "my-stub";
//     export const STUB_VERSION: string = "1.0.0";
//     export function onEvent(event: stub.Event): void { … }
//
// and `import * as stub from "./trapezoid_stub";`. `onEvent` is called once for every event, in order, and answers by calling the
// actions below. An optional `export function onBatchEnd(): void` is called after the last event of a call: the place to send what
// was gathered. Bytes of an event are valid only during the call: what a stub wants to keep, it keeps as `string`.

export const START: u8 = 1, MESSAGE: u8 = 2, OPENED: u8 = 3, DATA: u8 = 4, CLOSED: u8 = 5, TIMER: u8 = 6, HTTP_RESPONSE: u8 = 7,
  AUTH_TOKEN: u8 = 8, PEER_VERIFIED: u8 = 9, DRAIN: u8 = 10, ADDRESSES: u8 = 11;
export const WEBSOCKET: u8 = 1, TCP_TLS: u8 = 2, HTTP: u8 = 3;
export const DEBUG: u32 = 0, INFO: u32 = 1, WARNING: u32 = 2, ERROR: u32 = 3;

const RECORD_BYTES: usize = 12;
const CALL_BYTES: usize = 24;
const OUTPUT_BASE_BYTES: usize = 256 << 10;
const COLLECT_AFTER_CALLS: i32 = 64;
const COLLECT_AFTER_BYTES: usize = 96 << 10;

// --------------------------------------------------------------------------------------------------------------- bytes

/** Some bytes of an event, in place. */
export class Bytes {
  constructor(readonly at: usize, readonly size: i32) {}

  /** A text that is not UTF-8 gets replacement characters. */
  get text(): string { return String.UTF8.decodeUnsafe(this.at, this.size); }

  get isEmpty(): bool { return this.size == 0; }

  letter(index: i32): i32 { return index < this.size ? i32(load<u8>(this.at + index)) : -1; }

  slice(start: i32, end: i32 = i32.MAX_VALUE): Bytes {
    const last = min(end, this.size), first = min(max(start, 0), last);
    return new Bytes(this.at + first, last - first);
  }

  /** True for the same bytes; `other` is ASCII. */
  equals(other: string): bool { return this.size == other.length && this.startsWith(other); }

  startsWith(other: string): bool {
    return other.length <= this.size && isAt(this.at, other);
  }

  /** Position of an ASCII letter from `start` on, or -1. */
  find(letter: i32, start: i32 = 0): i32 {
    for (let i = start; i < this.size; i++) {
      if (i32(load<u8>(this.at + i)) == letter) return i;
    }
    return -1;
  }

  /** Decimal digits as a number, or -1 when there are others or too many for 32 bits. */
  get decimal(): i64 {
    if (this.size < 1 || this.size > 10) return -1;
    let value: i64 = 0;
    for (let i = 0; i < this.size; i++) {
      const digit = i32(load<u8>(this.at + i)) - 48;
      if (digit < 0 || digit > 9) return -1;
      value = value * 10 + digit;
    }
    return value <= i64(u32.MAX_VALUE) ? value : -1;
  }
}

export class Event {
  op: u8 = 0;
  /** Text frame, granted, verified or snapshot, by kind of event. */
  flag: bool = false;
  /** Number of a message, channel or timer. */
  arg: u32 = 0;
  bytes: Bytes = new Bytes(0, 0);
}

// ------------------------------------------------------------------------------------------------------------- actions

let windowAt: usize = 0, windowBytes: usize = 0;
let outputAt: usize = 0, outputBytes: usize = 0, used: usize = 0, allowed: usize = 0;
let actions: u32 = 0, actionsAllowed: u32 = 0;
let failed: bool = false;
let now: u64 = 0, randomAt: usize = 0;
let callsSinceCollected: i32 = 0, bytesSinceCollected: usize = 0;

/** Unix time of this call, in milliseconds. */
export function nowMs(): u64 { return now; }
/** The same within one call, fresh in the next. */
export function randomU32(): u32 { return load<u32>(randomAt); }
export function actionsLeft(): u32 { return actionsAllowed - actions; }

export function status(text: string): void { act<string>(10, 0, 0, text); }
/** `request` is JSON: `endpoint`, and what docs/abi.md lists besides. */
export function open(channel: u32, kind: u8, request: string): void { act<string>(1, kind, channel, request); }
/** Sends a `string` or `Bytes`. */
export function send<T>(channel: u32, payload: T, isText: bool = true): void { act<T>(2, isText ? 1 : 0, channel, payload); }
export function close(channel: u32): void { act<string>(3, 0, channel, ""); }
/** Hands one message to the bus of the host; 0: the far end gives no numbers. */
export function deliver<T>(message: T, number: u32 = 0): void { act<T>(4, 0, number, message); }
/** 0 cancels. */
export function setTimer(timer: u32, delayMs: u32): void {
  const at = begin(5, 0, timer, 4);
  if (at) store<u32>(at, delayMs);
}
export function requestAuthToken<T>(channel: u32, challenge: T): void { act<T>(6, 0, channel, challenge); }
export function verifyPeer<T>(channel: u32, token: T): void { act<T>(7, 0, channel, token); }
/** Every message up to this number is the far end's responsibility from now on. */
export function accepted(number: u32): void { act<string>(8, 0, number, ""); }
/** `why` is a status, a code word and text: "404 no-route nobody is there". */
export function refused<T>(number: u32, why: T): void { act<T>(9, 0, number, why); }
export function log(level: u32, text: string): void { act<string>(11, 0, level, text); }
export function peerStream(name: string): void { act<string>(12, 0, 0, name); }

function act<T>(op: u8, flags: u8, arg: u32, payload: T): void {
  if (isString<T>()) {
    const text = changetype<string>(payload);
    const size = String.UTF8.byteLength(text);
    const at = begin(op, flags, arg, size);
    if (at && size) String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, at);
  } else {
    const bytes = changetype<Bytes>(payload);
    const at = begin(op, flags, arg, bytes.size);
    if (at) memory.copy(at, bytes.at, bytes.size);
  }
}

/** Begins one action of known size; the address of its bytes, or 0 when the contract allows no more. */
function begin(op: u8, flags: u8, arg: u32, size: i32): usize {
  if (failed || actions >= actionsAllowed || used + RECORD_BYTES + size > allowed) {
    failed = true;
    return 0;
  }
  if (used + RECORD_BYTES + size > outputBytes) {
    outputBytes = max(outputBytes * 2, used + RECORD_BYTES + size + 4096);
    outputAt = outputAt ? heap.realloc(outputAt, outputBytes) : heap.alloc(outputBytes);
  }
  const at = outputAt + used;
  store<u32>(at, u32(op) | (u32(flags) << 8));
  store<u32>(at, arg, 4);
  store<u32>(at, size, 8);
  used += RECORD_BYTES + size;
  actions++;
  return at + RECORD_BYTES;
}

// ---------------------------------------------------------------------------------------------------------------- JSON

// Addresses and not letters: a call for each byte of a message is what such code costs.

function isSpace(letter: i32): bool { return letter == 32 || letter == 10 || letter == 13 || letter == 9; }

function skipSpace(json: Bytes, at: i32): i32 {
  while (at < json.size && isSpace(i32(load<u8>(json.at + at)))) at++;
  return at;
}

const ONES: u64 = 0x0101010101010101, TOPS: u64 = 0x8080808080808080;

/** Eight bytes at a time up to a quote or a backslash: the lowest bit that is set in `mark` is in the first of them. */
function skipString(json: Bytes, at: i32): i32 {
  if (at >= json.size || load<u8>(json.at + at) != 34) return 0;
  const end = json.at + json.size;
  let place = json.at + at + 1;
  while (place + 8 <= end) {
    const word = load<u64>(place), quote = word ^ (34 * ONES), backslash = word ^ (92 * ONES);
    const mark = (((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash)) & TOPS;
    if (!mark) {
      place += 8;
      continue;
    }
    place += usize(ctz(mark) >> 3);
    if (load<u8>(place) == 34) return i32(place - json.at) + 1;
    place += 2;
  }
  for (; place < end; place++) {
    const letter = load<u8>(place);
    if (letter == 34) return i32(place - json.at) + 1;
    if (letter == 92) place++;
  }
  return 0;
}

function skipValue(json: Bytes, at: i32): i32 {
  let depth = 0;
  const size = json.size, start = json.at;
  while (at < size) {
    const letter = i32(load<u8>(start + at));
    if (letter == 34) {
      at = skipString(json, at);
      if (!at || !depth) return at;
      continue;
    }
    if (letter == 123 || letter == 91) depth++;
    else if (letter == 125 || letter == 93) {
      if (!depth) return at;
      if (!--depth) return at + 1;
    } else if (!depth && (letter == 44 || isSpace(letter))) return at;
    at++;
  }
  return depth ? 0 : at;
}

/** The value of the first member `name` of an object, as the text it stands as; empty: not there. */
export function jsonMember(json: Bytes, name: string): Bytes {
  let at = skipSpace(json, 0);
  if (json.letter(at) != 123) return new Bytes(0, 0);
  at++;
  while (true) {
    const key = skipSpace(json, at), keyEnd = skipString(json, key);
    if (!keyEnd) break;
    at = skipSpace(json, keyEnd);
    if (json.letter(at) != 58) break;
    const value = skipSpace(json, at + 1), valueEnd = skipValue(json, value);
    if (valueEnd <= value) break;
    if (keyEnd - key - 2 == name.length && isAt(json.at + key + 1, name)) return new Bytes(json.at + value, valueEnd - value);
    at = skipSpace(json, valueEnd);
    if (json.letter(at) != 44) break;
    at++;
  }
  return new Bytes(0, 0);
}

/** True when the ASCII text `other` stands at an address. */
function isAt(place: usize, other: string): bool {
  const from = changetype<usize>(other);
  for (let i: usize = 0, length = usize(other.length); i < length; i++) {
    if (u16(load<u8>(place + i)) != load<u16>(from + (i << 1))) return false;
  }
  return true;
}

/** The value of a nested member: "body.value". */
export function jsonPath(json: Bytes, path: string): Bytes {
  const names = path.split(".");
  for (let i = 0; i < names.length && !json.isEmpty; i++) json = jsonMember(json, names[i]);
  return json;
}

/** The content of a JSON string value, without its escapes; null for anything else. */
export function jsonText(value: Bytes): string | null {
  const size = value.size;
  if (size < 2 || value.letter(0) != 34 || value.letter(size - 1) != 34) return null;
  const end = value.at + usize(size) - 1;
  let text = "", start = value.at + 1;
  for (let place = start; place < end; place++) {
    const letter = load<u8>(place);
    if (letter == 34) return null;
    if (letter != 92) continue;
    text += String.UTF8.decodeUnsafe(start, place - start);
    if (++place == end) return null;
    const escape = load<u8>(place);
    if (escape == 117) {
      const unit = hexUnit(place + 1, end);
      if (unit < 0) return null;
      text += String.fromCharCode(unit);
      place += 4;
    } else {
      const at = "\"\\/bfnrt".indexOf(String.fromCharCode(escape));
      if (at < 0) return null;
      text += "\"\\/\b\f\n\r\t".charAt(at);
    }
    start = place + 1;
  }
  const rest = String.UTF8.decodeUnsafe(start, end - start);
  return text.length ? text + rest : rest;
}

function hexUnit(place: usize, end: usize): i32 {
  if (place + 4 > end) return -1;
  let unit = 0;
  for (let i: usize = 0; i < 4; i++) {
    const digit = hexDigit(load<u8>(place + i));
    if (digit < 0) return -1;
    unit = (unit << 4) | digit;
  }
  return unit;
}

function hexDigit(letter: i32): i32 {
  if (letter >= 48 && letter <= 57) return letter - 48;
  letter |= 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

/** A JSON number; NaN for anything else. Exact up to 2^53; what must stay as it came, copy as `Bytes`. */
export function jsonNumber(value: Bytes): f64 {
  const first = value.letter(0) == 45 ? value.letter(1) : value.letter(0);
  return first >= 48 && first <= 57 ? parseFloat(value.text) : NaN;
}

/** A quoted JSON string. What is to be sent is quicker with `write().quote(text)`. */
export function jsonQuote(text: string): string {
  let plain = true;
  for (let place = changetype<usize>(text), end = place + (usize(text.length) << 1); plain && place < end; place += 2) {
    const unit = load<u16>(place);
    plain = unit >= 32 && unit != 34 && unit != 92;
  }
  return plain ? '"' + text + '"' : quoter.begin().quote(text).text;
}

// ------------------------------------------------------------------------------------------------------------- writing

const WRITER_BYTES: usize = 4096;

/** Writes one text piece by piece: nothing is a `string` in between. Begin with `write()`; it is good until the next `write()`. */
export class Writer {
  private start: usize = 0;
  private room: usize = 0;
  private size: usize = 0;

  begin(): Writer {
    this.size = 0;
    return this;
  }

  /** Appends a `string`, `Bytes`, or a whole number in decimal digits. */
  put<T>(part: T): Writer {
    if (isString<T>()) {
      const text = changetype<string>(part);
      const at = this.reserve(3 * usize(text.length));
      this.size += String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, at);
    } else if (isInteger<T>()) {
      return this.put<string>(part.toString());
    } else {
      const bytes = changetype<Bytes>(part);
      memory.copy(this.reserve(bytes.size), bytes.at, bytes.size);
      this.size += usize(bytes.size);
    }
    return this;
  }

  /** Appends a text as a quoted JSON string. */
  quote(text: string): Writer {
    let from = changetype<usize>(text), start = from;
    const end = from + (usize(text.length) << 1);
    this.letter(34);
    for (; from < end; from += 2) {
      const unit = load<u16>(from);
      if (unit >= 32 && unit != 34 && unit != 92) continue;
      this.units(start, from);
      this.letter(92);
      if (unit >= 32) this.letter(u8(unit));
      else this.put<string>("u00").letter(48 + u8(unit >> 4)).letter(u8("0123456789abcdef".charCodeAt(unit & 15)));
      start = from + 2;
    }
    this.units(start, end);
    return this.letter(34);
  }

  /** What is written, as a string. */
  get text(): string { return String.UTF8.decodeUnsafe(this.start, this.size); }

  /** What is written, in place. */
  get bytes(): Bytes { return new Bytes(this.start, i32(this.size)); }

  private letter(code: u8): Writer {
    store<u8>(this.reserve(1), code);
    this.size++;
    return this;
  }

  private units(start: usize, end: usize): void {
    const at = this.reserve(3 * ((end - start) >> 1));
    this.size += String.UTF8.encodeUnsafe(start, i32((end - start) >> 1), at);
  }

  /** Address of the next byte, with room for so many. */
  private reserve(bytes: usize): usize {
    if (this.size + bytes > this.room) {
      this.room = max(max(this.room * 2, this.size + bytes), WRITER_BYTES);
      this.start = this.start ? heap.realloc(this.start, this.room) : heap.alloc(this.room);
    }
    return this.start + this.size;
  }
}

const writer = new Writer(), quoter = new Writer();

/** Begins a text: `stub.send(1, stub.write().put("MSG ").put(number).put(" ").put(message).bytes)`. */
export function write(): Writer { return writer.begin(); }

// --------------------------------------------------------------------------------------------------------------- lines

/** Gathers the text of a stream, which cuts it anywhere, and gives whole lines. */
export class Lines {
  private rest: string = "";

  constructor(private most: i32 = 65536) {}

  /** The lines that end here, without line feed and carriage return; null: a line is too long. */
  add(bytes: Bytes): string[] | null {
    const parts = (this.rest + bytes.text).split("\n");
    this.rest = parts.pop();
    if (this.rest.length > this.most) return null;
    for (let i = 0; i < parts.length; i++) {
      if (parts[i].endsWith("\r")) parts[i] = parts[i].substring(0, parts[i].length - 1);
    }
    return parts;
  }
}

// ------------------------------------------------------------------------------------------------- what the host calls

let onEventOfStub: (event: Event) => void = (_event: Event) => {};
let onBatchEndOfStub: () => void = () => {};

/** Called by the entry file that the kit makes. */
export function __connect(onEvent: (event: Event) => void, onBatchEnd: () => void): void {
  onEventOfStub = onEvent;
  onBatchEndOfStub = onBatchEnd;
}

export function __window(size: i32): i32 {
  if (usize(size) > windowBytes) {
    windowAt = windowAt ? heap.realloc(windowAt, size) : heap.alloc(size);
    windowBytes = size;
  }
  return i32(windowAt);
}

export function __handle(pointer: i32, length: i32): i64 {
  const start = usize(u32(pointer)), size = usize(u32(length));
  if (start != windowAt || size < CALL_BYTES || size > windowBytes) return 0;
  now = load<u64>(start);
  randomAt = start + 8;
  const end = start + size;
  let records: u32 = 0;
  for (let at = start + CALL_BYTES; at < end; records++) {
    if (end - at < RECORD_BYTES) return 0;
    const bytes = usize(load<u32>(at, 8));
    if (bytes > end - at - RECORD_BYTES) return 0;
    at += RECORD_BYTES + bytes;
  }
  bytesSinceCollected += size;
  used = 0;
  allowed = OUTPUT_BASE_BYTES + 4 * size;
  actions = 0;
  actionsAllowed = 64 * records + u32(size >> 4);
  failed = false;
  const event = new Event();
  for (let at = start + CALL_BYTES; at < end; ) {
    event.op = load<u8>(at);
    event.flag = (load<u8>(at, 1) & 1) != 0;
    event.arg = load<u32>(at, 4);
    event.bytes = new Bytes(at + RECORD_BYTES, i32(load<u32>(at, 8)));
    onEventOfStub(event);
    at += RECORD_BYTES + event.bytes.size;
  }
  onBatchEndOfStub();
  if (!outputAt) {
    outputBytes = 4096;
    outputAt = heap.alloc(outputBytes);
  }
  return failed ? 0 : (i64(outputAt) << 32) | i64(used);
}

/** Frees what calls left behind: between calls, when nothing of the stub is on the stack. */
export function __tidy(): void {
  if (++callsSinceCollected >= COLLECT_AFTER_CALLS || bytesSinceCollected >= COLLECT_AFTER_BYTES) {
    callsSinceCollected = 0;
    bytesSinceCollected = 0;
    __collect();
  }
}

/** In place of a message that nobody would read: a trap, which the host reports with the function's name. */
export function abort(_message: string | null, _file: string | null, _line: u32, _column: u32): void { unreachable(); }
