(function (root, factory) {
  if (typeof exports === 'object' && typeof module !== 'undefined') module.exports = factory();
  else if (typeof define === 'function' && define.amd) define([], factory);
  else root.activate = factory().activate;
})(this, function () {
  'use strict';
  /* A socket.io client as small as can be: Engine.IO 3, WebSocket only, one event. */
  function Client(url) {
    this.handlers = {};
    var client = this;
    this.socket = new WebSocket('ws://' + url + '/socket.io/?EIO=3&transport=websocket');
    this.socket.onmessage = function (event) {
      var text = event.data;
      if (text.charAt(0) === '0') client.pulse = setInterval(function () { client.socket.send('2'); }, JSON.parse(text.slice(1)).pingInterval);
      else if (text.slice(0, 2) === '40') client.fire('connect');
      else if (text.slice(0, 2) === '42') client.fire.apply(client, JSON.parse(text.slice(2)));
    };
    this.socket.onclose = function (event) {
      clearInterval(client.pulse);
      client.fire('disconnect', 'closed ' + event.code);
    };
  }
  Client.prototype.on = function (name, handler) { this.handlers[name] = handler; };
  Client.prototype.fire = function (name, value) { if (this.handlers[name]) this.handlers[name](value); };
  Client.prototype.emit = function (name, value) { this.socket.send('42' + JSON.stringify([name, value])); };

  function BundledStub(address, bus, config) {
    var stub = this;
    this.address = address;
    this.bus = bus;
    this.config = config;
    this.io = null;
    this.url = config.url.replace(/.*?:\/\//g, '');
    bus.addListener('*', function (message) {
      if (!message.body) message.body = {};
      message.body.via = stub.address;
      stub.io.emit('message', JSON.stringify(message));
    });
  }
  /* Works once: after a loss `io` is not null but gone, and each call throws. */
  BundledStub.prototype.connect = function () {
    var stub = this;
    if (this.io !== null && this.io.socket) return;
    this.io = new Client(this.url);
    this.io.on('connect', function () {
      stub.io.emit('message', JSON.stringify({ id: 1, type: 'open', from: stub.config.runtimeURL, to: 'mn:/session' }));
    });
    this.io.on('message', function (message) {
      if (message.from === 'mn:/session') return stub.report(message.body.code === 200 ? 'connected' : 'failed');
      if (!message.body) message.body = {};
      message.body.via = stub.address;
      stub.bus.postMessage(message);
    });
    this.io.on('disconnect', function (reason) {
      delete stub.io;
      stub.report('disconnected', reason);
    });
  };
  BundledStub.prototype.disconnect = function () { if (this.io) this.io.socket.close(); };
  BundledStub.prototype.report = function (value, desc) {
    this.bus.postMessage({ type: 'update', from: this.address, to: this.address + '/status', body: { value: value, desc: desc } });
  };
  return {
    activate: function (url, bus, config) {
      return { name: 'BundledStub', instance: new BundledStub(url, bus, config) };
    }
  };
});
