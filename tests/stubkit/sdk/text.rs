mod trapezoid_stub;

use trapezoid_stub::{json, Event, Host, Level, Lines, Stub};

struct Text {
    lines: Lines,
}

impl Default for Text {
    fn default() -> Self {
        Text { lines: Lines::new(16) }
    }
}

fn answer(message: &[u8]) -> String {
    let text = json::path(message, "body.text").and_then(json::text);
    let half = json::path(message, "body.number").and_then(json::number).map(|value| (value / 2.0) as i64);
    let text = text.map_or("null".to_string(), |text| json::quote(&text));
    format!("{{\"text\":{},\"half\":{}}}", text, half.map_or("null".to_string(), |half| half.to_string()))
}

impl Stub for Text {
    fn on_event(&mut self, event: Event, host: &mut Host) {
        match event {
            Event::Start(_) => host.status("live"),
            Event::Message { number, bytes } => host.deliver(number, answer(bytes)),
            Event::Data { bytes, .. } => match self.lines.add(bytes) {
                Some(lines) => lines.iter().for_each(|line| host.log(Level::Info, line)),
                None => host.status("failed too-long"),
            },
            _ => {}
        }
    }
}

trapezoid_stub::declare!(Text, name: "text", version: "1", configuration: "{\"type\": \"object\"}", kind: "connector");
