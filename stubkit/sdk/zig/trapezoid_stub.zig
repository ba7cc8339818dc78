//! The kit for stubs in Zig: the contract `trapezoid-stub/1` (docs/abi.md) without its records and memory.
//!
//! A stub is one file with
//!
//!     const stub = @import("trapezoid_stub");
//!     comptime { asm (stub.section(.{ .name = "my-stub", .version = "1.0.0" })); stub.declare(@This()); }
//!     pub fn onEvent(event: stub.Event) void { … }
//!
//! `onEvent` is called once for every event, in order, and answers by calling the actions below. With `pub fn onBatchEnd() void` it
//! is called after the last event of a call: the place to send what was gathered. Bytes of an event are valid only during the call.
//! JSON is `std.json`; `parse` and `scratch` give it memory that is free again after the call.
const std = @import("std");

pub const Op = enum(u8) {
    start = 1,
    message = 2,
    opened = 3,
    data = 4,
    closed = 5,
    timer = 6,
    http_response = 7,
    auth_token = 8,
    peer_verified = 9,
    drain = 10,
    addresses = 11,
    _,
};

pub const Event = struct {
    op: Op,
    /// Text frame, granted, verified or snapshot, by kind of event.
    flag: bool,
    /// Number of a message, channel or timer.
    arg: u32,
    bytes: []const u8,
};

pub const Kind = enum(u8) { websocket = 1, tcp_tls = 2, http = 3 };
pub const Level = enum(u32) { debug = 0, info = 1, warning = 2, @"error" = 3 };

const record_bytes = 12;
const call_bytes = 24;
const window_bytes_max = (2 << 20) + (64 << 10);
const output_bytes_max = 3 << 20;
const scratch_bytes = 1 << 20;

var window_area: [window_bytes_max]u8 align(16) = undefined;
var output: [output_bytes_max]u8 align(16) = undefined;
var scratch_area: [scratch_bytes]u8 align(16) = undefined;
var scratch_allocator = std.heap.FixedBufferAllocator.init(&scratch_area);
var used: usize = 0;
var allowed: usize = 0;
var actions: usize = 0;
var actions_allowed: usize = 0;
var has_failed = false;
var now: u64 = 0;
var random: u32 = 0;

/// Unix time of this call, in milliseconds.
pub fn nowMs() u64 {
    return now;
}

/// The same within one call, fresh in the next.
pub fn randomU32() u32 {
    return random;
}

pub fn actionsLeft() usize {
    return actions_allowed - actions;
}

// Actions.

pub fn status(text: []const u8) void {
    act(10, 0, 0, &.{text});
}

/// `request` is JSON: `endpoint`, and what docs/abi.md lists besides.
pub fn open(channel: u32, kind: Kind, request: []const u8) void {
    act(1, @intFromEnum(kind), channel, &.{request});
}

/// One text frame, or some bytes of a stream, made of all these parts.
pub fn send(channel: u32, parts: []const []const u8) void {
    act(2, 1, channel, parts);
}

pub fn sendBinary(channel: u32, parts: []const []const u8) void {
    act(2, 0, channel, parts);
}

pub fn close(channel: u32) void {
    act(3, 0, channel, &.{});
}

/// Hands one message to the bus of the host; number 0: the far end gives none.
pub fn deliver(number: u32, message: []const u8) void {
    act(4, 0, number, &.{message});
}

/// 0 cancels.
pub fn setTimer(timer: u32, delay_ms: u32) void {
    var delay: [4]u8 = undefined;
    std.mem.writeInt(u32, &delay, delay_ms, .little);
    act(5, 0, timer, &.{&delay});
}

pub fn requestAuthToken(channel: u32, challenge: []const u8) void {
    act(6, 0, channel, &.{challenge});
}

pub fn verifyPeer(channel: u32, token: []const u8) void {
    act(7, 0, channel, &.{token});
}

/// Every message up to this number is the far end's responsibility from now on.
pub fn accepted(number: u32) void {
    act(8, 0, number, &.{});
}

/// `why` is a status, a code word and text: "404 no-route nobody is there".
pub fn refused(number: u32, why: []const u8) void {
    act(9, 0, number, &.{why});
}

pub fn log(level: Level, text: []const u8) void {
    act(11, 0, @intFromEnum(level), &.{text});
}

pub fn peerStream(name: []const u8) void {
    act(12, 0, 0, &.{name});
}

fn act(op: u8, flags: u8, arg: u32, parts: []const []const u8) void {
    var size: usize = 0;
    for (parts) |part| size += part.len;
    const end = used + record_bytes + size;
    if (has_failed or actions >= actions_allowed or end > allowed or end > output.len) {
        has_failed = true; // a half-written answer must not be acted upon: the whole call fails
        return;
    }
    const record = output[used..end];
    record[0..4].* = .{ op, flags, 0, 0 };
    std.mem.writeInt(u32, record[4..8], arg, .little);
    std.mem.writeInt(u32, record[8..12], @intCast(size), .little);
    var at: usize = record_bytes;
    for (parts) |part| {
        @memcpy(record[at..][0..part.len], part);
        at += part.len;
    }
    used = end;
    actions += 1;
}

// JSON, lines, numbers.

/// Memory that is free again after the call.
pub fn scratch() std.mem.Allocator {
    return scratch_allocator.allocator();
}

/// A JSON text as a value of type `T`; members that `T` does not have are ignored. Null: it does not fit.
pub fn parse(comptime T: type, json: []const u8) ?T {
    return std.json.parseFromSliceLeaky(T, scratch(), json, .{ .ignore_unknown_fields = true }) catch null;
}

/// A value as JSON text. Null: the call has no memory left.
pub fn stringify(value: anytype) ?[]const u8 {
    return std.json.Stringify.valueAlloc(scratch(), value, .{}) catch null;
}

/// Decimal digits of a number, in memory of the call.
pub fn decimal(number: u32) []const u8 {
    return std.fmt.allocPrint(scratch(), "{d}", .{number}) catch "";
}

/// Gathers the text of a stream, which cuts it anywhere, and gives whole lines.
pub fn Lines(comptime capacity: usize) type {
    return struct {
        buffer: [capacity]u8 = undefined,
        size: usize = 0,

        /// Adds bytes; false: a line is too long. Then take lines with `next` until it gives null.
        pub fn add(self: *@This(), bytes: []const u8) bool {
            if (bytes.len > capacity - self.size) return false;
            @memcpy(self.buffer[self.size..][0..bytes.len], bytes);
            self.size += bytes.len;
            return true;
        }

        /// The next whole line without its end, in memory of the call.
        pub fn next(self: *@This()) ?[]const u8 {
            const end = std.mem.indexOfScalar(u8, self.buffer[0..self.size], '\n') orelse return null;
            const line = scratch().dupe(u8, std.mem.trimEnd(u8, self.buffer[0..end], "\r")) catch return null;
            std.mem.copyForwards(u8, self.buffer[0..], self.buffer[end + 1 .. self.size]);
            self.size -= end + 1;
            return line;
        }
    };
}

// What the host calls.

/// What a module says of itself. `configuration` is the JSON Schema of its settings, `events` a JSON array of optional events,
/// `kind` what it is for if it is no protostub: "connector".
pub const Options = struct {
    name: []const u8,
    version: []const u8,
    configuration: []const u8 = "",
    events: []const u8 = "",
    kind: []const u8 = "",
};

/// The custom section by which hosts recognise the module, for `asm` at the top of the stub.
pub fn section(comptime options: Options) []const u8 {
    @setEvalBranchQuota(100_000);
    const configuration = if (options.configuration.len > 0) ", \"configuration\": " ++ options.configuration else "";
    const events = if (options.events.len > 0) ", \"events\": " ++ options.events else "";
    const kind = if (options.kind.len > 0) ", \"kind\": \"" ++ options.kind ++ "\"" else "";
    const json = "{\"abi\": 1, \"name\": \"" ++ options.name ++ "\", \"version\": \"" ++ options.version ++ "\"" ++
        configuration ++ events ++ kind ++ "}";
    var escaped: []const u8 = "";
    for (json) |letter| escaped = escaped ++ switch (letter) {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\n' => " ",
        else => &[_]u8{letter},
    };
    return ".section \".custom_section.trapezoid-stub\",\"\",@\n.ascii \"" ++ escaped ++ "\"\n.text\n";
}

/// Makes the exports of the contract, which call `Stub.onEvent`.
pub fn declare(comptime Stub: type) void {
    const exported = struct {
        fn window(size: u32) callconv(.c) u32 {
            return if (size <= window_area.len) @intFromPtr(&window_area) else 0;
        }

        fn handle(pointer: u32, length: u32) callconv(.c) u64 {
            if (pointer != @intFromPtr(&window_area) or length < call_bytes or length > window_area.len) return 0;
            const buffer = window_area[0..length];
            const records = countRecords(buffer[call_bytes..]) orelse return 0;
            now = std.mem.readInt(u64, buffer[0..8], .little);
            random = std.mem.readInt(u32, buffer[8..12], .little);
            used = 0;
            allowed = (256 << 10) + 4 * @as(usize, length);
            actions = 0;
            actions_allowed = 64 * records + length / 16;
            has_failed = false;
            scratch_allocator.reset();
            var at: usize = call_bytes;
            while (at < buffer.len) {
                const size = std.mem.readInt(u32, buffer[at + 8 ..][0..4], .little);
                const bytes = buffer[at + record_bytes ..][0..size];
                Stub.onEvent(.{
                    .op = @enumFromInt(buffer[at]),
                    .flag = buffer[at + 1] & 1 != 0,
                    .arg = std.mem.readInt(u32, buffer[at + 4 ..][0..4], .little),
                    .bytes = bytes,
                });
                at += record_bytes + size;
            }
            if (@hasDecl(Stub, "onBatchEnd")) Stub.onBatchEnd();
            return if (has_failed) 0 else @as(u64, @intFromPtr(&output)) << 32 | used;
        }
    };
    @export(&exported.window, .{ .name = "window" });
    @export(&exported.handle, .{ .name = "handle" });
}

fn countRecords(records: []const u8) ?usize {
    var at: usize = 0;
    var count: usize = 0;
    while (at < records.len) : (count += 1) {
        if (records.len - at < record_bytes) return null;
        const size = std.mem.readInt(u32, records[at + 8 ..][0..4], .little);
        if (size > records.len - at - record_bytes) return null;
        at += record_bytes + size;
    }
    return count;
}
