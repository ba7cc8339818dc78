"""Connections of runtimes: the listener, WebSocket, HTTPS, socket.io, the Matrix dialects, MQTT."""
