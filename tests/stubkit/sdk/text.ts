import * as stub from "./trapezoid_stub";

export const STUB_NAME: string = "text";
export const STUB_VERSION = "1";
export const STUB_KIND = "connector";
export const STUB_CONFIGURATION = '{"type": "object"}';

const lines = new stub.Lines(16);

function answer(number: u32, json: stub.Bytes): void {
  const text = stub.jsonText(stub.jsonPath(json, "body.text"));
  const value = stub.jsonNumber(stub.jsonPath(json, "body.number"));
  const quoted = text === null ? "null" : stub.jsonQuote(text);
  const half = isNaN(value) ? "null" : i64(value / 2).toString();
  if (text !== null && stub.write().quote(text).text != quoted) stub.status("failed quotes differ");
  stub.deliver(stub.write().put('{"text":').put(quoted).put(',"half":').put(half).put("}").bytes, number);
}

export function onEvent(event: stub.Event): void {
  if (event.op == stub.START) stub.status("live");
  if (event.op == stub.MESSAGE) answer(event.arg, event.bytes);
  if (event.op == stub.DATA) {
    const whole = lines.add(event.bytes);
    if (whole === null) {
      stub.status("failed too-long");
      return;
    }
    for (let i = 0; i < whole.length; i++) stub.log(stub.INFO, whole[i]);
  }
}
