/*
 * @NAME@: a protostub in JavaScript, as original runtimes know it. Make it yours.
 *
 * Each text frame is one message, both ways; the first one opens the session: {"type":"hello","from":"<address of the stub>"}.
 * What such a stub finds at its host, and what the host does for it: docs/javascript-stubs.md.
 */
class Stub {
  constructor(address, bus, config) {
    this.address = address;
    this.bus = bus;
    this.url = config.url; // stands for the endpoint `mn`
    this.line = null;
    this.waiting = [];
    bus.addListener("*", (message) => this.send(message));
    this.report("created"); // then the host calls `connect`
  }

  connect() {
    this.report("in-progress");
    const line = new WebSocket(this.url);
    line.addEventListener("open", () => {
      this.line = line;
      line.send(JSON.stringify({ type: "hello", from: this.address }));
      this.report("live");
      for (const message of this.waiting.splice(0)) this.send(message);
    });
    line.addEventListener("message", ({ data }) => this.receive(data));
    line.addEventListener("close", () => {
      this.line = null;
      this.report("disconnected"); // then the host asks to connect again, later each time
    });
  }

  disconnect() {
    if (this.line) this.line.close();
  }

  send(message) {
    if (message.body && message.body.via === this.address) return; // it came from here
    if (this.line) this.line.send(JSON.stringify(message));
    else if (this.waiting.length < 1000) this.waiting.push(message);
  }

  receive(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch (error) {
      return; // the far end speaks something else
    }
    if (!message || typeof message !== "object" || !message.to) return;
    message.body = { ...message.body, via: this.address };
    this.bus.postMessage(message);
  }

  report(value) {
    this.bus.postMessage({ type: "update", from: this.address, to: `${this.address}/status`, body: { value } });
  }
}

export default function activate(url, bus, config) {
  return { name: "@NAME@", instance: new Stub(url, bus, config) };
}
