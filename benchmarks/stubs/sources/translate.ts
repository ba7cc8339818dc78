// translate: reads the members of each message, and writes them again under other names. See translate.js.
import * as stub from "./trapezoid_stub";

export const STUB_NAME: string = "translate";
export const STUB_VERSION: string = "1.0.0";

/** A value that is only passed on stays the text that it stands as. */
function member(writer: stub.Writer, head: string, value: stub.Bytes): void {
  writer.put(head);
  if (value.isEmpty) writer.put("null");
  else writer.put(value);
}

function onMessage(number: u32, message: stub.Bytes): void {
  const writer = stub.write().put('{"seq":').put(stub.jsonMember(message, "id"));
  const body = stub.jsonMember(message, "body");
  member(writer, ',"verb":', stub.jsonMember(message, "type"));
  member(writer, ',"source":', stub.jsonMember(message, "from"));
  member(writer, ',"target":', stub.jsonMember(message, "to"));
  member(writer, ',"realm":', stub.jsonMember(stub.jsonMember(body, "identity"), "idp"));
  member(writer, ',"content":', stub.jsonMember(body, "value"));
  stub.send(1, writer.put("}").bytes);
  stub.accepted(number);
}

export function onEvent(event: stub.Event): void {
  if (event.op == stub.START) {
    stub.status("created");
    stub.open(1, stub.WEBSOCKET, '{"endpoint":"mn","text":true}');
  }
  if (event.op == stub.OPENED) stub.status("live");
  if (event.op == stub.MESSAGE) onMessage(event.arg, event.bytes);
}
