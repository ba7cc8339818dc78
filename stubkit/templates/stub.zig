//! @NAME@: speaks a small protocol of text frames over a WebSocket. Make it yours.
//!
//!     <- HELLO <16 to 64 letters>         -> TOKEN <token that proves the host's node>
//!     <- WELCOME <token of this side>
//!    <-> MSG <number> <message>           our numbers are the host's; theirs are theirs
//!    <-> OK <number>                      everything up to that number arrived
//!     <- NO <number> <status word text>   this one is not wanted
const std = @import("std");
const stub = @import("trapezoid_stub");

comptime {
    asm (stub.section(.{ .name = "@NAME@", .version = "0.1.0" }));
    stub.declare(@This());
}

const channel = 1;
const reconnect_timer = 1;
const reconnect_ms = 1000;
const reconnect_ms_max = 60_000;
const Line = enum { closed, opening, greeted, signing, proving, verifying, live };

var state: Line = .closed;
var is_draining = false;
var delay_ms: u32 = reconnect_ms;
var highest_sent: u32 = 0;

fn openLine() void {
    state = .opening;
    stub.open(channel, .websocket, "{\"endpoint\":\"mn\",\"text\":true}");
}

/// The line is gone: the host keeps what was not accepted, and hands it over again once we are live.
fn lose(why: []const u8) void {
    state = .closed;
    const text = std.mem.concat(stub.scratch(), u8, &.{ "disconnected ", why[0..@min(why.len, 200)] }) catch "disconnected";
    stub.status(text);
    if (is_draining) return;
    stub.setTimer(reconnect_timer, delay_ms + stub.randomU32() % (delay_ms / 4));
    delay_ms = @min(delay_ms * 2, reconnect_ms_max);
}

fn hangUp(why: []const u8) void {
    stub.close(channel);
    lose(why);
}

/// Takes the first word off the front of `text`.
fn takeWord(text: *[]const u8) []const u8 {
    const end = std.mem.indexOfScalar(u8, text.*, ' ') orelse text.len;
    const word = text.*[0..end];
    text.* = text.*[@min(end + 1, text.len)..];
    return word;
}

fn numberOf(word: []const u8) ?u32 {
    for (word) |letter| if (!std.ascii.isDigit(letter)) return null;
    const number = std.fmt.parseInt(u32, word, 10) catch return null;
    return if (number == 0) null else number;
}

fn onAnswer(word: []const u8, words: []const u8) bool {
    var rest = words;
    const number = numberOf(takeWord(&rest)) orelse return false;
    if (std.mem.eql(u8, word, "MSG")) {
        if (rest.len == 0) return false;
        stub.deliver(0, rest);
        stub.send(channel, &.{ "OK ", stub.decimal(number) });
        return true;
    }
    if (number > highest_sent) return false; // nobody can answer what was never sent
    if (std.mem.eql(u8, word, "OK")) {
        stub.accepted(number);
        return true;
    }
    if (!std.mem.eql(u8, word, "NO") or rest.len == 0) return false;
    stub.refused(number, rest);
    return true;
}

/// One frame of the far end; false: it speaks something else, or out of turn.
fn onFrame(frame: []const u8) bool {
    var text = frame;
    const word = takeWord(&text);
    if (state == .live) return onAnswer(word, text);
    if (state == .greeted and std.mem.eql(u8, word, "HELLO") and text.len >= 16 and text.len <= 64) {
        state = .signing;
        stub.requestAuthToken(channel, text);
        return true;
    }
    if (state == .proving and std.mem.eql(u8, word, "WELCOME") and text.len > 0) {
        state = .verifying;
        stub.verifyPeer(channel, text);
        return true;
    }
    return false;
}

fn onVerdict(event: stub.Event) void {
    if (event.op == .auth_token and state == .signing and event.flag) {
        state = .proving;
        stub.send(channel, &.{ "TOKEN ", event.bytes });
    } else if (event.op == .peer_verified and state == .verifying and event.flag) {
        state = .live;
        highest_sent = 0;
        delay_ms = reconnect_ms;
        stub.status("live");
    } else if (state == .signing or state == .verifying) {
        hangUp(event.bytes);
    }
}

pub fn onEvent(event: stub.Event) void {
    switch (event.op) {
        .start => {
            stub.status("created");
            openLine();
        },
        .opened => if (state == .opening) {
            state = .greeted;
            stub.status("in-progress");
        },
        .message => if (state == .live) {
            stub.send(channel, &.{ "MSG ", stub.decimal(event.arg), " ", event.bytes });
            highest_sent = @max(highest_sent, event.arg);
        },
        .data => {
            const is_open = @intFromEnum(state) >= @intFromEnum(Line.greeted);
            if (is_open and !onFrame(event.bytes)) hangUp("protocol-error");
        },
        .auth_token, .peer_verified => onVerdict(event),
        .closed => if (state != .closed) lose(event.bytes),
        .timer => if (state == .closed and !is_draining) openLine(),
        .drain => {
            is_draining = true;
            if (state != .closed) hangUp("drained");
        },
        else => {},
    }
}
