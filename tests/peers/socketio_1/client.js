// A runtime on socket.io 1.x, driven over standard input and output by tests, one JSON object per line.
//
// In:  {"do": "say", "message": {…}} or {"do": "leave"}
// Out: {"event": "connect" | "upgrade" | "message" | "pong" | "disconnect" | "error", …}
// The one argument is a JSON object: "url", "options" for socket.io, and "mute": true for a client that never pings.
'use strict';

const io = require('socket.io-client');
const { url, options, mute } = JSON.parse(process.argv[2]);

const tell = (event, more) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n');

const socket = io(url, { reconnection: false, ...options });
socket.on('connect', () => {
  const engine = socket.io.engine;
  if (mute) {
    engine.ping = () => {};
    engine.setPing = engine.onHeartbeat = () => {};
    clearTimeout(engine.pingIntervalTimer);
    clearTimeout(engine.pingTimeoutTimer);
  }
  tell('connect', { transport: engine.transport.name, sid: engine.id });
  engine.on('upgrade', (transport) => tell('upgrade', { transport: transport.name }));
});
socket.on('message', (data) => tell('message', { data, transport: socket.io.engine.transport.name }));
socket.on('pong', () => tell('pong'));
socket.on('error', (error) => tell('error', { text: String(error) }));
socket.on('connect_error', (error) => tell('error', { text: String(error) }));
socket.on('disconnect', (reason) => tell('disconnect', { reason }));

require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { do: what, message } = JSON.parse(line);
  if (what === 'say') {
    socket.emit('message', JSON.stringify(message));  // as the published stub does: the JSON text, not the object
  } else if (what === 'leave') {
    socket.disconnect();
  }
}).on('close', () => process.exit(0));
