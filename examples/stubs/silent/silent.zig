//! silent: says `live`, takes every message and answers none. The contract of docs/abi.md in Zig, without a kit.
const std = @import("std");

comptime {
    asm (
        \\.section ".custom_section.trapezoid-stub","",@
        \\.ascii "{\"abi\": 1, \"name\": \"silent\", \"version\": \"1.0.0\"}"
    );
}

var events: [3 << 20]u8 align(8) = undefined;
var actions: [1 << 16]u8 = undefined;
var used: u32 = 0;

export fn window(size: u32) u32 {
    return if (size <= events.len) @intFromPtr(&events) else 0;
}

/// A `u32` of the event buffer.
fn number(at: usize) u32 {
    return std.mem.readInt(u32, events[at..][0..4], .little);
}

/// One action more: `u8 op | u8 flags | u16 0 | u32 arg | u32 length | bytes`.
fn put(op: u8, arg: u32, text: []const u8) void {
    const record = actions[used..][0 .. 12 + text.len];
    record[0..4].* = .{ op, 0, 0, 0 };
    std.mem.writeInt(u32, record[4..8], arg, .little);
    std.mem.writeInt(u32, record[8..12], @intCast(text.len), .little);
    @memcpy(record[12..], text);
    used += @intCast(record.len);
}

export fn handle(_: u32, length: u32) u64 {
    used = 0;
    var at: usize = 24; // after the time and the random bytes
    while (at + 12 <= length) : (at += 12 + number(at + 8)) {
        switch (events[at]) {
            1 => put(10, 0, "live"), // start: status
            2 => put(8, number(at + 4), ""), // message: accepted
            else => {},
        }
    }
    return @as(u64, @intFromPtr(&actions)) << 32 | used;
}
