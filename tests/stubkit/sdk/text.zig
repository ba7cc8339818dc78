const stub = @import("trapezoid_stub");

comptime {
    asm (stub.section(.{ .name = "text", .version = "1", .kind = "connector", .configuration = "{\"type\": \"object\"}" }));
    stub.declare(@This());
}

var lines: stub.Lines(16) = .{};
const Body = struct { text: ?[]const u8 = null, number: ?f64 = null };
const Message = struct { body: Body = .{} };

fn answer(number: u32, json: []const u8) void {
    const message = stub.parse(Message, json) orelse Message{};
    const half: ?u32 = if (message.body.number) |value| @trunc(value / 2) else null;
    stub.deliver(number, stub.stringify(.{ .text = message.body.text, .half = half }) orelse return);
}

pub fn onEvent(event: stub.Event) void {
    switch (event.op) {
        .start => stub.status("live"),
        .message => answer(event.arg, event.bytes),
        .data => {
            if (!lines.add(event.bytes)) stub.status("failed too-long");
            while (lines.next()) |line| stub.log(.info, line);
        },
        else => {},
    }
}
