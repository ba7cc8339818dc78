/* A stub with sessions: `open` once, `re-open` after a lost line. When that is refused it reports `failed`, and never tries again. */
class SessionStub {
  constructor(address, bus, config) {
    if (!address || !bus || !config || !config.url) throw new Error('address, bus and config.url are needed');
    this._address = address;
    this._bus = bus;
    this._config = config;
    this._session = config.runtimeURL;
    this._count = 0;
    this._hasToken = false;
    bus.addListener('*', (message) => {
      console.log('[SessionStub] out', message);
      this._withLine(() => {
        if (message.body && message.body.via === this._address) return;
        message.body = message.body || {};
        message.body.via = this._address;
        this._line.send(JSON.stringify(message));
      });
    });
    this._report('created');
  }

  connect() { this._withLine(() => {}); }

  disconnect() {
    this._report('disconnected');
    if (this._line) this._ask('close', () => {});
  }

  _report(value, desc) {
    const body = { value };
    if (desc) body.desc = desc;
    this._bus.postMessage({ type: 'update', from: this._address, to: `${this._address}/status`, body });
  }

  _ask(type, callback) {
    const id = ++this._count;
    this._answered = (reply) => {
      if (reply.id !== id) return;
      if (reply.body.code !== 200) return this._report('failed', reply.body.desc);
      if (reply.body.runtimeToken) {
        this._hasToken = true;
        this._session = `${this._config.runtimeURL}/${reply.body.runtimeToken}`;
      }
      this._report('live');
      callback();
    };
    this._line.send(JSON.stringify({ id, type, from: this._session, to: 'mn:/session' }));
  }

  _whenReady(callback) {
    if (this._line.readyState === 1) callback();
    else setTimeout(() => this._whenReady(callback));
  }

  _withLine(callback) {
    if (this._line) return this._whenReady(callback);
    this._line = new WebSocket(this._config.url);
    this._line.onopen = () => {
      this._report('in-progress');
      this._ask(this._hasToken ? 're-open' : 'open', callback);
    };
    this._line.onmessage = (event) => {
      const message = JSON.parse(event.data);
      console.log('[SessionStub] in', message);
      if (message.from === 'mn:/session') return this._answered && this._answered(message);
      message.body = message.body || {};
      message.body.via = this._address;
      this._bus.postMessage(message);
    };
    this._line.onclose = (event) => {
      delete this._line;
      this._report('disconnected', `code ${event.code}`);
    };
  }
}

export default function activate(url, bus, config) {
  return { name: 'SessionStub', instance: new SessionStub(url, bus, config) };
}
