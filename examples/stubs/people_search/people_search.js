/*
 * people_search: the connector of people_search.c in JavaScript. It serves the address `domain://discovery.<domain>` of the domain
 * that runs it:
 *
 *     read, body.resource = "/people/ana"   ->   GET <endpoint>/people/ana   ->   200 with the JSON of the answer as value
 *
 * What the server says otherwise is the code of the answer: 404 stays 404, everything else is 502.
 *
 *     trapezoid stub adapt people_search.js --connector --http mn
 */
const LINES = 8; // so many requests at once are allowed to a stub
const PATH = /^\/[A-Za-z0-9/_.@-]*$/; // nothing that would have to be escaped, or that begins a query

export default function activate(address, bus, config) {
  let busy = 0;

  async function search({ type, body }) {
    if (type !== "read") return { code: 405, description: "the directory is read" };
    if (!PATH.test(body.resource)) return { code: 400, description: "resource is a path, such as /people/ana" };
    if (busy === LINES) return { code: 503, description: "all lines are busy" };
    busy++;
    try {
      const found = await fetch(config.url + body.resource); // `config.url` stands for the endpoint `mn`
      if (found.status === 404) return { code: 404, description: "not in the directory" };
      const value = found.ok ? await found.json() : null;
      if (value !== null && typeof value === "object") return { code: 200, value };
      return { code: 502, description: "the directory gave no usable answer" };
    } catch {
      return { code: 502, description: "the directory does not answer" };
    } finally {
      busy--;
    }
  }

  bus.addListener(address, async (asked) => {
    const body = await search(asked);
    bus.postMessage({ id: asked.id, type: "response", from: address, to: asked.from, body });
  });
  return {};
}
