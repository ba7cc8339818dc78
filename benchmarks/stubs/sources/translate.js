/* translate: reads the members of each message, and writes them again under other names. The same in each language. */
export default function activate(address, bus, config) {
  let line;
  bus.addListener("*", ({ id, type, from, to, body }) => {
    const realm = body.identity && body.identity.idp;
    line.send(JSON.stringify({ seq: id, verb: type, source: from, target: to, realm, content: body.value }));
  });
  return {
    instance: {
      connect() {
        line = new WebSocket(config.url);
        line.onopen = () => bus.postMessage({ type: "update", from: address, to: `${address}/status`, body: { value: "live" } });
      },
    },
  };
}
