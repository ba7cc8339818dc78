//! The kit for stubs in Rust: the contract `trapezoid-stub/1` (docs/abi.md) without its records and memory.
//!
//! A stub is one file with
//!
//!     mod trapezoid_stub;
//!     use trapezoid_stub::{Event, Host, Stub};
//!
//!     #[derive(Default)]
//!     struct Mine { … }
//!     impl Stub for Mine {
//!         fn on_event(&mut self, event: Event, host: &mut Host) { … }
//!     }
//!     trapezoid_stub::declare!(Mine, name: "my-stub", version: "1.0.0");
//!
//! `on_event` is called once for every event, in order, and answers by calling the actions of `host`. `on_batch_end` is called after
//! the last event of a call: the place to send what was gathered. Bytes of an event are valid only during the call. Behind `version`
//! may stand, in this order, `configuration:` (the JSON Schema of the settings), `events:` (a JSON array of optional events) and
//! `kind:` ("connector" if it is no protostub), all of them texts.
//!
//! `std` is there, without files, sockets, threads and clocks. A panic is a trap, which ends the instance.
#![allow(dead_code)]

/// What happened. Channels, messages and timers are numbers.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The first event: the settings, as JSON.
    Start(&'a [u8]),
    Message { number: u32, bytes: &'a [u8] },
    Opened { channel: u32, protocol: &'a [u8] },
    Data { channel: u32, is_text: bool, bytes: &'a [u8] },
    /// A code word, then optionally a space and text.
    Closed { channel: u32, reason: &'a [u8] },
    Timer(u32),
    /// JSON with status and headers, a line feed, the body.
    HttpResponse { channel: u32, bytes: &'a [u8] },
    /// The token that proves the host's node, or why there is none.
    AuthToken { channel: u32, is_granted: bool, bytes: &'a [u8] },
    PeerVerified { channel: u32, is_verified: bool, reason: &'a [u8] },
    Drain,
    /// Lines `+address` and `-address`; a snapshot replaces what came before.
    Addresses { is_snapshot: bool, lines: &'a [u8] },
    /// Of a later version of the contract.
    Other(u8),
}

#[derive(Clone, Copy)]
pub enum Kind {
    WebSocket = 1,
    TcpTls = 2,
    Http = 3,
}

#[derive(Clone, Copy)]
pub enum Level {
    Debug = 0,
    Info = 1,
    Warning = 2,
    Error = 3,
}

/// A stub: one instance of it lives as long as its module does.
pub trait Stub: Default {
    fn on_event(&mut self, event: Event, host: &mut Host);

    /// Called after the last event of each call.
    fn on_batch_end(&mut self, _host: &mut Host) {}
}

const RECORD_BYTES: usize = 12;
const CALL_BYTES: usize = 24;
const OUTPUT_BASE_BYTES: usize = 256 << 10;
const KEPT_BYTES: usize = 1 << 20; // room that is kept from call to call

/// Time, randomness and actions of one call.
#[derive(Default)]
pub struct Host {
    output: Vec<u8>,
    allowed: usize,
    actions: usize,
    actions_allowed: usize,
    has_failed: bool,
    now_ms: u64,
    random: u32,
}

impl Host {
    /// Unix time of this call, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The same within one call, fresh in the next.
    pub fn random_u32(&self) -> u32 {
        self.random
    }

    pub fn actions_left(&self) -> usize {
        self.actions_allowed - self.actions
    }

    pub fn status(&mut self, text: impl AsRef<[u8]>) {
        self.act(10, 0, 0, &[text.as_ref()]);
    }

    /// `request` is JSON: `endpoint`, and what docs/abi.md lists besides.
    pub fn open(&mut self, channel: u32, kind: Kind, request: impl AsRef<[u8]>) {
        self.act(1, kind as u8, channel, &[request.as_ref()]);
    }

    /// One text frame, or some bytes of a stream, made of all these parts.
    pub fn send(&mut self, channel: u32, parts: &[&[u8]]) {
        self.act(2, 1, channel, parts);
    }

    pub fn send_binary(&mut self, channel: u32, parts: &[&[u8]]) {
        self.act(2, 0, channel, parts);
    }

    pub fn close(&mut self, channel: u32) {
        self.act(3, 0, channel, &[]);
    }

    /// Hands one message to the bus of the host; number 0: the far end gives none.
    pub fn deliver(&mut self, number: u32, message: impl AsRef<[u8]>) {
        self.act(4, 0, number, &[message.as_ref()]);
    }

    /// 0 cancels.
    pub fn set_timer(&mut self, timer: u32, delay_ms: u32) {
        self.act(5, 0, timer, &[&delay_ms.to_le_bytes()]);
    }

    pub fn request_auth_token(&mut self, channel: u32, challenge: &[u8]) {
        self.act(6, 0, channel, &[challenge]);
    }

    pub fn verify_peer(&mut self, channel: u32, token: &[u8]) {
        self.act(7, 0, channel, &[token]);
    }

    /// Every message up to this number is the far end's responsibility from now on.
    pub fn accepted(&mut self, number: u32) {
        self.act(8, 0, number, &[]);
    }

    /// `why` is a status, a code word and text: "404 no-route nobody is there".
    pub fn refused(&mut self, number: u32, why: impl AsRef<[u8]>) {
        self.act(9, 0, number, &[why.as_ref()]);
    }

    pub fn log(&mut self, level: Level, text: impl AsRef<[u8]>) {
        self.act(11, 0, level as u32, &[text.as_ref()]);
    }

    pub fn peer_stream(&mut self, name: &str) {
        self.act(12, 0, 0, &[name.as_bytes()]);
    }

    fn act(&mut self, op: u8, flags: u8, arg: u32, parts: &[&[u8]]) {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if self.has_failed || self.actions >= self.actions_allowed || self.output.len() + RECORD_BYTES + size > self.allowed {
            self.has_failed = true; // a half-written answer must not be acted upon: the whole call fails
            return;
        }
        self.actions += 1;
        self.output.extend_from_slice(&[op, flags, 0, 0]);
        self.output.extend_from_slice(&arg.to_le_bytes());
        self.output.extend_from_slice(&(size as u32).to_le_bytes());
        for part in parts {
            self.output.extend_from_slice(part);
        }
    }
}

/// Reading and writing JSON. Values are the text that they stand as, so that what is only passed on stays as it came.
pub mod json {
    fn skip_space(json: &[u8], mut at: usize) -> usize {
        while at < json.len() && matches!(json[at], b' ' | b'\n' | b'\r' | b'\t') {
            at += 1;
        }
        at
    }

    /// Eight bytes at a time up to a quote or a backslash: the lowest bit that is set in `mark` is in the first of them.
    fn skip_string(json: &[u8], at: usize) -> Option<usize> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        if json.get(at) != Some(&b'"') {
            return None;
        }
        let mut place = at + 1;
        while let Some(eight) = json.get(place..place + 8) {
            let word = u64::from_le_bytes(eight.try_into().ok()?);
            let (quote, backslash) = (word ^ (0x22 * ONES), word ^ (0x5c * ONES));
            let mark = ((quote.wrapping_sub(ONES) & !quote) | (backslash.wrapping_sub(ONES) & !backslash)) & (0x80 * ONES);
            if mark == 0 {
                place += 8;
                continue;
            }
            place += mark.trailing_zeros() as usize >> 3;
            if json[place] == b'"' {
                return Some(place + 1);
            }
            place += 2;
        }
        while place < json.len() {
            match json[place] {
                b'"' => return Some(place + 1),
                b'\\' => place += 2,
                _ => place += 1,
            }
        }
        None
    }

    fn skip_value(json: &[u8], mut at: usize) -> Option<usize> {
        let mut depth = 0u32;
        while at < json.len() {
            match json[at] {
                b'"' => {
                    at = skip_string(json, at)?;
                    if depth == 0 {
                        return Some(at);
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 0 => return Some(at),
                b'}' | b']' if depth == 1 => return Some(at + 1),
                b'}' | b']' => depth -= 1,
                b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return Some(at),
                _ => {}
            }
            at += 1;
        }
        if depth == 0 {
            Some(at)
        } else {
            None
        }
    }

    /// The value of the first member `name` of an object, as the text it stands as.
    pub fn member<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut at = skip_space(json, 0);
        if json.get(at) != Some(&b'{') {
            return None;
        }
        loop {
            let key = skip_space(json, at + 1);
            let key_end = skip_string(json, key)?;
            at = skip_space(json, key_end);
            if json.get(at) != Some(&b':') {
                return None;
            }
            let value = skip_space(json, at + 1);
            let value_end = skip_value(json, value)?;
            if value_end == value {
                return None;
            }
            if &json[key + 1..key_end - 1] == name.as_bytes() {
                return Some(&json[value..value_end]);
            }
            at = skip_space(json, value_end);
            if json.get(at) != Some(&b',') {
                return None;
            }
        }
    }

    /// The value of a nested member: "body.value".
    pub fn path<'a>(json: &'a [u8], path: &str) -> Option<&'a [u8]> {
        path.split('.').try_fold(json, member)
    }

    /// The content of a JSON string value, without its escapes.
    pub fn text(value: &[u8]) -> Option<String> {
        let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let mut units: Vec<u16> = Vec::new(); // of escapes that follow each other: pairs are one character
        let mut text = String::with_capacity(inner.len());
        let mut at = 0;
        while at < inner.len() {
            let plain = at + inner[at..].iter().position(|&letter| letter == b'\\').unwrap_or(inner.len() - at);
            if inner[at..plain].contains(&b'"') {
                return None;
            }
            if plain > at {
                text.extend(char::decode_utf16(units.drain(..)).map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)));
                text.push_str(&String::from_utf8_lossy(&inner[at..plain]));
                at = plain;
                continue;
            }
            let unit = match inner.get(at + 1)? {
                b'u' => {
                    let digits = inner.get(at + 2..at + 6)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    at += 4;
                    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
                }
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                b'b' => 8,
                b'f' => 12,
                &same @ (b'"' | b'\\' | b'/') => u16::from(same),
                _ => return None,
            };
            units.push(unit);
            at += 2;
        }
        text.extend(char::decode_utf16(units).map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)));
        Some(text)
    }

    /// A JSON number. Exact up to 2^53; what must stay as it came, copy as bytes.
    pub fn number(value: &[u8]) -> Option<f64> {
        let first = value.strip_prefix(b"-").unwrap_or(value).first()?;
        if !first.is_ascii_digit() {
            return None;
        }
        std::str::from_utf8(value).ok()?.parse().ok()
    }

    /// A quoted JSON string.
    pub fn quote(text: &str) -> String {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        let mut start = 0;
        for (at, letter) in text.bytes().enumerate() {
            if letter >= 32 && letter != b'"' && letter != b'\\' {
                continue;
            }
            quoted.push_str(&text[start..at]);
            start = at + 1;
            if letter < 32 {
                quoted.push_str("\\u00");
                quoted.push(char::from(b'0' + (letter >> 4)));
                quoted.push(char::from(b"0123456789abcdef"[usize::from(letter & 15)]));
            } else {
                quoted.push('\\');
                quoted.push(char::from(letter));
            }
        }
        quoted.push_str(&text[start..]);
        quoted.push('"');
        quoted
    }
}

/// Gathers the text of a stream, which cuts it anywhere, and gives whole lines.
pub struct Lines {
    rest: Vec<u8>,
    most: usize,
}

impl Lines {
    /// `most`: the longest line, in bytes.
    pub fn new(most: usize) -> Self {
        Lines { rest: Vec::new(), most }
    }

    /// The lines that end here, without line feed and carriage return; `None`: a line is too long.
    pub fn add(&mut self, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.rest.extend_from_slice(bytes);
        let mut lines: Vec<Vec<u8>> = self.rest.split(|&letter| letter == b'\n').map(<[u8]>::to_vec).collect();
        self.rest = lines.pop().unwrap_or_default();
        if self.rest.len() > self.most || lines.iter().any(|line| line.len() > self.most) {
            return None;
        }
        for line in &mut lines {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        Some(lines)
    }
}

// What the host calls.

/// A stub with what it needs for its calls. `declare!` makes the only one.
pub struct Instance<S> {
    stub: Option<S>,
    host: Host,
    window: Vec<u8>,
}

impl<S: Stub> Instance<S> {
    pub const fn new() -> Self {
        let host = Host {
            output: Vec::new(),
            allowed: 0,
            actions: 0,
            actions_allowed: 0,
            has_failed: false,
            now_ms: 0,
            random: 0,
        };
        Instance { stub: None, host, window: Vec::new() }
    }

    pub fn window(&mut self, size: usize) -> usize {
        self.window.resize(size, 0);
        self.window.as_ptr() as usize
    }

    pub fn handle(&mut self, pointer: usize, length: usize) -> u64 {
        if pointer != self.window.as_ptr() as usize || length < CALL_BYTES || length > self.window.len() {
            return 0;
        }
        let buffer = &self.window[..length];
        let records = match count_records(buffer) {
            Some(count) => count,
            None => return 0,
        };
        let host = &mut self.host;
        host.output.clear();
        host.output.shrink_to(KEPT_BYTES);
        host.allowed = OUTPUT_BASE_BYTES + 4 * length;
        host.actions = 0;
        host.actions_allowed = 64 * records + length / 16;
        host.has_failed = false;
        host.now_ms = u64::from(read_u32(buffer, 0)) | u64::from(read_u32(buffer, 4)) << 32;
        host.random = read_u32(buffer, 8);
        let stub = self.stub.get_or_insert_with(S::default);
        let mut at = CALL_BYTES;
        while at < length {
            let end = at + RECORD_BYTES + read_u32(buffer, at + 8) as usize;
            stub.on_event(event_of(buffer[at], buffer[at + 1] & 1 != 0, read_u32(buffer, at + 4), &buffer[at + RECORD_BYTES..end]), host);
            at = end;
        }
        stub.on_batch_end(host);
        if host.has_failed {
            return 0;
        }
        (host.output.as_ptr() as usize as u64) << 32 | host.output.len() as u64
    }
}

fn read_u32(buffer: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([buffer[at], buffer[at + 1], buffer[at + 2], buffer[at + 3]])
}

/// How many records stand behind the head of a call; `None`: it is not well formed.
fn count_records(buffer: &[u8]) -> Option<usize> {
    let (mut at, mut count) = (CALL_BYTES, 0);
    while at < buffer.len() {
        if buffer.len() - at < RECORD_BYTES {
            return None;
        }
        let size = read_u32(buffer, at + 8) as usize;
        if size > buffer.len() - at - RECORD_BYTES {
            return None;
        }
        at += RECORD_BYTES + size;
        count += 1;
    }
    Some(count)
}

fn event_of(op: u8, flag: bool, arg: u32, bytes: &[u8]) -> Event {
    match op {
        1 => Event::Start(bytes),
        2 => Event::Message { number: arg, bytes },
        3 => Event::Opened { channel: arg, protocol: bytes },
        4 => Event::Data { channel: arg, is_text: flag, bytes },
        5 => Event::Closed { channel: arg, reason: bytes },
        6 => Event::Timer(arg),
        7 => Event::HttpResponse { channel: arg, bytes },
        8 => Event::AuthToken { channel: arg, is_granted: flag, bytes },
        9 => Event::PeerVerified { channel: arg, is_verified: flag, reason: bytes },
        10 => Event::Drain,
        11 => Event::Addresses { is_snapshot: flag, lines: bytes },
        other => Event::Other(other),
    }
}

/// The bytes of a text as an array, for the custom section.
pub const fn bytes_of<const SIZE: usize>(text: &str) -> [u8; SIZE] {
    let from = text.as_bytes();
    let mut bytes = [0; SIZE];
    let mut at = 0;
    while at < SIZE {
        bytes[at] = from[at];
        at += 1;
    }
    bytes
}

/// Makes the exports of the contract, and the section by which hosts recognise the module. The host makes one call at a time.
macro_rules! declare {
    ($stub:ty, name: $name:literal, version: $version:literal $(, configuration: $configuration:literal)?
        $(, events: $events:literal)? $(, kind: $kind:literal)? $(,)?) => {
        const STUB_SECTION: &str = concat!(
            "{\"abi\": 1, \"name\": \"", $name, "\", \"version\": \"", $version, "\""
            $(, ", \"configuration\": ", $configuration)? $(, ", \"events\": ", $events)? $(, ", \"kind\": \"", $kind, "\"")?, "}"
        );

        #[used]
        #[link_section = "trapezoid-stub"]
        static STUB_SECTION_BYTES: [u8; STUB_SECTION.len()] = trapezoid_stub::bytes_of(STUB_SECTION);

        static mut STUB_INSTANCE: trapezoid_stub::Instance<$stub> = trapezoid_stub::Instance::new();

        #[no_mangle]
        pub extern "C" fn window(size: i32) -> i32 {
            // SAFETY: a module has one thread, and its host calls nothing while a call of it runs.
            let instance = unsafe { &mut *core::ptr::addr_of_mut!(STUB_INSTANCE) };
            instance.window(size as u32 as usize) as i32
        }

        #[no_mangle]
        pub extern "C" fn handle(pointer: i32, length: i32) -> i64 {
            // SAFETY: as above.
            let instance = unsafe { &mut *core::ptr::addr_of_mut!(STUB_INSTANCE) };
            instance.handle(pointer as u32 as usize, length as u32 as usize) as i64
        }
    };
}
pub(crate) use declare;
