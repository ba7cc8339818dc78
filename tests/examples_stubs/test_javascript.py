"""The interpreter of JavaScript stubs and its prelude: what a script finds, and what it cannot break."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sandbox.core.exchange import FLAG_SNAPSHOT, Action, Event, GuestEvent
from tests.examples_stubs.javascript import RELAY, SCRIPTS, STUB, JavaScript, statuses, texts

LIVE = '{"id":1,"type":"response","from":"mn:/session","to":"x","body":{"code":200}}'


def relay() -> JavaScript:
    stub = JavaScript(RELAY)
    assert statuses(stub.opened()) == ["live"]
    stub.call(GuestEvent(Event.ADDRESSES, 0, b"+hyperty://a.example/1\n", FLAG_SNAPSHOT))
    return stub


def message(**members: object) -> str:
    return json.dumps(
        {"id": 7, "type": "create", "from": "hyperty://a.example/1", "to": "hyperty://b.example/2", **members}
    )


def logged(script: str) -> list[str]:
    """What a script says on the console while it is loaded."""
    return texts(JavaScript(f"{script}\nmodule.exports = () => ({{}});").first, Action.LOG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("let a = 1;\nlet b = ;", "SyntaxError: unexpected token in expression: ';' (at stub.js:2:9)"),
        ("export default (", "SyntaxError"),
        (
            "import io from 'socket.io-client'; export default io;",
            "ReferenceError: could not load module 'socket.io-client'",
        ),
        (
            "const io = require('socket.io-client');",
            "the script needs the module socket.io-client; bundle it into the file",
        ),
        ("System.register(['minibus'], () => ({}));", "the script needs the module minibus"),
        ("var x = 1;", "the script exports neither a function `activate` nor a class"),
        ("", "the script exports neither a function `activate` nor a class"),
        (
            "export default () => { throw new TypeError('no url') };",
            "failed TypeError: no url (at default (stub.js:1:34))",
        ),
        ("await new Promise(() => {}); export default 1;", "a top-level await that does not end at once"),
        ("export default () => { null.x };", "TypeError: cannot read property 'x' of null"),
        ("throw null;", "failed null"),
    ],
)
def test_script_that_cannot_start_reports_failed_and_why(text: str, why: str) -> None:
    [status] = statuses(JavaScript(text).first)
    assert status.startswith("failed ")
    assert why in status


@pytest.mark.parametrize(
    "text",
    [
        "export default class { constructor(url) { console.log(url); } }",
        "export default { activate(url) { console.log(url); return {}; } };",
        "export function activate(url) { console.log(url); }",
        "exports.activate = function (url) { console.log(url); };",
        "module.exports = { default: function (url) { console.log(url); } };",
        "System.register('n', [], (add) => ({ execute() { add('default', (url) => console.log(url)); } }));",
        "var activate = function (url) { console.log(url); };",
        "function Old(url) { console.log(url); } Old.prototype.connect = function () {}; module.exports = Old;",
        "module.exports = class { _start(url) { console.log(url); } };",
    ],
)
def test_factory_or_class_is_found_however_it_is_exported(text: str) -> None:
    assert texts(JavaScript(text).first, Action.LOG) == [STUB]


def test_configuration_is_that_of_the_package_then_that_of_the_operator() -> None:
    script = "module.exports = (url, bus, config) => { console.log(JSON.stringify(config)); };"
    stub = JavaScript(script, about={"configuration": {"a": 1, "b": 1}}, configuration={"b": 2, "adapter": {}})
    [config] = [json.loads(line) for line in texts(stub.first, Action.LOG)]
    assert config == {
        "url": "wss://mn.endpoint", "messagingnode": "wss://mn.endpoint", "runtimeURL": STUB, "a": 1, "b": 2
    }  # fmt: skip


def test_urls_of_the_script_become_endpoints_or_are_refused() -> None:
    script = """module.exports = () => { for (const url of ['wss://mn.endpoint:80/a?b=c', 'wss://far.example/ws/x',
        'wss://else.example/', 'nonsense']) new WebSocket(url).onerror = () => console.log(url); };"""
    stub = JavaScript(script, about={"endpoints": {"wss://far.example/ws": "mn"}})
    assert [json.loads(one)["path"] for one in texts(stub.first, Action.OPEN)] == ["/a?b=c", "/x"]
    assert len(texts(stub.first, Action.LOG)) == 2
    assert texts(stub.after(5), Action.LOG) == ["wss://else.example/", "nonsense"]


def test_there_is_no_http_without_an_endpoint_for_it() -> None:
    assert logged("console.log(typeof fetch, typeof XMLHttpRequest, typeof window)") == [
        "undefined undefined undefined"
    ]


def test_polling_by_script_tags_fails_so_that_clients_of_engine_io_go_on_to_websocket() -> None:
    assert logged("try { self.___eio; } catch (error) { console.log(error.message); }") == ["there is no HTTP endpoint"]


def test_fetch_and_xml_http_request_go_through_http_channels() -> None:
    script = """module.exports = () => {
        fetch('https://api.endpoint/a', {method: 'post', headers: {'X-Kind': 'k'}, body: 'data'})
            .then((answer) => answer.json()).then((value) => console.log(value.n));
        const request = new XMLHttpRequest();
        request.onload = () => console.log(request.status, request.responseText, request.getResponseHeader('X-B'));
        request.open('GET', 'https://api.endpoint/b');
        request.send();
        fetch('https://mn.endpoint/').catch((error) => console.log(error.message));
    };"""
    stub = JavaScript(script, about={"http": ["api"], "endpoints": {"https://api.endpoint": "api"}})
    asked = [json.loads(one) for one in texts(stub.first, Action.OPEN)]
    assert asked == [
        {"endpoint": "api", "path": "/a", "method": "POST", "headers": {"x-kind": "k"}, "body": "data"},
        {"endpoint": "api", "path": "/b", "method": "GET"},
    ]
    answers = [b'{"status":200,"headers":{}}\n{"n":5}', b'{"status":404,"headers":{"x-b":"c"}}\nno']
    heard = stub.call(*[GuestEvent(Event.HTTP_RESPONSE, n, one) for n, one in enumerate(answers, start=1)])
    assert texts(heard, Action.LOG) == ["5", "404 no c"]
    assert texts(stub.after(5), Action.LOG) == ["https://mn.endpoint/ is no HTTP endpoint of this stub"]


def test_timers_fire_in_their_order_and_never_at_once() -> None:
    script = """module.exports = () => {
        setTimeout((a) => console.log('b', a), 20, 'x'); setTimeout(() => console.log('a'));
        const every = setInterval(() => { console.log('i'); clearInterval(every); }, 10);
        clearTimeout(setTimeout(() => console.log('never'), 5)); };"""
    stub = JavaScript(script)
    assert texts(stub.first, Action.LOG) == []
    [armed] = [action.payload for action in stub.first if action.op == Action.SET_TIMER]
    assert int.from_bytes(armed, "little") == 1
    assert texts(stub.after(1), Action.LOG) == ["a"]
    assert texts(stub.after(30), Action.LOG) == ["i", "b x"]


def test_many_timers_of_one_moment_fire_within_the_fuel_of_their_event() -> None:
    script = "module.exports = () => { for (let i = 0; i < 450; i++) setTimeout(() => console.log(i), 5); };"
    stub, rounds = JavaScript(script), 1
    while any(action.op == Action.SET_TIMER for action in stub.after(1000)):
        rounds += 1
    assert rounds == 1 + 450 // 20


def test_more_timers_than_there_may_be_are_an_error_of_the_script() -> None:
    [status] = statuses(JavaScript("for (let i = 0; i < 501; i++) setTimeout(() => {}, 5);").first)
    assert status.startswith("failed Error: too many timers")


def test_second_script_is_not_heard() -> None:
    stub = relay()
    assert statuses(stub.call(GuestEvent(Event.SCRIPT, 0, b"{"))) == []
    assert texts(stub.say(1, message()), Action.SEND)


def test_text_tools_of_a_browser_are_there() -> None:
    script = """const bytes = new TextEncoder().encode('gr\\u00fc\\u00df \\ud83d\\ude00\\ud800');
        console.log(btoa('hi') + atob('aGk='), bytes.length, new TextDecoder().decode(bytes).length);
        queueMicrotask(() => console.log('micro')); Promise.resolve(1).then(console.log);"""
    assert logged(script) == ["aGk=hi 14 8", "micro", "1"]


def test_console_is_bounded_and_what_cannot_be_shown_harms_nobody() -> None:
    script = """const loop = {}; loop.self = loop; console.error(loop, Symbol('s'), 10n, {get x() { throw 1; }});
        const long = 'x'.repeat(5000); for (let i = 0; i < 1000; i++) console.log(long);"""
    lines = logged(script)
    assert len(lines) == 10
    assert max(map(len, lines)) == 1000


def test_randomness_is_that_of_the_call() -> None:
    script = "console.log(Math.random(), Math.random())"
    assert logged(script) == logged(script)
    first, second = map(float, logged(script)[0].split())
    assert 0 <= first < 1
    assert first != second


@pytest.mark.parametrize(
    "number", ["9007199254740993", "-12345678901234567890123", "0.12345678901234567890", "1e400000000000000"]
)
@pytest.mark.parametrize(
    "copy", ["message", "{...message}", "Object.assign({}, message)", "JSON.parse(JSON.stringify(message))"]
)
def test_number_of_many_digits_leaves_as_it_came(number: str, copy: str) -> None:
    stub = JavaScript(RELAY.replace("JSON.stringify(message)", f"JSON.stringify({copy})"))
    stub.opened()
    text = f'{{"id":7,"from":"hyperty://b.example/2","to":"hyperty://a.example/1","body":{{"a\\u0062":[{{"n":{number}}}]}},"t":{number}}}'
    assert texts(stub.say(1, text), Action.SEND)[-1] == text.replace("\\u0062", "b")
    assert texts(stub.hear(text), Action.DELIVER) == [text.replace("\\u0062", "b")]


def test_number_that_the_script_has_changed_is_its_own() -> None:
    stub = JavaScript(RELAY.replace("line.send(", "message.body.n += 4096; line.send("))
    stub.opened()
    [sent] = texts(stub.say(1, message(body={"n": 2**53 + 1})), Action.SEND)[-1:]
    assert json.loads(sent)["body"]["n"] == 2**53 + 4096


def test_name_that_comes_twice_keeps_the_last_value() -> None:
    stub = relay()
    text = (
        '{"id":7,"from":"hyperty://a.example/1","to":"x","a":{"n":9007199254740993},"a":5,"b":9007199254740993,"b":"t"}'
    )
    [sent] = texts(stub.say(1, text), Action.SEND)[-1:]
    assert (json.loads(sent)["a"], json.loads(sent)["b"]) == (5, "t")


@pytest.mark.parametrize("id_", ["text", 2**30, 2**53 + 1, 0, -1, 1.5, None])
def test_id_that_is_no_small_integer_is_one_on_the_way_and_comes_back(id_: object) -> None:
    stub = relay()
    [sent] = texts(stub.say(1, message(id=id_)), Action.SEND)
    number = json.loads(sent)["id"]
    assert 2**30 <= number < 2**31
    answer = {"id": number, "type": "response", "from": "hyperty://b.example/2", "to": "hyperty://a.example/1"}
    forged = stub.hear(json.dumps({**answer, "to": "hyperty://a.example/other"}))
    assert json.loads(texts(forged, Action.DELIVER)[0])["id"] == number
    [delivered] = texts(stub.hear(json.dumps(answer)), Action.DELIVER)
    assert json.loads(delivered)["id"] == id_


def test_answer_to_a_message_without_an_id_is_nobodys() -> None:
    stub = relay()
    [sent] = texts(stub.say(1, '{"type":"update","from":"hyperty://a.example/1","to":"x"}'), Action.SEND)
    answer = {"id": json.loads(sent)["id"], "type": "response", "from": "x", "to": "hyperty://a.example/1"}
    assert texts(stub.hear(json.dumps(answer)), Action.DELIVER) == []


def test_what_the_script_throws_refuses_the_message_and_no_other() -> None:
    stub = JavaScript(RELAY.replace("line.send(", "if (message.id === 8) throw new RangeError('not that'); line.send("))
    stub.opened()
    actions = stub.call(*[GuestEvent(Event.MESSAGE, n, message(id=n).encode()) for n in (7, 8, 9)])
    refused = [(one.arg, one.payload) for one in actions if one.op == Action.REFUSED]
    assert refused == [(8, b"502 stub-refused RangeError: not that")]
    assert [one.arg for one in actions if one.op == Action.ACCEPTED] == [9]


@pytest.mark.parametrize(
    "value",
    ["x" * (1 << 20), [1] * 10_001, json.loads("[" * 110 + "]" * 110)],
    ids=["long", "many values", "nested"],
)
def test_message_beyond_the_limits_is_refused_as_too_large(value: object) -> None:
    stub = relay()
    [refused] = texts(stub.say(1, message(body=value)), Action.REFUSED)
    assert refused.startswith("413 too-large ")
    assert texts(stub.say(2, message()), Action.SEND)


def test_message_of_a_megabyte_passes() -> None:
    stub = relay()
    text = message(body={"value": "x" * ((1 << 20) - 300)})
    assert json.loads(texts(stub.say(1, text), Action.SEND)[0]) == json.loads(text)


def test_longer_frame_closes_its_line() -> None:
    actions = relay().hear("x" * ((1 << 20) + 1))
    assert [one.arg for one in actions if one.op == Action.CLOSE] == [1]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 60_000, '{"a":' * 5_000, "nonsense", b"\xff\xfe\x00", '"\\ud800"', "null"]
)
def test_nonsense_of_the_far_end_costs_a_line_in_the_log(text: str | bytes) -> None:
    stub = relay()
    assert len(texts(stub.hear(text), Action.LOG)) == 1
    assert texts(stub.say(1, message()), Action.SEND)


def test_script_is_asked_to_connect_again_and_lines_are_held_back_longer_each_time() -> None:
    stub = relay()
    opened, waited = [], []
    for channel in range(1, 6):
        stub.call(GuestEvent(Event.CLOSED, channel, b"link-lost reset"))
        milliseconds, actions = 0, stub.after(1)
        while not texts(actions, Action.OPEN):
            milliseconds += 100
            actions = stub.after(100)
        opened += texts(actions, Action.OPEN)
        waited.append(milliseconds)
    assert len(opened) == 5
    assert 500 <= waited[0] <= 700
    assert all(2 * 0.8 <= b / a <= 2 * 1.3 for a, b in pairwise(waited))


BROKEN = """
export default (url, bus) => ({instance: {
  connect() {
    if (this.lost) return this.again();
    this.socket = new WebSocket("wss://mn.endpoint");
    this.socket.onopen = () => this.say("live");
    this.socket.onclose = () => { this.lost = true; this.say("disconnected"); };
  },
  say(value) { bus.postMessage({type: "update", from: url, to: `${url}/status`, body: {value}}); },
  async again() { AGAIN }
}});
"""


@pytest.mark.parametrize("again", ["return this.gone.connected;", "await null; throw new TypeError('gone');"])
def test_script_that_cannot_connect_again_fails_at_once(again: str) -> None:
    stub = JavaScript(BROKEN.replace("AGAIN", again))
    stub.opened()
    stub.call(GuestEvent(Event.CLOSED, 1, b"closed 1001"))
    [state] = statuses(stub.after(2))
    assert state.startswith("failed TypeError: ")


def test_script_that_refuses_to_connect_after_waiting_for_something_may_try_again() -> None:
    stub = JavaScript(BROKEN.replace("AGAIN", "await new Promise(done => setTimeout(done, 5)); throw Error('later');"))
    stub.opened()
    stub.call(GuestEvent(Event.CLOSED, 1, b"closed 1001"))
    stub.after(2)
    heard = stub.after(7)
    assert statuses(heard) == []
    assert any("later" in line for line in texts(heard, Action.LOG))


def test_line_without_a_session_in_time_fails_the_instance() -> None:
    stub = JavaScript((SCRIPTS / "sessions.js").read_text())
    stub.opened()
    assert statuses(stub.after(19_000)) == []
    assert statuses(stub.after(21_000)) == ["failed the script is not live after 20 s"]


def test_draining_disconnects_and_opens_nothing_more() -> None:
    stub = JavaScript((SCRIPTS / "sessions.js").read_text())
    stub.opened()
    assert '"type":"close"' in texts(stub.call(GuestEvent(Event.DRAIN, 0, b"")), Action.SEND)[0]
    stub.call(GuestEvent(Event.CLOSED, 1, b"closed 1000"))
    assert texts(stub.after(60_000), Action.OPEN) == []


def test_script_that_breaks_the_language_breaks_nothing_of_the_adapter() -> None:
    stub = JavaScript((SCRIPTS / "sabotage.js").read_text())
    assert len(texts(stub.first, Action.OPEN)) == 1
    stub.opened()
    assert statuses(stub.hear(LIVE)) == ["live"]
    heard = stub.call(GuestEvent(Event.ADDRESSES, 0, b"+comm://a.example/2\n", FLAG_SNAPSHOT))
    assert json.loads(texts(heard, Action.SEND)[0])["body"]["resources"] == [
        "comm://a.example/2",
        "comm://a.example/2/subscription",
    ]
    assert json.loads(texts(heard, Action.DELIVER)[0])["body"]["resources"] == ["comm://a.example/2/changes"]
    sent = texts(stub.say(1, message(id="text", body={"n": 2**53 + 1})), Action.SEND)
    assert [json.loads(one)["type"] for one in sent] == ["subscribe", "create"]
    assert json.loads(sent[1])["body"]["n"] == 2**53 + 1
    answer = {"id": json.loads(sent[1])["id"], "type": "response", "from": "x", "to": "hyperty://a.example/1"}
    assert json.loads(texts(stub.hear(json.dumps(answer)), Action.DELIVER)[0])["id"] == "text"
    assert statuses(stub.call(GuestEvent(Event.CLOSED, 1, b"closed 1001"))) == ["disconnected"]
    assert len(texts(stub.after(10) + stub.after(700), Action.OPEN)) == 1


@pytest.mark.parametrize(
    "script",
    [
        "function f() { f(); } f();",
        "const o = { get x() { return '' + o.x; } }; o.x;",
        "const f = () => [1].map(f); f();",
        "const f = () => 'a'.replace(/a/, f); f();",
        "const p = new Proxy({}, { get: (t, k, r) => r.x }); p.x;",
        "const o = { toJSON: () => JSON.stringify(o) }; JSON.stringify(o);",
    ],
)
def test_endless_recursion_is_a_range_error_of_the_script(script: str) -> None:
    [status] = statuses(JavaScript(script).first)
    assert status.startswith("failed RangeError: Maximum call stack size exceeded")


def test_memory_stays_flat_over_many_messages() -> None:
    stub = relay()
    batch = [
        GuestEvent(Event.MESSAGE, n, message(id=f"t{n}", body={"value": "x" * 400}).encode()) for n in range(1, 17)
    ]
    for _ in range(100):
        stub.call(*batch)
    before = stub.memory_bytes
    for _ in range(300):
        stub.call(*batch)
    assert stub.memory_bytes == before


def test_bundle_of_200_kilobytes_starts_within_the_budget_of_a_call() -> None:
    filler = "".join(
        f"function helper{n}(a, b) {{ return a.map((x) => x + b).filter(Boolean).length; }}\n" for n in range(2_600)
    )
    stub = JavaScript(filler + RELAY.replace("export default ", "module.exports = "))
    assert len(filler) > 200_000
    assert len(texts(stub.first, Action.OPEN)) == 1
