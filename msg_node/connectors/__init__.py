"""How runtimes connect: the listener, WebSocket, HTTPS, socket.io, the Matrix dialects, MQTT."""
