// @NAME@: speaks a small protocol of text frames over a WebSocket. Make it yours.
//
//     <- HELLO <16 to 64 letters>         -> TOKEN <token that proves the host's node>
//     <- WELCOME <token of this side>
//    <-> MSG <number> <message>           our numbers are the host's; theirs are theirs
//    <-> OK <number>                      everything up to that number arrived
//     <- NO <number> <status word text>   this one is not wanted
import * as stub from "./trapezoid_stub";

export const STUB_NAME: string = "@NAME@";
export const STUB_VERSION: string = "0.1.0";

const CHANNEL: u32 = 1;
const RECONNECT_TIMER: u32 = 1;
const RECONNECT_MS: u32 = 1000;
const RECONNECT_MS_MAX: u32 = 60000;

enum Line { Closed, Opening, Greeted, Signing, Proving, Verifying, Live }

let state: Line = Line.Closed;
let isDraining: bool = false;
let delayMs: u32 = RECONNECT_MS;
let highestSent: u32 = 0;

function openLine(): void {
  state = Line.Opening;
  stub.open(CHANNEL, stub.WEBSOCKET, '{"endpoint":"mn","text":true}');
}

/** The line is gone: the host keeps what was not accepted, and hands it over again once we are live. */
function lose(why: string): void {
  state = Line.Closed;
  stub.status("disconnected " + why.substring(0, 200));
  if (isDraining) return;
  stub.setTimer(RECONNECT_TIMER, delayMs + (stub.randomU32() % (delayMs / 4)));
  delayMs = min(delayMs * 2, RECONNECT_MS_MAX);
}

function hangUp(why: string): void {
  stub.close(CHANNEL);
  lose(why);
}

function onAnswer(word: stub.Bytes, rest: stub.Bytes): bool {
  const space = rest.find(32);
  const number = (space < 0 ? rest : rest.slice(0, space)).decimal;
  const words = space < 0 ? rest.slice(rest.size) : rest.slice(space + 1);
  if (number < 1) return false;
  if (word.equals("MSG")) {
    if (words.isEmpty) return false;
    stub.deliver(words);
    stub.send(CHANNEL, "OK " + number.toString());
    return true;
  }
  if (number > i64(highestSent)) return false; // nobody can answer what was never sent
  if (word.equals("OK")) {
    stub.accepted(u32(number));
    return true;
  }
  if (!word.equals("NO") || words.isEmpty) return false;
  stub.refused(u32(number), words);
  return true;
}

/** One frame of the far end; false: it speaks something else, or out of turn. */
function onFrame(frame: stub.Bytes): bool {
  const space = frame.find(32);
  if (space < 0) return false;
  const word = frame.slice(0, space), rest = frame.slice(space + 1);
  if (state == Line.Live) return onAnswer(word, rest);
  if (state == Line.Greeted && word.equals("HELLO") && rest.size >= 16 && rest.size <= 64) {
    state = Line.Signing;
    stub.requestAuthToken(CHANNEL, rest);
    return true;
  }
  if (state == Line.Proving && word.equals("WELCOME") && !rest.isEmpty) {
    state = Line.Verifying;
    stub.verifyPeer(CHANNEL, rest);
    return true;
  }
  return false;
}

function onVerdict(event: stub.Event): void {
  if (event.op == stub.AUTH_TOKEN && state == Line.Signing && event.flag) {
    state = Line.Proving;
    stub.send(CHANNEL, "TOKEN " + event.bytes.text);
  } else if (event.op == stub.PEER_VERIFIED && state == Line.Verifying && event.flag) {
    state = Line.Live;
    highestSent = 0;
    delayMs = RECONNECT_MS;
    stub.status("live");
  } else if (state == Line.Signing || state == Line.Verifying) {
    hangUp(event.bytes.text);
  }
}

function onMessage(number: u32, message: stub.Bytes): void {
  stub.send(CHANNEL, stub.write().put("MSG ").put(number).put(" ").put(message).bytes);
  highestSent = max(highestSent, number);
}

export function onEvent(event: stub.Event): void {
  if (event.op == stub.START) {
    stub.status("created");
    openLine();
  } else if (event.op == stub.OPENED && state == Line.Opening) {
    state = Line.Greeted;
    stub.status("in-progress");
  } else if (event.op == stub.MESSAGE && state == Line.Live) {
    onMessage(event.arg, event.bytes);
  } else if (event.op == stub.DATA && state >= Line.Greeted) {
    if (!onFrame(event.bytes)) hangUp("protocol-error");
  } else if (event.op == stub.AUTH_TOKEN || event.op == stub.PEER_VERIFIED) {
    onVerdict(event);
  } else if (event.op == stub.CLOSED && state != Line.Closed) {
    lose(event.bytes.text);
  } else if (event.op == stub.TIMER && state == Line.Closed && !isDraining) {
    openLine();
  } else if (event.op == stub.DRAIN) {
    isDraining = true;
    if (state != Line.Closed) hangUp("drained");
  }
}
