//! translate: reads the members of each message, and writes them again under other names. See translate.js.
mod trapezoid_stub;

use trapezoid_stub::{json, Event, Host, Kind, Stub};

#[derive(Default)]
struct Translate;

trapezoid_stub::declare!(Translate, name: "translate", version: "1.0.0");

/// The frame in parts: a value that is only passed on stays the text that it stands as.
fn translated(message: &[u8]) -> Option<[&[u8]; 13]> {
    let body = json::member(message, "body")?;
    Some([
        b"{\"seq\":", json::member(message, "id")?,
        b",\"verb\":", json::member(message, "type")?,
        b",\"source\":", json::member(message, "from")?,
        b",\"target\":", json::member(message, "to")?,
        b",\"realm\":", json::path(body, "identity.idp").unwrap_or(b"null"),
        b",\"content\":", json::member(body, "value").unwrap_or(b"null"),
        b"}",
    ])
}

impl Stub for Translate {
    fn on_event(&mut self, event: Event, host: &mut Host) {
        match event {
            Event::Start(_) => {
                host.status("created");
                host.open(1, Kind::WebSocket, r#"{"endpoint":"mn","text":true}"#);
            }
            Event::Opened { .. } => host.status("live"),
            Event::Message { number, bytes } => match translated(bytes) {
                Some(parts) => {
                    host.send(1, &parts);
                    host.accepted(number);
                }
                None => host.refused(number, "400 bad-header"),
            },
            _ => {}
        }
    }
}
