/* A stub whose node knows it by its query: no handshake. Each message makes sure of the line by a promise. */
class PromiseStub {
  constructor(address, bus, config) {
    this.address = address;
    this.bus = bus;
    this.config = config;
    this.line = null;
    bus.addListener('*', (message) => {
      if (message.body && message.body.via === this.address) return;
      this.connect().then(() => this.line.send(JSON.stringify(message)));
    });
  }

  connect() {
    return new Promise((resolve) => {
      if (this.line && this.line.readyState === WebSocket.OPEN) return resolve();
      this.line = new WebSocket(`${this.config.messagingnode}?runtimeURL=${encodeURIComponent(this.config.runtimeURL)}`);
      this.line.addEventListener('open', () => {
        this.report('connected');
        resolve();
      });
      this.line.addEventListener('message', ({ data }) => {
        const message = JSON.parse(data);
        message.body = { ...message.body, via: this.address };
        this.bus.postMessage(message);
      });
      this.line.addEventListener('close', () => this.report('disconnected'));
    });
  }

  disconnect() {
    this.line.close();
  }

  report(value) {
    this.bus.postMessage({ type: 'update', from: this.address, to: `${this.address}/status`, body: { value } });
  }
}

export { PromiseStub as default };
