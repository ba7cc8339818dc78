"""Bytes on connections: sockets with TLS, WebSocket framing, HTTP/1.1 on both sides, and judging network addresses."""
