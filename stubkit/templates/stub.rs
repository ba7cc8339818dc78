//! @NAME@: speaks a small protocol of text frames over a WebSocket. Make it yours.
//!
//!     <- HELLO <16 to 64 letters>         -> TOKEN <token that proves the host's node>
//!     <- WELCOME <token of this side>
//!    <-> MSG <number> <message>           our numbers are the host's; theirs are theirs
//!    <-> OK <number>                      everything up to that number arrived
//!     <- NO <number> <status word text>   this one is not wanted
mod trapezoid_stub;

use trapezoid_stub::{Event, Host, Kind, Stub};

const CHANNEL: u32 = 1;
const RECONNECT_TIMER: u32 = 1;
const RECONNECT_MS: u32 = 1000;
const RECONNECT_MS_MAX: u32 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Closed,
    Opening,
    Greeted,
    Signing,
    Proving,
    Verifying,
    Live,
}

struct Mine {
    line: Line,
    is_draining: bool,
    delay_ms: u32,
    highest_sent: u32,
}

impl Default for Mine {
    fn default() -> Self {
        Mine { line: Line::Closed, is_draining: false, delay_ms: RECONNECT_MS, highest_sent: 0 }
    }
}

trapezoid_stub::declare!(Mine, name: "@NAME@", version: "0.1.0");

/// The first word of a text, and what follows it.
fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&letter| letter == b' ') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, b""),
    }
}

fn number_of(word: &[u8]) -> Option<u32> {
    if !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok().filter(|&number| number > 0)
}

impl Mine {
    fn open_line(&mut self, host: &mut Host) {
        self.line = Line::Opening;
        host.open(CHANNEL, Kind::WebSocket, r#"{"endpoint":"mn","text":true}"#);
    }

    /// The line is gone: the host keeps what was not accepted, and hands it over again once we are live.
    fn lose(&mut self, why: &[u8], host: &mut Host) {
        self.line = Line::Closed;
        host.status([b"disconnected ", &why[..why.len().min(200)]].concat());
        if self.is_draining {
            return;
        }
        host.set_timer(RECONNECT_TIMER, self.delay_ms + host.random_u32() % (self.delay_ms / 4));
        self.delay_ms = (self.delay_ms * 2).min(RECONNECT_MS_MAX);
    }

    fn hang_up(&mut self, why: &[u8], host: &mut Host) {
        host.close(CHANNEL);
        self.lose(why, host);
    }

    fn on_answer(&self, word: &[u8], rest: &[u8], host: &mut Host) -> Option<()> {
        let (digits, rest) = first_word(rest);
        let number = number_of(digits)?;
        match word {
            b"MSG" if !rest.is_empty() => {
                host.deliver(0, rest);
                host.send(CHANNEL, &[b"OK ", digits]);
            }
            // Nobody can answer what was never sent.
            b"OK" if number <= self.highest_sent => host.accepted(number),
            b"NO" if number <= self.highest_sent && !rest.is_empty() => host.refused(number, rest),
            _ => return None,
        }
        Some(())
    }

    /// One frame of the far end; `None`: it speaks something else, or out of turn.
    fn on_frame(&mut self, frame: &[u8], host: &mut Host) -> Option<()> {
        let (word, rest) = first_word(frame);
        match (self.line, word) {
            (Line::Live, _) => return self.on_answer(word, rest, host),
            (Line::Greeted, b"HELLO") if (16..=64).contains(&rest.len()) => {
                self.line = Line::Signing;
                host.request_auth_token(CHANNEL, rest);
            }
            (Line::Proving, b"WELCOME") if !rest.is_empty() => {
                self.line = Line::Verifying;
                host.verify_peer(CHANNEL, rest);
            }
            _ => return None,
        }
        Some(())
    }
}

impl Stub for Mine {
    fn on_event(&mut self, event: Event, host: &mut Host) {
        match event {
            Event::Start(_) => {
                host.status("created");
                self.open_line(host);
            }
            Event::Opened { .. } if self.line == Line::Opening => {
                self.line = Line::Greeted;
                host.status("in-progress");
            }
            Event::Message { number, bytes } if self.line == Line::Live => {
                host.send(CHANNEL, &[b"MSG ", number.to_string().as_bytes(), b" ", bytes]);
                self.highest_sent = self.highest_sent.max(number);
            }
            Event::Data { bytes, .. } if self.line >= Line::Greeted => {
                if self.on_frame(bytes, host).is_none() {
                    self.hang_up(b"protocol-error", host);
                }
            }
            Event::AuthToken { is_granted: true, bytes, .. } if self.line == Line::Signing => {
                self.line = Line::Proving;
                host.send(CHANNEL, &[b"TOKEN ", bytes]);
            }
            Event::PeerVerified { is_verified: true, .. } if self.line == Line::Verifying => {
                self.line = Line::Live;
                self.highest_sent = 0;
                self.delay_ms = RECONNECT_MS;
                host.status("live");
            }
            Event::AuthToken { bytes: why, .. } | Event::PeerVerified { reason: why, .. }
                if self.line == Line::Signing || self.line == Line::Verifying =>
            {
                self.hang_up(why, host);
            }
            Event::Closed { reason, .. } if self.line != Line::Closed => self.lose(reason, host),
            Event::Timer(_) if self.line == Line::Closed && !self.is_draining => self.open_line(host),
            Event::Drain => {
                self.is_draining = true;
                if self.line != Line::Closed {
                    self.hang_up(b"drained", host);
                }
            }
            _ => {}
        }
    }
}
