"""The pure part: framing and parsing as bytes in, bytes out. No sockets, no clock, no randomness, no logging."""
