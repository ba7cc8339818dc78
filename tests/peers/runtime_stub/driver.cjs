// Drives the runtime stub for tests: commands come as lines of JSON, events go out as lines of JSON.
"use strict";
const fs = require("node:fs");
const readline = require("node:readline");
const vm = require("node:vm");

const file = process.argv[2];
const { connect } = require(file);
const listeners = [];
let connection, component;

const say = (event, facts = {}) => process.stdout.write(JSON.stringify({ event, ...facts }) + "\n");

const bus = {
  addListener: (url, listener) => listeners.push([url, listener]),
  postMessage: (message) => say("bus", { message }),
};

const commands = {
  async load() {
    const evaluated = new vm.Script(fs.readFileSync(file, "utf8") + "; typeof activate").runInNewContext({ setTimeout });
    const asModule = await import(file);
    say("loaded", { evaluated, module: typeof asModule.connect, global: typeof globalThis.trapezoid.connect });
  },
  async connect({ options }) {
    connection = await connect(options);
    connection.on("message", (message) => say("message", { message }));
    connection.on("status", (value) => say(value, { isResumed: connection._session.isResumed }));
    say("connected");
  },
  async allocate() {
    say("allocated", { value: await connection.allocate("comm") });
  },
  async subscribe({ address }) {
    await connection.subscribe(address, (message) => say("heard", { message }));
    say("subscribed");
  },
  async request({ type, to, body, from }) {
    say("answer", { body: await connection.request(type, to, body, from ? { from } : {}) });
  },
  async respond({ message, body }) {
    connection.respond(message, body);
  },
  async cut() {
    connection._session._socket._socket.destroy();
  },
  async close() {
    await connection.close();
    say("closed");
  },
  async activate({ url, config }) {
    component = globalThis.activate(url, bus, config);
    say("activated", { name: component.name });
  },
  async bus({ message }) {
    for (const [, listener] of listeners) listener(message);
  },
  async disconnect() {
    await component.instance.disconnect();
    say("ended");
  },
};

const input = readline.createInterface({ input: process.stdin });
input.on("line", (line) => {
  const { name, ...facts } = JSON.parse(line);
  commands[name](facts).catch((error) => say("error", { code: error.code, reason: error.reason, text: error.message }));
});
input.on("close", () => process.exit(0));
