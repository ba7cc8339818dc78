/*
 * The protostub of a Trapezoid node for runtimes and applications: browsers and Node.js 20, without dependencies. @version 1.0.0
 *
 * One file that can be loaded in every way: `<script src>`, `import "./trapezoid-runtime-stub.js"`, `require`, or `eval` as original
 * runtimes do. It defines `activate`, the factory of original runtimes, and `trapezoid` = { activate, connect, TrapezoidError }.
 *
 *     activate(stubURL, bus, { url: "wss://mn.a.example/ws", runtimeURL: "runtime://a.example/rt-1" })
 *
 *     const node = await trapezoid.connect({ url: "wss://mn.a.example/ws", runtimeURL: "runtime://a.example/rt-1" });
 *     const [mine] = await node.allocate("comm");
 *     await node.subscribe("comm://b.example/42/changes", (message) => console.log(message.body));
 *
 * How it is used, and every option: README.md beside it. The session: docs/sessions.md.
 */
var activate = (function () {
  "use strict";

  const SESSION = "mn:/session";
  const OPEN_SECONDS = 10;
  const REQUEST_SECONDS = 30;
  const PING_SECONDS = 30;
  const PASSING = [408, 409, 429, 500, 503, 504]; // refusals of a session that are worth another try
const FIRST_PAUSE_MS = 1000;
  const LONGEST_PAUSE_MS = 30000;
  const MAX_WAITING = 1000;
  const TAKEN_OVER = 4001;
  const FRAME_BYTES = 4 << 20;
  const FRAGMENT_COST = 64; // so that empty fragments fill the bound as well

  /** A refusal, or the end of a connection: `code` and `reason` as docs/troubleshooting.md lists them. */
  class TrapezoidError extends Error {
    constructor(code, reason, description, value) {
      super(`${code} ${reason}${description ? `: ${description}` : ""}`);
      this.name = "TrapezoidError";
      this.code = code;
      this.reason = reason;
      this.value = value;
    }
  }

  function errorOf(body) {
    const text = body.description || body.desc || "";
    return new TrapezoidError(body.code, body.reason || "", text, body.value);
  }

  // ------------------------------------------------------------------------------------------------- WebSocket of Node.js

  /** RFC 6455 for Node.js 20, which has no WebSocket of its own; as much of the interface of browsers as is used here. */
  class NodeWebSocket {
    constructor(url, modules, options) {
      this.readyState = 0;
      this._fragments = [];
      this._size = 0;
      this._received = Buffer.alloc(0);
      const target = new URL(url);
      const isPlain = target.protocol === "ws:";
      const key = modules.crypto.randomBytes(16).toString("base64");
      this._crypto = modules.crypto;
      this._accept = modules.crypto.createHash("sha1").update(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
      const request = (isPlain ? modules.http : modules.https).request({
        ...options,
        host: target.hostname.replace(/^\[|\]$/g, ""),
        port: target.port || (isPlain ? 80 : 443),
        path: target.pathname + target.search,
        headers: { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key },
      });
      request.on("upgrade", (response, socket, head) => this._upgraded(response, socket, head));
      request.on("response", (response) => this._ended(1006, `HTTP ${response.statusCode}`));
      request.on("error", (error) => this._ended(1006, error.message));
      request.end();
      this._request = request;
    }

    _upgraded(response, socket, head) {
      if (response.headers["sec-websocket-accept"] !== this._accept || this.readyState === 3) {
        socket.destroy();
        this._ended(1006, "not a WebSocket");
        return;
      }
      this._socket = socket;
      this.readyState = 1;
      socket.setNoDelay(true);
      socket.on("data", (data) => this._receive(data));
      socket.on("error", (error) => this._ended(1006, error.message));
      socket.on("close", () => this._ended(1006, "the connection ended"));
      this.onopen();
      if (head.length) this._receive(head);
    }

    _receive(data) {
      this._received = this._received.length ? Buffer.concat([this._received, data]) : data;
      while (this.readyState < 3 && this._frame());
    }

    /** Takes one whole frame off the front; false when there is none. */
    _frame() {
      const raw = this._received;
      if (raw.length < 2) return false;
      let size = raw[1] & 127, at = 2;
      if (size === 126) {
        if (raw.length < 4) return false;
        size = raw.readUInt16BE(2);
        at = 4;
      } else if (size === 127) {
        if (raw.length < 10) return false;
        size = Number(raw.readBigUInt64BE(2));
        at = 10;
      }
      const isControl = (raw[0] & 8) !== 0;
      if (size > FRAME_BYTES || raw[0] & 0x70 || raw[1] & 0x80 || (isControl && (size > 125 || !(raw[0] & 128)))) {
        this.close(1002, "frame");
        this._socket.destroy();
        return false;
      }
      if (raw.length < at + size) return false;
      this._received = raw.subarray(at + size);
      this._take(raw[0] & 15, (raw[0] & 128) !== 0, raw.subarray(at, at + size));
      return true;
    }

    _take(opcode, isLast, payload) {
      if (opcode === 9) {
        if (this._socket.writableLength < FRAME_BYTES) this._write(10, payload);
      } else if (opcode === 8) {
        if (this.readyState === 1) this._write(8, payload.subarray(0, 2));
        const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
        this._socket.end();
        this._ended(code, payload.subarray(2).toString());
      } else if (opcode < 3) {
        this._fragments.push(payload);
        this._size += payload.length + (isLast ? 0 : FRAGMENT_COST);
        if (this._size > FRAME_BYTES) this._socket.destroy();
        else if (isLast) {
          const whole = Buffer.concat(this._fragments);
          this._fragments = [];
          this._size = 0;
          this.onmessage({ data: whole.toString("utf8") });
        }
      }
    }

    _write(opcode, payload) {
      const head = Buffer.alloc(payload.length < 126 ? 2 : payload.length < 65536 ? 4 : 10);
      head[0] = 0x80 | opcode;
      if (payload.length < 126) head[1] = 0x80 | payload.length;
      else if (payload.length < 65536) {
        head[1] = 0x80 | 126;
        head.writeUInt16BE(payload.length, 2);
      } else {
        head[1] = 0x80 | 127;
        head.writeBigUInt64BE(BigInt(payload.length), 2);
      }
      const mask = this._crypto.randomBytes(4), masked = Buffer.from(payload);
      for (let i = 0; i < masked.length; i++) masked[i] ^= mask[i & 3];
      this._socket.write(Buffer.concat([head, mask, masked]));
    }

    send(text) {
      if (this.readyState === 1) this._write(1, Buffer.from(text, "utf8"));
    }

    close(code = 1000, reason = "") {
      if (this.readyState === 1) {
        this.readyState = 2;
        const payload = Buffer.alloc(2 + Buffer.byteLength(reason));
        payload.writeUInt16BE(code, 0);
        payload.write(reason, 2);
        this._write(8, payload);
        const end = setTimeout(() => this._socket.destroy(), 3000);
        if (end.unref) end.unref();
      } else if (this.readyState === 0) {
        this._request.destroy();
        this._ended(1006, "closed");
      }
    }

    _ended(code, reason) {
      if (this.readyState === 3) return;
      this.readyState = 3;
      this.onclose({ code, reason });
    }
  }

  /** A module of Node.js; code that was evaluated has no `import` of its own. */
  async function builtIn(name) {
    return typeof process.getBuiltinModule === "function" ? process.getBuiltinModule(name) : import(name);
  }

  async function openSocket(url, options) {
    if (typeof WebSocket === "function") return new WebSocket(url);
    const [http, https, crypto] = await Promise.all(["node:http", "node:https", "node:crypto"].map(builtIn));
    return new NodeWebSocket(url, { http, https, crypto }, options);
  }

  // --------------------------------------------------------------------------------------------------------------- session

  /**
   * One session of a runtime, over one connection after the other.
   *
   * `onStatus(value, description)` hears `in-progress`, `live`, `disconnected`, `failed`; `onMessage(message)` everything that is no answer
   * to a request of the session. A lost connection is made again, and proves itself with the session's token, so that addresses and
   * subscriptions stay; when the node does not know the session any more, a new one is opened.
   */
  class Session {
    constructor(options, onStatus, onMessage) {
      if (!options || !options.url || !options.runtimeURL) throw new TypeError("url and runtimeURL are needed");
      this.url = options.url;
      this.runtimeURL = options.runtimeURL;
      this.isLive = false;
      this.isResumed = false;
      this._options = options;
      this._onStatus = onStatus;
      this._onMessage = onMessage;
      this._requests = new Map();
      this._lastId = 0;
      this._token = "";
      this._pauseMs = FIRST_PAUSE_MS;
      this._isWanted = false;
      this._socket = null;
    }

    /** Connects, unless that is under way. */
    connect() {
      if (this._isWanted) return;
      this._isWanted = true;
      this._attempt();
    }

    /** Ends the session; what it held is free. */
    async close() {
      const wasLive = this.isLive, socket = this._socket;
      this._isWanted = false;
      clearTimeout(this._pause);
      if (socket && wasLive) {
        const address = `${this.runtimeURL}/${this._token}`;
        await this.request({ type: "close", from: address, to: SESSION }, 3).catch(() => undefined);
      }
      this._token = "";
      if (socket) socket.close(1000, "close");
      this._lost(socket, "disconnected", "closed");
    }

    /** Sends a message as it is. */
    send(message) {
      if (!this._socket || this._socket.readyState !== 1) throw new TrapezoidError(503, "not-connected");
      this._socket.send(JSON.stringify(message));
    }

    /** Sends a request; resolves with the body of its final answer, whatever its code. */
    request(message, seconds = REQUEST_SECONDS) {
      const id = `s${++this._lastId}`;
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          this._requests.delete(id);
          reject(new TrapezoidError(504, "timeout", `no answer to ${message.type} for ${message.to}`));
        }, seconds * 1000);
        this._requests.set(id, { resolve, reject, timer });
        try {
          this.send({ id, ...message });
        } catch (error) {
          clearTimeout(timer);
          this._requests.delete(id);
          reject(error);
        }
      });
    }

    async _attempt() {
      this._onStatus("in-progress", "");
      let socket;
      try {
        socket = await openSocket(this.url, this._options.tls);
      } catch (error) {
        this._lost(null, "disconnected", String(error.message || error));
        return;
      }
      if (!this._isWanted) {
        socket.onopen = socket.onclose = socket.onerror = socket.onmessage = () => undefined;
        socket.close();
        return;
      }
      this._socket = socket;
      const patience = setTimeout(() => socket.close(), OPEN_SECONDS * 1000);
      socket.onopen = () => this._begin(socket).finally(() => clearTimeout(patience));
      socket.onmessage = (event) => this._take(socket, event.data);
      socket.onerror = () => undefined; // `close` follows
      socket.onclose = (event) => {
        clearTimeout(patience);
        this._closed(socket, event.code, event.reason);
      };
    }

    /** Opens the session, or re-opens it with the proof of the last one. */
    async _begin(socket) {
      try {
        const credentials = await this._credentials();
        if (socket !== this._socket) return;
        let answer = null;
        if (this._token) {
          const from = `${this.runtimeURL}/${this._token}`;
          answer = await this.request({ type: "re-open", from, to: SESSION, ...credentials }, OPEN_SECONDS);
          if (PASSING.includes(answer.code)) {
            if (socket === this._socket) this._refused(socket, answer); // the node cannot now; the session is still there
            return;
          }
        }
        this.isResumed = answer !== null && answer.code === 200;
        if (!this.isResumed) {
          this._token = "";
          answer = await this.request({ type: "open", from: this.runtimeURL, to: SESSION, ...credentials }, OPEN_SECONDS);
        }
        if (socket !== this._socket) return;
        if (answer.code !== 200) this._refused(socket, answer);
        else this._opened(answer);
      } catch (error) {
        socket.close();
        this._lost(socket, "disconnected", String(error.message || error));
      }
    }

    async _credentials() {
      const given = this._options.credentials;
      const found = typeof given === "function" ? await given() : given;
      if (!found) return {};
      return { body: { credentials: typeof found === "string" ? { kind: "bearer", token: found } : found } };
    }

    _opened(answer) {
      this._token = answer.runtimeToken || this._token;
      this._pauseMs = FIRST_PAUSE_MS;
      this.isLive = true;
      this._ping = setInterval(() => this._probe(), (this._options.pingSeconds || PING_SECONDS) * 1000);
      if (this._ping.unref) this._ping.unref();
      this._onStatus("live", "");
    }

    /** Asks for a sign of life: a connection that has died silently is found so. */
    _probe() {
      const socket = this._socket;
      this.request({ type: "ping", from: `${this.runtimeURL}/${this._token}`, to: SESSION }, OPEN_SECONDS).catch(() => {
        if (socket !== this._socket || !socket) return;
        socket.close();
        this._lost(socket, "disconnected", "the node is silent");
      });
    }

    /** `open` was refused: a reason that passes is waited for, any other ends the attempts. */
    _refused(socket, answer) {
      const waits = answer.value && Number(answer.value.retryAfter);
      const text = errorOf(answer).message;
      const passes = PASSING.includes(answer.code);
      if (passes && waits) this._pauseMs = Math.min(Math.max(waits * 1000, FIRST_PAUSE_MS), 10 * LONGEST_PAUSE_MS);
      if (!passes) this._isWanted = false;
      this._lost(socket, passes ? "disconnected" : "failed", text);
      socket.close();
    }

    _closed(socket, code, reason) {
      if (code === TAKEN_OVER && socket === this._socket) {
        this._isWanted = false; // two runtimes of one name would take it from each other for ever
        this._token = "";
        this._lost(socket, "failed", "taken-over");
        return;
      }
      this._lost(socket, "disconnected", reason || `closed ${code}`);
    }

    _lost(socket, value, description) {
      if (socket !== this._socket) return;
      this._socket = null;
      this.isLive = false;
      clearInterval(this._ping);
      for (const waiting of this._requests.values()) {
        clearTimeout(waiting.timer);
        waiting.reject(new TrapezoidError(502, "link-lost", description));
      }
      this._requests.clear();
      this._onStatus(value, description);
      if (!this._isWanted) return;
      const pause = this._pauseMs * (0.75 + Math.random() / 2);
      this._pauseMs = Math.min(this._pauseMs * 2, LONGEST_PAUSE_MS);
      this._pause = setTimeout(() => this._attempt(), pause);
    }

    _take(socket, data) {
      if (socket !== this._socket) return;
      let message;
      try {
        message = JSON.parse(data);
      } catch (error) {
        return;
      }
      if (message === null || typeof message !== "object") return;
      const type = typeof message.type === "string" ? message.type.toLowerCase() : "";
      const waiting = type === "response" || type === "pong" ? this._requests.get(message.id) : undefined;
      if (!waiting) {
        this._onMessage(message);
        return;
      }
      const body = message.body || {};
      const code = typeof body.code === "number" ? body.code : 200;
      if (code < 200) return; // provisional
      clearTimeout(waiting.timer);
      this._requests.delete(message.id);
      waiting.resolve({ ...body, code });
    }
  }

  // ----------------------------------------------------------------------------------------------------- original runtimes

  /** The stub as original runtimes know it: everything between their bus and one session. */
  class RuntimeStub {
    constructor(stubURL, bus, config) {
      this._stubURL = stubURL;
      this._bus = bus;
      this._waiting = [];
      this._failure = "";
      this._most = config.maxBuffer || MAX_WAITING;
      this._session = new Session(
        config,
        (value, description) => this._status(value, description),
        (message) => this._deliver(message),
      );
      bus.addListener("*", (message) => this._send(message));
      this._post("created", "");
    }

    connect() {
      this._failure = "";
      this._session.connect();
    }

    disconnect() {
      return this._session.close();
    }

    get isLive() {
      return this._session.isLive;
    }

    _post(value, description) {
      const body = description ? { value, desc: description } : { value };
      this._bus.postMessage({ type: "update", from: this._stubURL, to: `${this._stubURL}/status`, body });
    }

    _status(value, description) {
      if (value === "live") {
        for (const message of this._waiting.splice(0)) this._pass(message);
      } else if (value === "failed") {
        this._failure = description || value;
        for (const message of this._waiting.splice(0)) this._refuse(message, 503, "not-connected", description);
      }
      this._post(value, description);
    }

    /** A message of the runtime for the node; it waits while there is no session. */
    _send(message) {
      if (message.body && message.body.via === this._stubURL) return; // it came from here
      if (message.from === this._stubURL) return; // a status of ours
      if (this._session.isLive) this._pass(message);
      else if (this._failure) this._refuse(message, 503, "not-connected", this._failure);
      else if (this._waiting.length < this._most) {
        this._waiting.push(message);
        this._session.connect();
      } else {
        this._refuse(message, 503, "overload", "too many messages wait for the node");
      }
    }

    _pass(message) {
      try {
        this._session.send(message);
      } catch (error) {
        this._refuse(message, 503, "not-connected", error.message);
      }
    }

    _refuse(message, code, reason, description) {
      if (message.id === undefined || message.type === "response") return;
      const body = { code, reason, desc: description, via: this._stubURL };
      this._bus.postMessage({ id: message.id, type: "response", from: message.to, to: message.from, body });
    }

    _deliver(message) {
      const body = message.body && typeof message.body === "object" ? message.body : {};
      this._bus.postMessage({ ...message, body: { ...body, via: this._stubURL } });
    }
  }

  function makeStub(stubURL, bus, config) {
    return { name: "TrapezoidRuntimeStub", instance: new RuntimeStub(stubURL, bus, config) };
  }

  // ---------------------------------------------------------------------------------------------------- plain applications

  /** A runtime of an application's own. Made by `connect`. */
  class Connection {
    constructor(options) {
      this.runtimeURL = options.runtimeURL;
      this._domain = options.domain || new URL(options.runtimeURL.replace(/^[a-z-]+:/, "http:")).host;
      this._subscriptions = new Map();
      this._listeners = { message: [], status: [] };
      this._session = new Session(
        options,
        (value, description) => this._status(value, description),
        (message) => this._message(message),
      );
    }

    get isLive() {
      return this._session.isLive;
    }

    /** `on("message", f)` hears messages that no subscription is for, `on("status", f)` the states of the session. */
    on(kind, listener) {
      this._listeners[kind].push(listener);
      return this;
    }

    /** Sends a request; resolves with the body of its answer, rejects with a TrapezoidError for every code from 300 on. */
    async request(type, to, body, { from = this.runtimeURL, seconds = REQUEST_SECONDS } = {}) {
      const answer = await this._session.request(body === undefined ? { type, from, to } : { type, from, to, body }, seconds);
      if (answer.code >= 300) throw errorOf(answer);
      return answer;
    }

    /** Sends an event: nobody answers. */
    send(type, to, body, { from = this.runtimeURL } = {}) {
      this._session.send({ type, from, to, body });
    }

    /** Answers a request that came. */
    respond(request, body) {
      this._session.send({ id: request.id, type: "response", from: request.to, to: request.from, body: { code: 200, ...body } });
    }

    /** New addresses of this runtime, for example of the scheme `comm`. */
    async allocate(scheme, number = 1) {
      const to = `domain://msg-node.${this._domain}/address-allocation`;
      const answer = await this.request("create", to, { scheme, value: { number } });
      return answer.value.allocated;
    }

    /** Has `listener` hear every message for an address, also after the connection was lost. Resolves with a function that ends it. */
    async subscribe(address, listener) {
      const known = this._subscriptions.get(address);
      if (known) known.add(listener);
      else {
        this._subscriptions.set(address, new Set([listener]));
        try {
          await this._ask("subscribe", [address]);
        } catch (error) {
          this._subscriptions.delete(address);
          throw error;
        }
      }
      return () => this._unsubscribe(address, listener);
    }

    async _unsubscribe(address, listener) {
      const listeners = this._subscriptions.get(address);
      if (!listeners || !listeners.delete(listener) || listeners.size) return;
      this._subscriptions.delete(address);
      await this._ask("unsubscribe", [address]);
    }

    _ask(type, resources) {
      return this.request(type, `domain://msg-node.${this._domain}/sm`, { resources, source: this.runtimeURL });
    }

    close() {
      return this._session.close();
    }

    _status(value, description) {
      if (value === "live" && !this._session.isResumed && this._subscriptions.size) {
        this._ask("subscribe", [...this._subscriptions.keys()]).catch((error) => this._notify("status", "unsubscribed", error.message));
      }
      this._notify("status", value, description);
    }

    _message(message) {
      const listeners = this._subscriptions.get(message.to);
      if (listeners) for (const listener of [...listeners]) listener(message);
      else this._notify("message", message);
    }

    _notify(kind, ...values) {
      for (const listener of this._listeners[kind]) listener(...values);
    }
  }

  /** Opens a session; resolves with its Connection once it is live, rejects when the node refuses it for good. */
  function connect(options) {
    return new Promise((resolve, reject) => {
      const connection = new Connection(options);
      connection.on("status", (value, description) => {
        if (value === "live") resolve(connection);
        else if (value === "failed") reject(new TrapezoidError(503, "not-connected", description));
      });
      connection._session.connect();
    });
  }

  const root = typeof globalThis === "object" ? globalThis : self;
  root.trapezoid = { activate: makeStub, connect, TrapezoidError };
  makeStub.default = makeStub;
  return makeStub;
})();
if (typeof globalThis === "object") globalThis.activate = activate;
if (typeof module === "object" && module.exports) {
  const { connect, TrapezoidError } = globalThis.trapezoid;
  module.exports = { activate, connect, TrapezoidError };
}
