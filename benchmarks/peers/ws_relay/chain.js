// One relay of two in series. No policy, answers or bounds.
// `node chain.js [NEXT_HOP]`: with a next hop every message goes there; without, to the client that has its address.
// Clients connect to /ws?address=…. Prints `ready {"port": …}` when it listens.
"use strict";

const { WebSocket, WebSocketServer } = require("ws");

const clients = new Map();

function listen(next) {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false }, () => {
    process.stdout.write(`ready ${JSON.stringify({ port: server.address().port })}\n`);
  });
  server.on("connection", (client, request) => {
    const address = new URL(request.url, "ws://localhost").searchParams.get("address");
    clients.set(address, client);
    client.on("message", (data) => {
      const target = next ?? clients.get(JSON.parse(data).to);
      if (target !== undefined && target.readyState === WebSocket.OPEN) {
        target.send(data, { binary: false });
      }
    });
    client.on("close", () => clients.delete(address));
    client.on("error", () => client.terminate());
  });
}

if (process.argv.length > 2) {
  const next = new WebSocket(process.argv[2], { perMessageDeflate: false });
  next.on("open", () => listen(next));
} else {
  listen(undefined);
}
