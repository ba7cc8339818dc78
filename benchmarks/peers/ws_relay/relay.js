// A plain broadcast relay: every message goes to every other client. No addresses, policy, answers or bounds.
// Prints `ready {"port": …}` when it listens.
"use strict";

const { WebSocket, WebSocketServer } = require("ws");

const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false }, () => {
  process.stdout.write(`ready ${JSON.stringify({ port: server.address().port })}\n`);
});

server.on("connection", (sender) => {
  sender.on("message", (data, isBinary) => {
    for (const client of server.clients) {
      if (client !== sender && client.readyState === WebSocket.OPEN) {
        client.send(data, { binary: isBinary });
      }
    }
  });
  sender.on("error", () => sender.terminate());
});
