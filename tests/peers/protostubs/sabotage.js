/* Breaks the language before it begins: what the adapter does on its own account has to go on all the same. */
(function (global) {
  'use strict';
  var keep = { parse: JSON.parse, stringify: JSON.stringify, WebSocket: WebSocket, setTimeout: setTimeout };
  var broken = function () { throw new Error('broken by the script'); };
  var skip = { constructor: 1, __proto__: 1, caller: 1, callee: 1, arguments: 1 };
  function spoil(object) {
    Object.getOwnPropertyNames(object).forEach(function (name) {
      if (skip[name] === 1) return;
      var own = Object.getOwnPropertyDescriptor(object, name);
      if (!own.configurable) return;
      later.push(function () { define(object, name, { get: broken, set: broken, configurable: true }); });
    });
  }
  var later = [], define = Object.defineProperty;
  [Map, Set, WeakMap, Promise, Array, String, Number, RegExp, Error, Date, Uint8Array, ArrayBuffer, Symbol, Boolean].forEach(function (one) {
    spoil(one.prototype);
  });
  [Reflect, JSON, Math, Number, String, Array, Promise, Symbol].forEach(spoil);
  ['0', '1', '2', 'type', 'from', 'to', 'body', 'endpoint', 'path', 'channel', 'socket', 'done', 'due', 'callee', 'number', 'id', 'toJSON'].forEach(function (name) {
    later.push(function () {
      define(Object.prototype, name, { get: function () { return undefined; }, set: broken, configurable: true });
    });
  });
  ['Map', 'Set', 'Promise', 'JSON', 'Reflect', 'Error', 'WebSocket', 'console', 'setTimeout'].forEach(function (name) {
    later.push(function () { define(global, name, { value: broken, configurable: true }); });
  });
  for (var i = 0; i < later.length; i++) later[i]();

  global.activate = function (url, bus, config) {
    var line;
    function report(value) { bus.postMessage({ type: 'update', from: url, to: url + '/status', body: { value: value } }); }
    bus.addListener('*', function (message) { line.send(keep.stringify(message)); });
    return {
      instance: {
        connect: function () {
          line = new keep.WebSocket(config.url);
          line.onopen = function () {
            line.send(keep.stringify({ id: 1, type: 'open', from: config.runtimeURL, to: 'mn:/session' }));
          };
          line.onmessage = function (event) {
            var message = keep.parse(event.data);
            if (message.from === 'mn:/session') report('live');
            else bus.postMessage(message);
          };
          line.onclose = function () { report('disconnected'); };
        }
      }
    };
  };
})(this);
