//! translate: reads the members of each message, and writes them again under other names. See translate.js.
const std = @import("std");
const stub = @import("trapezoid_stub");

comptime {
    asm (stub.section(.{ .name = "translate", .version = "1.0.0" }));
    stub.declare(@This());
}

const Identity = struct { idp: ?[]const u8 = null };
const Body = struct { identity: Identity = .{}, value: ?[]const u8 = null };
const Message = struct { id: u32, type: []const u8, from: []const u8, to: []const u8, body: Body = .{} };

fn onMessage(number: u32, json: []const u8) void {
    const message = stub.parse(Message, json) orelse return stub.refused(number, "400 bad-header");
    const text = stub.stringify(.{
        .seq = message.id,
        .verb = message.type,
        .source = message.from,
        .target = message.to,
        .realm = message.body.identity.idp,
        .content = message.body.value,
    }) orelse return stub.refused(number, "413 too-large");
    stub.send(1, &.{text});
    stub.accepted(number);
}

pub fn onEvent(event: stub.Event) void {
    switch (event.op) {
        .start => {
            stub.status("created");
            stub.open(1, .websocket, "{\"endpoint\":\"mn\",\"text\":true}");
        },
        .opened => stub.status("live"),
        .message => onMessage(event.arg, event.bytes),
        else => {},
    }
}
