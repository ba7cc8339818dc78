/*
 * prelude.js: the runtime that a JavaScript protostub expects, on top of the few functions of quickjs.c.
 *
 * A protostub is a factory or a class that gets its address, a bus and its configuration (docs/javascript-stubs.md). It shares all
 * objects of the language with this file, and may change every one of them. So nothing here looks anything up in them later on: what is
 * used is taken at the start, methods are called by what was taken, texts are joined by `+` (for a template, QuickJS looks `concat`
 * up), lists are not iterated over, records have no prototype, and private state is in `#` members and closures. What a script breaks,
 * it breaks for itself.
 *
 * The last expression is a function: it gets the functions of quickjs.c, and returns the handlers of events by their numbers.
 */
(function (host) {
    'use strict';

    // ----------------------------------------------------------------------------------------------------- what the script may change

    const { apply, construct } = Reflect;
    const { create, defineProperty, getOwnPropertyDescriptor, keys, setPrototypeOf } = Object;
    const taken = (method) => function (self, a, b, c) { return apply(method, self, [a, b, c]); };
    const { Error, SyntaxError, TypeError, Promise, Map, Set, Uint8Array, ArrayBuffer, DOMException } = globalThis;
    const mapGet = taken(Map.prototype.get), mapSet = taken(Map.prototype.set), mapDelete = taken(Map.prototype.delete);
    const mapEach = taken(Map.prototype.forEach), setEach = taken(Set.prototype.forEach);
    const setHas = taken(Set.prototype.has), setAdd = taken(Set.prototype.add);
    const setDelete = taken(Set.prototype.delete), setClear = taken(Set.prototype.clear);
    const startsWith = taken(String.prototype.startsWith);
    const indexOf = taken(String.prototype.indexOf), slice = taken(String.prototype.slice);
    const lower = taken(String.prototype.toLowerCase), upper = taken(String.prototype.toUpperCase);
    const textOfFunction = taken(Function.prototype.toString);
    const { parse: parseJson, stringify: writeJson, rawJSON } = JSON;
    const { isArray } = Array;
    const { min, floor } = Math;
    const { isView } = ArrayBuffer;
    const NumberOf = Number, StringOf = String;
    const mapSize = taken(getOwnPropertyDescriptor(Map.prototype, 'size').get);
    const setSize = taken(getOwnPropertyDescriptor(Set.prototype, 'size').get);
    const { act, parse, mayLose, now, random, encode, decode, evaluate, numberTexts } = host;

    const isObject = (value) => typeof value === 'object' && value !== null;
    const isCallable = (value) => typeof value === 'function';
    const eachKey = (record, callee) => {
        const names = keys(record);
        for (let i = 0; i < names.length; i++) callee(names[i]);
    };
    /* A list that only its own elements are ever read from, or written to. */
    const plainList = () => setPrototypeOf([], null);
    const ownOf = (record, name) => {
        const found = isObject(record) ? getOwnPropertyDescriptor(record, name) : undefined;
        return found === undefined ? undefined : found.value;
    };

    // --------------------------------------------------------------------------------------------------------------------- actions

    const OPEN = 1, SEND = 2, CLOSE = 3, DELIVER = 4, SET_TIMER = 5, ACCEPTED = 8, REFUSED = 9, STATUS = 10, LOG = 11;
    const WEBSOCKET = 1, HTTP = 3, TEXT_FRAME = 1;
    const DEBUG = 0, INFO = 1, WARNING = 2, ERROR = 3;
    const LOG_CHARS = 1000, LOG_LINES_PER_SECOND = 10;

    let logSecond = 0, logLines = 0;
    /* Lines beyond the allowance cost next to nothing: nobody makes their text. */
    const mayLog = () => {
        const second = floor(now() / 1000);
        if (second !== logSecond) {
            logSecond = second;
            logLines = 0;
        }
        return logLines < LOG_LINES_PER_SECOND;
    };
    const log = (level, text) => {
        if (!mayLog()) return;
        logLines++;
        try {
            act(LOG, 0, level, slice(text, 0, LOG_CHARS));
        } catch { /* the answer is full: then the line is lost */ }
    };
    const textOf = (value) => {
        if (typeof value === 'string') return value;
        try {
            if (value instanceof Error) return value.stack ? value + '\n' + value.stack : StringOf(value);
            if (isObject(value)) return writeJson(value) ?? StringOf(value);
            return StringOf(value);
        } catch {
            return 'a value without a text';
        }
    };
    const shortTextOf = (error) => {
        try {
            return isObject(error) && typeof error.message === 'string' ? error.name + ': ' + error.message : textOf(error);
        } catch {
            return 'an error without a text';
        }
    };
    const report = (where, error) => log(ERROR, where + ': ' + textOf(error));
    /* Call what the script gave us; what it throws ends nothing but itself. */
    const callScript = (where, callee, self, list) => {
        try {
            return apply(callee, self, list);
        } catch (error) {
            report(where, error);
            return undefined;
        }
    };

    // ---------------------------------------------------------------------------------------------------------------------- JSON

    /* A number that came with more digits than a double holds leaves as it came, while nobody has changed it. */
    const keepDigits = function (key, value) {
        if (typeof value !== 'number') return value;
        const kept = this[numberTexts];
        const one = isObject(kept) ? kept[key] : undefined;
        return isObject(one) && one.value === value ? rawJSON(one.text) : value;
    };
    const write = (value, replacer, space) =>
        mayLose() && replacer === undefined ? writeJson(value, keepDigits, space) : writeJson(value, replacer, space);
    JSON.parse = function parse_(text, reviver) {
        const value = parse(text); /* which also knows how deep a text may be nested */
        return reviver === undefined ? value : parseJson(text, reviver);
    };
    JSON.stringify = function stringify(value, replacer, space) {
        return write(value, replacer, space);
    };
    defineProperty(JSON.parse, 'name', { __proto__: null, value: 'parse' });

    // -------------------------------------------------------------------------------------------------------------------- timers

    const HOST_TIMER = 1, TIMERS = 500, AT_ONCE = 20, NESTED_LEVELS = 5, NESTED_MS = 4, DELAY_MAX = 2147483647;
    const timers = new Map();
    let first, last; /* of the chain of timers: the earliest first, those of one moment in the order in which they were set */
    let lastTimer = 0, armedFor = 0, level = 0;

    const link = (timer) => {
        let before = last;
        while (before !== undefined && before.due > timer.due) before = before.before;
        timer.before = before;
        timer.after = before === undefined ? first : before.after;
        if (before === undefined) first = timer;
        else before.after = timer;
        if (timer.after === undefined) last = timer;
        else timer.after.before = timer;
    };
    const unlink = (timer) => {
        if (timer.before === undefined) first = timer.after;
        else timer.before.after = timer.after;
        if (timer.after === undefined) last = timer.before;
        else timer.after.before = timer.before;
    };
    const addTimer = (callee, delay, list, isRepeated) => {
        if (mapSize(timers) >= TIMERS) throw new Error('too many timers');
        let wait = floor(NumberOf(delay));
        if (!(wait >= 1 && wait <= DELAY_MAX)) wait = 1;
        if (level >= NESTED_LEVELS && wait < NESTED_MS) wait = NESTED_MS;
        const timer = {
            __proto__: null, id: ++lastTimer, due: now() + wait, wait, callee, list, isRepeated, level: level + 1,
            before: undefined, after: undefined,
        };
        mapSet(timers, timer.id, timer);
        link(timer);
        return timer.id;
    };
    const cancelTimer = (id) => {
        const timer = typeof id === 'number' ? mapGet(timers, id) : undefined;
        if (timer === undefined) return;
        mapDelete(timers, id);
        unlink(timer);
    };
    /* An event has fuel for some callbacks; what is left fires a millisecond later. */
    const onTimer = () => {
        armedFor = 0;
        const until = now();
        for (let i = 0; i < AT_ONCE && first !== undefined && first.due <= until; i++) {
            const timer = first;
            unlink(timer);
            if (timer.isRepeated) {
                timer.due = until + timer.wait;
                link(timer);
            } else {
                mapDelete(timers, timer.id);
            }
            level = timer.level;
            callScript('timer', timer.callee, undefined, timer.list);
        }
        level = 0;
    };
    const armTimer = () => {
        const due = first === undefined ? 0 : first.due;
        if (due === armedFor) return;
        armedFor = due;
        act(SET_TIMER, 0, HOST_TIMER, due === 0 ? 0 : due > now() ? due - now() : 1);
    };
    const later = (ms, callee) => addTimer(callee, ms, [], false);

    // ----------------------------------------------------------------------------------------------------------------- endpoints

    let settings = { __proto__: null, endpoints: plainList() };
    let about = { __proto__: null };
    let httpEndpoints = new Set();

    /* Endpoint and path that a URL of the script means, or undefined. */
    const resolve = (url) => {
        let text = StringOf(url);
        const hash = indexOf(text, '#');
        if (hash >= 0) text = slice(text, 0, hash);
        const origins = about.endpoints;
        let best = '', name;
        const prefixes = isObject(origins) ? keys(origins) : plainList();
        for (let i = 0; i < prefixes.length; i++) {
            if (!startsWith(text, prefixes[i]) || prefixes[i].length <= best.length) continue;
            best = prefixes[i];
            name = ownOf(origins, best);
        }
        if (name !== undefined) return { __proto__: null, endpoint: name, path: slice(text, best.length) };
        const scheme = indexOf(text, '://');
        if (scheme < 0) return undefined;
        const rest = slice(text, scheme + 3);
        let end = rest.length;
        for (let i = 0; i < rest.length && end === rest.length; i++) if (rest[i] === '/' || rest[i] === '?') end = i;
        let authority = lower(slice(rest, 0, end));
        const port = indexOf(authority, ':');
        if (port >= 0) authority = slice(authority, 0, port);
        for (let i = 0; i < settings.endpoints.length; i++) {
            if (authority !== settings.endpoints[i] + '.endpoint') continue;
            const path = slice(rest, end);
            return { __proto__: null, endpoint: settings.endpoints[i], path: path === '/' ? '' : path };
        }
        return undefined;
    };

    // ------------------------------------------------------------------------------------------------------------------ channels

    const channels = new Map();
    let lastChannel = 0;
    const takeChannel = (owner) => {
        do lastChannel = lastChannel % 65535 + 1; while (mapGet(channels, lastChannel) !== undefined);
        mapSet(channels, lastChannel, owner);
        return lastChannel;
    };

    /* Names and listeners, as DOM objects have them. An error in one of them does not keep the others from hearing. */
    class Events {
        #listeners = new Map();
        addEventListener(type, listener) {
            if (!isCallable(listener) && !isObject(listener)) return;
            let every = mapGet(this.#listeners, StringOf(type));
            if (every === undefined) mapSet(this.#listeners, StringOf(type), (every = new Set()));
            setAdd(every, listener);
        }
        removeEventListener(type, listener) {
            const every = mapGet(this.#listeners, StringOf(type));
            if (every !== undefined) setDelete(every, listener);
        }
        dispatchEvent(event) {
            fire(this, StringOf(event.type), event);
            return true;
        }
        static listeners(target, type) { return mapGet(target.#listeners, type); }
    }
    const listenersOf = Events.listeners;
    delete Events.listeners;
    const fire = (target, type, event) => {
        const own = target['on' + type];
        if (isCallable(own)) callScript('on' + type, own, target, [event]);
        const every = listenersOf(target, type);
        if (every === undefined) return;
        setEach(every, (listener) => {
            const handler = isCallable(listener) ? listener : listener.handleEvent;
            if (isCallable(handler)) callScript(type, handler, isCallable(listener) ? target : listener, [event]);
        });
    };
    const eventOf = (type, target, more) => {
        const event = { type, target, currentTarget: target, preventDefault() {}, stopPropagation() {} };
        for (const name in more) defineProperty(event, name, { __proto__: null, value: more[name], enumerable: true, writable: true });
        return event;
    };

    // ----------------------------------------------------------------------------------------------------------------- WebSocket

    const CONNECTING = 0, OPENED = 1, CLOSING = 2, CLOSED = 3;
    const PAUSE_MS = 500, PAUSE_MS_MAX = 30000, PAUSES_GROW = 6;
    let failures = 0, openSockets = 0, allSockets = 0;

    /* How long a new line is held back: a script that connects anew at once would do so without an end. */
    const pauseBefore = () => {
        if (failures === 0) return 0;
        const pause = failures > PAUSES_GROW ? PAUSE_MS_MAX : min(PAUSE_MS * 2 ** (failures - 1), PAUSE_MS_MAX);
        return floor(pause * (1 + random() / 4));
    };

    class WebSocket extends Events {
        #state = CONNECTING;
        #channel = 0;
        #protocol = '';
        #url;
        #hasOpened = false;
        constructor(url, protocols) {
            super();
            this.#url = StringOf(url);
            this.binaryType = 'blob';
            this.onopen = this.onmessage = this.onerror = this.onclose = null;
            const asked = isArray(protocols) ? protocols[0] : protocols;
            const to = resolve(this.#url);
            allSockets++;
            if (to === undefined) {
                log(ERROR, this.#url + ' is no endpoint of this stub; `stub adapt --endpoint NAME=URL` makes it one');
                later(1, () => this.#end(1006, 'no endpoint'));
                return;
            }
            const open = () => {
                if (this.#state !== CONNECTING) return;
                this.#channel = takeChannel({ __proto__: null, socket: this });
                const request = { __proto__: null, endpoint: to.endpoint, path: to.path, text: true };
                if (asked !== undefined) request.subprotocol = StringOf(asked);
                act(OPEN, WEBSOCKET, this.#channel, writeJson(request));
            };
            const pause = pauseBefore();
            if (pause === 0) open();
            else later(pause, open);
        }
        get url() { return this.#url; }
        get readyState() { return this.#state; }
        get protocol() { return this.#protocol; }
        get extensions() { return ''; }
        get bufferedAmount() { return 0; }
        send(data) {
            if (this.#state === CONNECTING) throw new DOMException('still connecting', 'InvalidStateError');
            if (this.#state !== OPENED) return;
            if (isView(data) || data instanceof ArrayBuffer) throw new DOMException('only text', 'NotSupportedError');
            act(SEND, TEXT_FRAME, this.#channel, StringOf(data));
        }
        close() {
            if (this.#state >= CLOSING) return;
            if (this.#channel === 0) later(1, () => this.#end(1006, ''));
            else act(CLOSE, 0, this.#channel);
            if (this.#state === OPENED) openSockets--;
            this.#state = CLOSING;
        }
        #end(code, reason) {
            if (this.#state === CLOSED) return;
            if (this.#state === OPENED) openSockets--;
            this.#state = CLOSED;
            allSockets--;
            mapDelete(channels, this.#channel);
            failures++;
            if (!this.#hasOpened) fire(this, 'error', eventOf('error', this, { __proto__: null, message: reason }));
            fire(this, 'close', eventOf('close', this, { __proto__: null, code, reason, wasClean: code === 1000 }));
        }
        static hear(socket, what, bytes) {
            if (what === 'opened') {
                if (socket.#state !== CONNECTING) return;
                socket.#state = OPENED;
                socket.#hasOpened = true;
                socket.#protocol = bytes;
                openSockets++;
                if (!hasState) later(UNSAID_MS, liveUnsaid);
                fire(socket, 'open', eventOf('open', socket, undefined));
            } else if (what === 'closed') {
                const code = NumberOf(slice(bytes, 7, 11));
                socket.#end(startsWith(bytes, 'closed') && code >= 1000 ? code : 1006, bytes);
            } else if (socket.#state === OPENED) {
                const data = isView(bytes) ? bytes.buffer : bytes;
                fire(socket, 'message', { type: 'message', target: socket, currentTarget: socket, data, origin: '', lastEventId: '' });
            }
        }
    }
    const hearSocket = WebSocket.hear;
    delete WebSocket.hear;
    for (const [name, value] of [['CONNECTING', 0], ['OPEN', 1], ['CLOSING', 2], ['CLOSED', 3]]) {
        defineProperty(WebSocket, name, { value, enumerable: true });
        defineProperty(WebSocket.prototype, name, { value, enumerable: true });
    }

    // ---------------------------------------------------------------------------------------------------------------------- HTTP

    /* One request: `done` gets {status, headers, body}, or the reason why there is none. */
    const request = (method, url, headers, body, done) => {
        const to = resolve(url);
        if (to === undefined || !setHas(httpEndpoints, to.endpoint)) {
            later(1, () => done(undefined, url + ' is no HTTP endpoint of this stub'));
            return 0;
        }
        const asked = { __proto__: null, endpoint: to.endpoint, path: to.path, method: upper(StringOf(method)) };
        if (keys(headers).length > 0) asked.headers = headers;
        if (body !== undefined && body !== null) asked.body = StringOf(body);
        const channel = takeChannel({ __proto__: null, done });
        act(OPEN, HTTP, channel, writeJson(asked));
        return channel;
    };
    const onHttpResponse = (channel, text) => {
        const exchange = mapGet(channels, channel);
        if (exchange === undefined || !isCallable(exchange.done)) return;
        const end = text === null ? -1 : indexOf(text, '\n');
        const { done } = exchange;
        exchange.done = undefined;
        if (end < 0) return done(undefined, 'the answer is too large');
        const head = parseJson(slice(text, 0, end));
        done({ __proto__: null, status: head.status, headers: setPrototypeOf(head.headers, null), body: slice(text, end + 1) }, '');
    };

    class Headers {
        #named = create(null);
        constructor(from) {
            if (from instanceof Headers) for (const name in from.#named) this.#named[name] = from.#named[name];
            else if (isObject(from)) eachKey(from, (name) => this.set(name, from[name]));
        }
        set(name, value) { this.#named[lower(StringOf(name))] = StringOf(value); }
        append(name, value) { this.set(name, value); }
        delete(name) { delete this.#named[lower(StringOf(name))]; }
        has(name) { return lower(StringOf(name)) in this.#named; }
        get(name) { return this.#named[lower(StringOf(name))] ?? null; }
        forEach(callee) { for (const name in this.#named) callee(this.#named[name], name, this); }
        static plain(headers) { return headers.#named; }
    }
    const plainHeaders = Headers.plain;
    delete Headers.plain;

    class Response {
        #body;
        constructor(body, init) {
            this.#body = StringOf(body ?? '');
            const given = isObject(init) ? init : create(null);
            this.status = given.status ?? 200;
            this.ok = this.status >= 200 && this.status < 300;
            this.statusText = '';
            this.url = given.url ?? '';
            this.headers = new Headers(given.headers);
        }
        text() { return resolved(this.#body); }
        json() { return new Promise((keep) => keep(parse(this.#body))); }
        arrayBuffer() { return resolved(encode(this.#body).buffer); }
        clone() { return new Response(this.#body, this); }
    }
    const resolved = (value) => new Promise((keep) => keep(value));

    const fetch = function fetch(url, init) {
        const given = isObject(init) ? init : create(null);
        const headers = plainHeaders(new Headers(given.headers));
        return new Promise((keep, fail) => {
            request(given.method ?? 'GET', url, headers, given.body, (answer, reason) => {
                if (answer === undefined) fail(new TypeError(reason));
                else keep(new Response(answer.body, { __proto__: null, status: answer.status, url: StringOf(url), headers: answer.headers }));
            });
        });
    };

    class XMLHttpRequest extends Events {
        #method = 'GET';
        #url = '';
        #headers = create(null);
        #answer = undefined;
        #state = 0;
        #turn = 0;
        constructor() {
            super();
            this.onreadystatechange = this.onload = this.onerror = this.onloadend = this.ontimeout = this.onabort = null;
            this.responseType = '';
            this.timeout = 0;
            this.withCredentials = false;
        }
        get readyState() { return this.#state; }
        get status() { return this.#answer === undefined ? 0 : this.#answer.status; }
        get statusText() { return ''; }
        get responseText() { return this.#answer === undefined ? '' : this.#answer.body; }
        get responseURL() { return this.#url; }
        get response() {
            if (this.#answer === undefined) return this.responseType === '' || this.responseType === 'text' ? '' : null;
            if (this.responseType === 'arraybuffer') return encode(this.#answer.body).buffer;
            if (this.responseType !== 'json') return this.#answer.body;
            try {
                return parse(this.#answer.body);
            } catch {
                return null;
            }
        }
        open(method, url) {
            this.#method = StringOf(method);
            this.#url = StringOf(url);
            this.#headers = create(null);
            this.#answer = undefined;
            this.#turn++;
            this.#become(1);
        }
        setRequestHeader(name, value) { this.#headers[lower(StringOf(name))] = StringOf(value); }
        getResponseHeader(name) { return this.#answer === undefined ? null : this.#answer.headers[lower(StringOf(name))] ?? null; }
        getAllResponseHeaders() {
            let text = '';
            if (this.#answer !== undefined) for (const name in this.#answer.headers) text += name + ': ' + this.#answer.headers[name] + '\r\n';
            return text;
        }
        overrideMimeType() {}
        send(body) {
            const turn = this.#turn;
            request(this.#method, this.#url, this.#headers, body, (answer, reason) => {
                if (turn !== this.#turn) return;
                this.#turn++;
                this.#answer = answer;
                if (answer === undefined) return this.#finish('error', reason);
                this.#become(2);
                this.#become(3);
                this.#finish('load', '');
            });
            if (this.timeout > 0) later(this.timeout, () => { if (turn === this.#turn) this.#abandon('timeout'); });
        }
        abort() { if (this.#state > 0 && this.#state < 4) this.#abandon('abort'); }
        #abandon(type) {
            this.#turn++;
            this.#answer = undefined;
            this.#finish(type, '');
        }
        #become(state) {
            this.#state = state;
            fire(this, 'readystatechange', eventOf('readystatechange', this, undefined));
        }
        #finish(type, reason) {
            this.#become(4);
            fire(this, type, eventOf(type, this, { __proto__: null, message: reason }));
            fire(this, 'loadend', eventOf('loadend', this, undefined));
        }
    }

    // ------------------------------------------------------------------------------------------------------- text, console, globals

    class TextEncoder {
        get encoding() { return 'utf-8'; }
        encode(text) { return encode(text === undefined ? '' : StringOf(text)); }
    }
    class TextDecoder {
        get encoding() { return 'utf-8'; }
        decode(bytes) {
            if (bytes === undefined) return '';
            if (bytes instanceof ArrayBuffer) return decode(new Uint8Array(bytes));
            return decode(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
        }
    }
    const consoleLine = (severity) => function () {
        if (!mayLog()) return;
        let text = '';
        for (let i = 0; i < arguments.length && text.length < LOG_CHARS; i++) text += (i ? ' ' : '') + textOf(arguments[i]);
        log(severity, text);
    };

    Math.random = random;
    const globals = {
        __proto__: null,
        self: globalThis,
        global: globalThis,
        WebSocket,
        Headers,
        Response,
        TextEncoder,
        TextDecoder,
        console: {
            log: consoleLine(DEBUG), debug: consoleLine(DEBUG), trace: consoleLine(DEBUG), info: consoleLine(INFO),
            warn: consoleLine(WARNING), error: consoleLine(ERROR), dir: consoleLine(DEBUG), assert() {}, time() {}, timeEnd() {},
            group() {}, groupEnd() {},
        },
        setTimeout: function setTimeout(callee, delay, ...list) { return addTimer(callee, delay, list, false); },
        setInterval: function setInterval(callee, delay, ...list) { return addTimer(callee, delay, list, true); },
        setImmediate: function setImmediate(callee, ...list) { return addTimer(callee, 1, list, false); },
        clearTimeout: cancelTimer,
        clearInterval: cancelTimer,
        clearImmediate: cancelTimer,
    };
    for (const name in globals) defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true });
    const performanceBegan = now;
    defineProperty(globalThis, 'performance', {
        value: { now: () => performanceBegan(), timeOrigin: 0 }, writable: true, configurable: true,
    });

    // ----------------------------------------------------------------------------------------------------------------------- ids

    /*
     * Runtimes number their messages, and so some nodes take nothing but integers. Every other id, and none, is replaced by an integer
     * from IDS_BASE on; the answer to the same asker gets back what stood there. The last IDS_KEPT of them are known.
     */
    const IDS_BASE = 2 ** 30, IDS_KEPT = 1024;
    const givenIds = plainList();
    let idsGiven = 0;

    const numberId = (message) => {
        const { id } = message;
        if (message.type === 'response') return;
        if (typeof id === 'number' && id > 0 && id < IDS_BASE && floor(id) === id) return;
        const number = IDS_BASE + idsGiven++ % IDS_BASE;
        givenIds[number % IDS_KEPT] = {
            __proto__: null, number, id, asker: message.from, kept: ownOf(ownOf(message, numberTexts), 'id'),
        };
        message.id = number;
    };
    /* False: the answer to a message that had no id is nobody's. */
    const restoreId = (message) => {
        const number = NumberOf(message.id);
        const given = message.type === 'response' ? givenIds[number % IDS_KEPT] : undefined;
        if (given === undefined || given.number !== number || given.asker !== message.to) return true;
        givenIds[number % IDS_KEPT] = undefined;
        message.id = given.id;
        if (isObject(given.kept)) {
            const every = isObject(message[numberTexts]) ? message[numberTexts] : create(null);
            every.id = given.kept;
            message[numberTexts] = every;
        }
        return given.id !== undefined;
    };

    // ----------------------------------------------------------------------------------------------------------------- the bus

    const listeners = new Map();
    const responses = new Map();
    let lastOwnId = 0;

    const addListener = (address, listener) => {
        if (!isCallable(listener)) throw new TypeError('a listener has to be a function');
        let every = mapGet(listeners, address);
        if (every === undefined) mapSet(listeners, address, (every = new Set()));
        setAdd(every, listener);
        return { url: address, remove() { setDelete(every, listener); } };
    };
    /* Give a message to the script, as a bus gives one to its listeners. What a listener throws is thrown on. */
    const dispatch = (message) => {
        const answer = message.to + ' ' + message.id;
        const waiting = message.type === 'response' ? mapGet(responses, answer) : undefined;
        if (waiting !== undefined) {
            mapDelete(responses, answer);
            apply(waiting, undefined, [message]);
            return;
        }
        const every = mapGet(listeners, message.to);
        const chosen = every !== undefined && setSize(every) > 0 ? every : mapGet(listeners, '*');
        if (chosen === undefined || setSize(chosen) === 0) throw new Error('the script listens to no messages');
        setEach(chosen, (listener) => apply(listener, undefined, [message]));
    };

    const post = (message, callback) => {
        if (!isObject(message)) throw new TypeError('a message has to be an object');
        const { to } = message;
        if (to === settings.stub_url + '/status') {
            const body = isObject(message.body) ? message.body : create(null);
            onState(StringOf(body.value), body.desc === undefined ? '' : StringOf(body.desc));
            return 0;
        }
        if (message.id === undefined) message.id = ++lastOwnId;
        if (isCallable(callback)) mapSet(responses, message.from + ' ' + message.id, callback);
        if (message.type === 'response' && to === about.runtimeURL + '/sm') return message.id; /* to a subscription of ours */
        if (isObject(message.body) && typeof message.body.via === 'string') delete message.body.via;
        const { id } = message;
        if (restoreId(message)) act(DELIVER, 0, 0, write(message));
        return id;
    };
    const bus = {
        addListener,
        postMessage: post,
        removeListener(address, listener) {
            const every = mapGet(listeners, address);
            if (every !== undefined) setDelete(every, listener);
        },
        removeAllListenersOf(address) { mapDelete(listeners, address); },
        addResponseListener(address, id, listener) { mapSet(responses, address + ' ' + id, listener); },
        removeResponseListener(address, id) { mapDelete(responses, address + ' ' + id); },
    };

    // ------------------------------------------------------------------------------------------------------------ subscriptions

    /*
     * A runtime subscribes, at its node, to what is to reach it: addresses of our domain that the node knows nothing of, and what is
     * subscribed to at objects. In the name of the node's own subscription manager we ask our node for the changes of our objects.
     */
    const KNOWN_MOST = 12288, RESOURCES_AT_ONCE = 256;
    const known = new Set();
    let asked = 0;

    const isHyperty = (address) => startsWith(address, 'hyperty:');
    const subscription = (type, resources) => {
        const body = { resources };
        if (about.subscriptions === 'old') body[type] = resources;
        return { id: 2, type, from: about.runtimeURL + '/sm', to: about.manager, body };
    };
    const subscribe = (type, addresses) => {
        const resources = [];
        let count = 0;
        const add = (address) => defineProperty(resources, count++, { __proto__: null, value: address, enumerable: true, writable: true });
        for (let i = 0; i < addresses.length; i++) {
            add(addresses[i]);
            if (!isHyperty(addresses[i])) add(addresses[i] + '/subscription');
        }
        if (count > 0) dispatch(subscription(type, resources));
    };
    const observe = (type, addresses) => {
        let list = '', count = 0;
        const flush = () => {
            const head = '{"id":' + (IDS_BASE + asked++ % IDS_BASE) + ',"type":"' + type + '","from":"' + about.manager + '"';
            const to = '"to":"domain://msg-node.' + settings.our_domain + '/sm"';
            if (count > 0) act(DELIVER, 0, 0, head + ',' + to + ',"body":{"resources":[' + list + ']}}');
            list = '';
            count = 0;
        };
        for (let i = 0; i < addresses.length; i++) {
            if (isHyperty(addresses[i])) continue;
            list += (count ? ',' : '') + writeJson(addresses[i] + '/changes');
            if (++count === RESOURCES_AT_ONCE) flush();
        }
        flush();
    };
    const learn = (address) => {
        if (setSize(known) >= KNOWN_MOST) setClear(known);
        const isNew = !setHas(known, address);
        if (isNew) setAdd(known, address);
        return isNew;
    };
    const onAddresses = (_, text, flags) => {
        const added = plainList(), gone = plainList();
        let more = 0, less = 0;
        if (flags & 1) setClear(known);
        for (let at = 0; at < text.length;) {
            let end = indexOf(text, '\n', at);
            if (end < 0) end = text.length;
            const address = slice(text, at + 1, end);
            if (text[at] === '+' && learn(address)) added[more++] = address;
            if (text[at] === '-') {
                gone[less++] = address;
                setDelete(known, address);
            }
            at = end + 1;
        }
        if (about.subscriptions === 'none') return;
        announce('subscribe', added);
        announce('unsubscribe', gone);
    };
    const announce = (type, addresses) => {
        try {
            subscribe(type, addresses);
        } catch (error) {
            report(type, error);
        }
        observe(type, addresses);
    };

    // --------------------------------------------------------------------------------------------------------------- messages

    let handled = 0;
    const onMessage = (number, message) => {
        if (message === null) {
            act(REFUSED, 0, number, '413 too-large the stub takes messages of 1 MiB');
            return;
        }
        if (message === undefined) {
            act(REFUSED, 0, number, '413 too-large the stub takes messages of 10,000 values, nested 100 deep');
            return;
        }
        try {
            const { from } = message;
            numberId(message);
            if (about.subscriptions !== 'none' && typeof from === 'string' && learn(from)) subscribe('subscribe', { __proto__: null, 0: from, length: 1 });
            dispatch(message);
        } catch (error) {
            act(REFUSED, 0, number, '502 stub-refused ' + slice(shortTextOf(error), 0, 200));
            return;
        }
        handled = number;
    };

    // ------------------------------------------------------------------------------------------------------------ life of the stub

    /* The states that a script may report, with the words of older ones. */
    const STATES = {
        __proto__: null, created: 'created', create: 'created', 'in-progress': 'in-progress', live: 'live', LIVE: 'live', connected: 'live',
        failed: 'failed', disconnected: 'disconnected',
    };
    const PATIENCE_MS = 20000, UNSAID_MS = 1000;
    let state = '', hasState = false, isDraining = false, isConnecting = false, instance, patience = 0;

    const say = (word, why) => {
        if (word === state) return;
        state = word;
        act(STATUS, 0, 0, why === '' ? word : word + ' ' + slice(why, 0, 200));
    };
    const onState = (word, why) => {
        const reported = STATES[word];
        if (reported === undefined) {
            log(WARNING, 'the script reports the unknown state ' + slice(word, 0, 40));
            return;
        }
        hasState = true;
        say(reported, why);
        if (reported === 'live') {
            failures = 0;
            cancelTimer(patience);
        } else if (reported === 'disconnected' && !isDraining) {
            later(1, () => { if (allSockets > 0) watch(); else connect(); }); /* unless the script does so itself */
        }
    };
    const fail = (why) => say('failed', why);

    /* The script has some time to become live once a line of it is open, or it has none at all; then another instance takes over. */
    const watch = () => {
        cancelTimer(patience);
        patience = later(PATIENCE_MS, () => {
            if (state === 'live' || isDraining) return;
            if (openSockets === 0 && allSockets > 0) watch();
            else fail('the script is not live after ' + (PATIENCE_MS / 1000) + ' s');
        });
    };
    const connect = () => {
        if (isDraining) return;
        watch();
        const method = isObject(instance) ? instance.connect : undefined;
        if (!isCallable(method)) return liveUnsaid();
        isConnecting = true;
        try {
            const result = apply(method, instance, []);
            const then = isObject(result) ? result.then : undefined;
            if (isCallable(then)) apply(then, result, [liveUnsaid, notConnected]);
            else if (allSockets === 0) liveUnsaid();
        } catch (error) {
            notConnected(error);
        }
    };
    /* Without a line, and before anything came back: no network is to blame, and the same call would end in the same way. */
    const notConnected = (error) => {
        report('connect', error);
        if (isConnecting && allSockets === 0 && !isDraining) fail(placedText(error));
    };
    /* A script that never says a word about its state is live once it has connected. */
    const liveUnsaid = () => {
        if (hasState || isDraining) return;
        failures = 0;
        cancelTimer(patience);
        say('live', '');
    };

    /* What a classic script may register itself with: CommonJS, and the modules of SystemJS. */
    const moduleRecord = { exports: {} };
    let registered;
    const System = {
        register(name, dependencies, declare) {
            registered = isCallable(dependencies)
                ? { __proto__: null, needs: name, declare: dependencies }
                : { __proto__: null, needs: dependencies, declare };
        },
        registerDynamic(name, dependencies, isExecuting, execute) {
            execute((wanted) => globals.require(wanted), moduleRecord.exports, moduleRecord);
        },
    };
    globals.require = function require(name) {
        throw new Error('the script needs the module ' + name + '; bundle it into the file');
    };
    for (const [name, value] of [['module', moduleRecord], ['exports', moduleRecord.exports], ['require', globals.require], ['System', System]]) {
        defineProperty(globalThis, name, { value, writable: true, configurable: true });
    }

    const executed = () => {
        const exported = create(null);
        const add = (name, value) => {
            if (isObject(name)) eachKey(name, (one) => { exported[one] = name[one]; });
            else if (isCallable(name)) exported.default = name;
            else exported[StringOf(name)] = value;
            return value;
        };
        if (registered.needs.length > 0) globals.require(registered.needs[0]);
        const declared = registered.declare(add, { id: about.file });
        if (isCallable(declared.execute)) declared.execute();
        return exported;
    };
    const factoryIn = (where) => {
        if (isCallable(where)) return where;
        if (!isObject(where)) return undefined;
        if (isCallable(where.default)) return where.default;
        if (isCallable(where.activate)) return where.activate;
        return isObject(where.default) && isCallable(where.default.activate) ? where.default.activate : undefined;
    };
    const findFactory = () => {
        let space;
        try {
            space = evaluate(about.file, about.isModule);
        } catch (error) {
            if (!(error instanceof SyntaxError)) throw error;
            try {
                space = evaluate(about.file, !about.isModule);
            } catch {
                throw error;
            }
        }
        const found = factoryIn(space) ?? (registered === undefined ? undefined : factoryIn(executed())) ??
            factoryIn(moduleRecord.exports) ?? factoryIn({ activate: globalThis.activate });
        if (found === undefined) throw new Error('the script exports neither a function `activate` nor a class');
        return found;
    };
    const isClass = (callee) => {
        if (startsWith(textOfFunction(callee), 'class')) return true;
        const { prototype } = callee;
        return isObject(prototype) && (isCallable(prototype.connect) || isCallable(prototype._start));
    };
    const instanceOf = (factory, configuration) => {
        if (!isClass(factory)) {
            const made = factory(settings.stub_url, bus, configuration);
            return started(isObject(made) && isObject(made.instance) ? made.instance : made, configuration);
        }
        return started(construct(factory, isCallable(factory.prototype._start) ? [] : [settings.stub_url, bus, configuration]), configuration);
    };
    const started = (made, configuration) => {
        if (isObject(made) && isCallable(made._start)) made._start(settings.stub_url, bus, configuration);
        return made;
    };

    const onStart = (_, text) => {
        settings = setPrototypeOf(parseJson(text), null);
        settings.endpoints = setPrototypeOf(settings.endpoints, null);
    };
    const configure = (header) => {
        about = setPrototypeOf(parseJson(header), null);
        const http = isArray(about.http) ? setPrototypeOf(about.http, null) : plainList();
        for (let i = 0; i < http.length; i++) setAdd(httpEndpoints, http[i]);
        if (setSize(httpEndpoints) > 0) {
            defineProperty(globalThis, 'fetch', { value: fetch, writable: true, configurable: true });
            defineProperty(globalThis, 'XMLHttpRequest', { value: XMLHttpRequest, writable: true, configurable: true });
        } else {
            /* What clients of Engine.IO keep the callbacks of their script tags in. Where it fails, they go on to WebSocket. */
            defineProperty(globalThis, '___eio', { get() { throw new Error('there is no HTTP endpoint'); }, configurable: true });
        }
        const endpointUrl = settings.endpoints.length > 0 ? 'wss://' + settings.endpoints[0] + '.endpoint' : '';
        const configuration = { url: endpointUrl, messagingnode: endpointUrl, runtimeURL: settings.stub_url };
        for (const given of [about.configuration, settings.configuration]) {
            if (isObject(given)) for (const name of keys(given)) configuration[name] = given[name];
        }
        const own = isObject(configuration.adapter) ? setPrototypeOf(configuration.adapter, null) : create(null);
        delete configuration.adapter;
        about.runtimeURL = StringOf(configuration.runtimeURL);
        about.manager = typeof own.msg_node === 'string' ? own.msg_node : 'domain://msg-node.' + settings.peer_domain + '/sm';
        about.subscriptions = typeof own.subscriptions === 'string' ? own.subscriptions : 'new';
        return configuration;
    };
    let hasScript = false;
    const onScript = (_, header) => {
        if (hasScript) return;
        hasScript = true;
        try {
            const configuration = configure(header);
            instance = instanceOf(findFactory(), configuration);
        } catch (error) {
            fail(placedText(error));
            return;
        }
        if (state === '') say('created', '');
        if (allSockets > 0) watch();
        else connect();
    };
    /* An error with its place in the script, in one line. */
    const placedText = (error) => {
        const text = shortTextOf(error);
        let stack = '';
        try {
            stack = error instanceof Error && typeof error.stack === 'string' ? error.stack : '';
        } catch { /* no place then */ }
        const at = indexOf(stack, 'at ');
        if (at < 0) return text;
        const end = indexOf(stack, '\n', at);
        return text + ' (' + slice(stack, at, end < 0 ? stack.length : end) + ')';
    };

    // ------------------------------------------------------------------------------------------------------------------- handlers

    const onChannel = (what) => (channel, bytes, flags) => {
        const owner = mapGet(channels, channel);
        if (owner === undefined) return;
        if (owner.socket !== undefined) {
            if (bytes === null) {
                log(ERROR, 'a frame of more than 1 MiB came: the line is closed');
                act(CLOSE, 0, channel);
            } else {
                hearSocket(owner.socket, what, bytes);
            }
        } else if (what === 'closed') {
            mapDelete(channels, channel);
            const { done } = owner;
            owner.done = undefined;
            if (isCallable(done)) done(undefined, bytes);
        }
    };
    const onDrain = () => {
        isDraining = true;
        const method = isObject(instance) ? instance.disconnect : undefined;
        if (isCallable(method)) callScript('disconnect', method, instance, []);
    };
    const finish = () => {
        if (handled > 0) act(ACCEPTED, 0, handled);
        handled = 0;
        isConnecting = false;
        armTimer();
    };
    const nothing = () => {};

    return [finish, onStart, onMessage, onChannel('opened'), onChannel('data'), onChannel('closed'), onTimer, onHttpResponse, nothing,
        nothing, onDrain, onAddresses, onScript];
})
