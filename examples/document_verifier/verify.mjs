// Judges the documents of interop/documents/ as docs/spec/trust-and-hosts.md says, sections 3.3 to 3.6: a verifier in
// another language, with the standard library of Node 18 or later, and nothing else.
//
//   node verify.mjs ../../interop/documents [--json] [id …]
//
// Exit code 0: it agrees with every expected verdict; 1: it does not, and says where; 2: the files cannot be read.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";

const ROOT = "application/vnd.rethink.root.v1+json";
const LIVE = "application/vnd.rethink.live.v1+json";
const MANIFEST = "application/vnd.rethink.stub-manifest.v1+json";
const LIMITS = { [ROOT]: 64 << 10, [LIVE]: 50 << 10, [MANIFEST]: 16 << 10 };
const SPECS = { [ROOT]: "rmn-root/1", [LIVE]: "rmn-live/1", [MANIFEST]: "rmn-stub/1" };
const MODULE_BYTES = 2 << 20;
const SIGNATURES = 32;
const ROOT_STEPS = 64;
const JUMP = 1_000_000;
const AHEAD_SECONDS = 300;
const LIVE_SECONDS = 7 * 86_400;

class Refused extends Error {}

function demand(holds, why) {
  if (!holds) throw new Refused(why);
}

// JSON, strictly: RFC 8259, and no member twice, no number beyond all doubles, no half of a character (section 3.3).

const LEVELS = 64;

function parse(bytes, what) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused(`${what}: not UTF-8`);
  }
  let at = 0;
  const wrong = (why) => new Refused(`${what}: ${why} at character ${at}`);
  const blank = () => {
    while (" \t\r\n".includes(text[at] ?? "x")) at++;
  };
  const token = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found === null) throw wrong("no JSON");
    at = pattern.lastIndex;
    return found[0];
  };
  const string = () => {
    const value = JSON.parse(token(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y));
    if (/\p{Surrogate}/u.test(value)) throw wrong("half a character");
    return value;
  };
  const list = (open, close, item) => {
    token(open);
    blank();
    for (let is_first = true; text[at] !== close; is_first = false) {
      if (!is_first) token(/,/y);
      blank();
      item();
      blank();
    }
    at++;
  };
  const value = (level) => {
    if (level > LEVELS) throw wrong("too many levels");
    blank();
    const first = text[at];
    if (first === '"') return string();
    if (first === "{") {
      const members = Object.create(null);
      list(/\{/y, "}", () => {
        const name = string();
        if (name in members) throw wrong(`${name} twice`);
        blank();
        token(/:/y);
        members[name] = value(level + 1);
      });
      return members;
    }
    if (first === "[") {
      const items = [];
      list(/\[/y, "]", () => items.push(value(level + 1)));
      return items;
    }
    const literal = token(/true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
    const read = JSON.parse(literal);
    if (read === Infinity || read === -Infinity) throw wrong("a number beyond all doubles");
    return read;
  };
  const read = value(0);
  blank();
  if (at !== text.length) throw wrong("something behind the document");
  demand(isObject(read), `${what}: no object`);
  return read;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === "string" && value !== "";
const isCount = (value) => Number.isSafeInteger(value) && value >= 1;
const isList = (value, each) => Array.isArray(value) && value.every(each);
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

function seconds(text, what) {
  demand(isText(text) && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text), `${what} is no time`);
  const value = Date.parse(text) / 1000;
  demand(Number.isFinite(value), `${what} is no time`);
  return value;
}

function fromBase64(text, encoding, what) {
  const bytes = Buffer.from(text, encoding);
  demand(bytes.toString(encoding) === text, `${what} is no ${encoding}`);
  return bytes;
}

// Keys and envelopes.

// Encodings of the points of small order, without the bit of the sign: one signature of such a key fits every text.
const SMALL_ORDER = new Set([
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]);

function publicKey(record, id) {
  demand(isObject(record) && isText(record.pub), `key ${id} is malformed`);
  const raw = fromBase64(record.pub, "base64url", `key ${id}`);
  if (record.alg === "ed25519") {
    demand(raw.length === 32, `key ${id} has not 32 bytes`);
    const unsigned = Buffer.from(raw);
    unsigned[31] &= 0x7f;
    demand(!SMALL_ORDER.has(unsigned.toString("hex")), `key ${id} is of small order`);
    return createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x: record.pub } });
  }
  demand(record.alg === "p256" && raw.length === 65 && raw[0] === 4, `key ${id} is of no kind that is known`);
  const [x, y] = [raw.subarray(1, 33), raw.subarray(33)].map((part) => part.toString("base64url"));
  try {
    return createPublicKey({ format: "jwk", key: { kty: "EC", crv: "P-256", x, y } });
  } catch {
    throw new Refused(`key ${id} is no point of P-256`);
  }
}

function openEnvelope(bytes, type) {
  const envelope = parse(bytes, "envelope");
  demand(isText(envelope.payloadType) && isText(envelope.payload), "the envelope is malformed");
  const signatures = envelope.signatures;
  demand(isList(signatures, (one) => isObject(one) && isText(one.keyid) && typeof one.sig === "string"), "signatures");
  demand(signatures.length <= SIGNATURES, "too many signatures");
  demand(envelope.payloadType === type, `${envelope.payloadType} in place of ${type}`);
  const raw = fromBase64(envelope.payload, "base64", "the payload");
  const document = parse(raw, "payload");
  demand(document.spec === SPECS[type], `an unknown spec: ${document.spec}`);
  // DSSE, "PAE": what is signed are type and payload with their lengths.
  const signed = Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${raw.length} `), raw]);
  return { document, signatures, signed, sha256: sha256(raw) };
}

/** Ids of those keys of a role that signed. */
function signersOf(opened, root, role) {
  const found = new Set();
  for (const { keyid, sig } of opened.signatures) {
    if (!root.roles[role].keys.includes(keyid) || found.has(keyid)) continue;
    const raw = Buffer.from(sig, "base64");
    const is_ed25519 = root.keys[keyid].alg === "ed25519";
    const key = publicKey(root.keys[keyid], keyid);
    const options = is_ed25519 ? key : { key, dsaEncoding: "ieee-p1363" };
    if (raw.length === 64 && verifySignature(is_ed25519 ? null : "sha256", opened.signed, options, raw)) found.add(keyid);
  }
  return [...found];
}

function demandSigned(opened, root, role, who) {
  demand(signersOf(opened, root, role).length >= root.roles[role].threshold, `${who} did not sign enough`);
}

function readRoot(bytes, version, domain) {
  const opened = openEnvelope(bytes, ROOT);
  const { document: root } = opened;
  demand(root.domain === domain, "a root of another domain");
  demand(isCount(root.version) && isObject(root.keys) && isObject(root.roles), "the root is malformed");
  root.issuedSeconds = seconds(root.issued, "issued");
  root.expiresSeconds = seconds(root.expires, "expires");
  const publics = Object.entries(root.keys).map(([id, record]) => [publicKey(record, id), record.pub][1]);
  demand(new Set(publics).size === publics.length, "one key under two ids");
  for (const name of ["root", "live", "pkg"]) {
    const role = root.roles[name];
    demand(isObject(role) && isList(role.keys, (id) => isText(id) && id in root.keys), `role ${name} names no key`);
    demand(new Set(role.keys).size === role.keys.length, `role ${name} names a key twice`);
    demand(isCount(role.threshold) && role.threshold <= role.keys.length, `the threshold of role ${name}`);
  }
  demand(root.version === version, `root ${root.version} in the place of ${version}`);
  return opened;
}

// The structure of a module: section 3.6, step 5.

function readModule(bytes, manifest) {
  demand(bytes.subarray(0, 8).equals(Buffer.from("\0asm\x01\0\0\0", "latin1")), "no core module");
  let at = 8;
  const number = () => {
    for (let value = 0, shift = 0; shift < 35; shift += 7) {
      demand(at < bytes.length, "the module ends early");
      const byte = bytes[at++];
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new Refused("a number without an end");
  };
  while (at < bytes.length) {
    const id = bytes[at++];
    const size = number();
    const end = at + size;
    demand(end <= bytes.length, "a section ends outside of the module");
    demand(id !== 8, "the module has a start function");
    if (id === 5) {
      demand(number() === 1, "more than one memory");
      demand(number() === 1, "a memory without a maximum");
    }
    at = end;
  }
  demand(WebAssembly.validate(bytes), "not a valid module");
  const module = new WebAssembly.Module(bytes);
  demand(WebAssembly.Module.imports(module).length === 0, "the module has imports");
  const exported = new Map(WebAssembly.Module.exports(module).map(({ name, kind }) => [name, kind]));
  const needed = { memory: "memory", window: "function", handle: "function" };
  for (const [name, kind] of Object.entries(needed)) demand(exported.get(name) === kind, `no ${kind} ${name}`);
  const contracts = WebAssembly.Module.customSections(module, "trapezoid-stub");
  demand(contracts.length === 1, "no section that names its ABI");
  const contract = parse(new Uint8Array(contracts[0]), "the section trapezoid-stub");
  demand(`${contract.abi}` === manifest.abi.version.split(".")[0], "another ABI than its manifest says");
}

/** True if a permission asks for more than its predecessor. */
function grows(before, after) {
  if (after === undefined || after === false || isDeepStrictEqual(before, after)) return false;
  if (Array.isArray(after)) return after.some((one) => !(before ?? []).includes(one));
  return !(typeof after === "number" && before >= after);
}

// A verifier: what it remembers of one domain, and a refresh.

class Verifier {
  constructor(domain, ours) {
    Object.assign(this, { domain, ours, root: null, live: null, stubs: new Map(), files: new Map() });
  }

  fetch(url, maximum) {
    const bytes = this.files.get(url);
    demand(bytes !== undefined, `404 for ${url}`);
    demand(bytes.length <= maximum, `${url} is too large`);
    return bytes;
  }

  refresh(now, what) {
    const wellKnown = `https://${this.domain}/.well-known/rethink-mn`;
    const opened = openEnvelope(this.fetch(wellKnown, LIMITS[LIVE]), LIVE);
    const live = opened.document;
    demand(live.domain === this.domain, "a live document of another domain");
    demand(isObject(live.root) && isCount(live.root.version) && isText(live.root.sha256), "live.root is malformed");
    this.followRoots(live.root.version, wellKnown);
    demand(this.root.document.expiresSeconds > now, "the root has expired");
    this.takeLive(opened, now);
    if (what === "stub") this.takeStub(live, now, wellKnown);
  }

  followRoots(version, wellKnown) {
    const place = (number) => this.fetch(`${wellKnown}/root/${number}`, LIMITS[ROOT]);
    if (this.root === null) {
      const first = readRoot(place(version), version, this.domain);
      demandSigned(first, first.document, "root", "its own root keys");
      this.root = first;
      return;
    }
    const known = this.root.document.version;
    demand(version >= known, "an older root than the known one");
    demand(version - known <= ROOT_STEPS, "too many roots at once");
    for (let number = known + 1; number <= version; number++) {
      const next = readRoot(place(number), number, this.domain);
      demandSigned(next, this.root.document, "root", "the keys before (broken trust)");
      demandSigned(next, next.document, "root", "its own root keys");
      if (hasLostKey(this.root.document, next.document, "live")) this.live = null;
      if (hasLostKey(this.root.document, next.document, "pkg")) {
        for (const mark of this.stubs.values()) Object.assign(mark, { serial: 0, manifest: "" });
      }
      this.root = next;
    }
  }

  takeLive(opened, now) {
    const live = opened.document;
    demandSigned(opened, this.root.document, "live", "the live keys");
    demand(live.root.sha256 === this.root.sha256, "another root than the one at its place");
    demand(isCount(live.serial), "live.serial is malformed");
    const named = (one) => isObject(one) && isText(one.name) && isText(one.url);
    demand(isList(live.endpoints, named) && live.endpoints.length > 0, "no endpoint");
    demand(new Set(live.endpoints.map(({ name }) => name)).size === live.endpoints.length, "two endpoints of one name");
    const issued = seconds(live.issued, "issued");
    const expires = seconds(live.expires, "expires");
    demand(issued <= now + AHEAD_SECONDS, "issued in the future");
    demand(expires > now, "the live document has expired");
    demand(expires - issued <= LIVE_SECONDS, "valid for too long");
    if (this.live !== null) {
      demand(live.serial >= this.live.serial, "an older live document");
      demand(live.serial > this.live.serial || opened.sha256 === this.live.sha256, "an equal serial with other bytes");
      demand(live.serial - this.live.serial <= JUMP, "the serial jumps");
    }
    this.live = { serial: live.serial, sha256: opened.sha256 };
  }

  takeStub(live, now, wellKnown) {
    const { name, serial, manifest_sha256: digest } = live.stubs.default;
    const opened = openEnvelope(this.fetch(`${wellKnown}/manifest/${name}`, LIMITS[MANIFEST]), MANIFEST);
    demand(opened.sha256 === digest, "another manifest than live says");
    const revoked = { modules: [], keys: [], min_serial: {}, ...live.revoked };
    const { keys, roles } = this.root.document;
    const signing = roles.pkg.keys.filter((id) => !revoked.keys.includes(id));
    const pkg = { ...roles.pkg, keys: signing };
    demandSigned(opened, { keys, roles: { pkg } }, "pkg", "the package keys that are not revoked");
    const manifest = opened.document;
    demand(manifest.domain === this.domain, "a manifest of another domain");
    demand(manifest.name === name && manifest.serial === serial && isCount(serial), "another name or serial");
    demand(seconds(manifest.released, "released") <= now + AHEAD_SECONDS, "released in the future");
    demand(seconds(manifest.expires, "expires") > now, "the manifest has expired");
    demand(serial >= (revoked.min_serial[name] ?? 0), "below min_serial");
    demand(!revoked.modules.includes(manifest.module.sha256), "the module is revoked");
    demand(manifest.for_domains.some((one) => one === "*" || one === this.ours), "not for our domain");
    const { name: abi, version } = manifest.abi;
    demand(abi === "trapezoid-stub" && /^1\.\d+$/.test(version), "an ABI that is not known");
    const permissions = manifest.permissions ?? {};
    demand(!permissions.ranges?.length || manifest.interworking === true, "ranges without `interworking`");
    this.demandNewer(name, manifest, permissions);
    const { urls, size, sha256: expected } = manifest.module;
    demand(size <= MODULE_BYTES, "the module is too large");
    const bytes = this.fetch(urls[0], MODULE_BYTES);
    demand(bytes.length === size && sha256(bytes) === expected, "another module than the manifest says");
    readModule(bytes, manifest);
    const { interworking = false } = manifest;
    this.stubs.set(name, { serial, module: expected, permissions: { ...permissions, interworking } });
  }

  demandNewer(name, { serial, module, interworking }, permissions) {
    const mark = this.stubs.get(name);
    if (mark === undefined) return;
    if (mark.serial) {
      demand(serial >= mark.serial, "an older stub");
      demand(serial > mark.serial || module.sha256 === mark.module, "an equal serial with another module");
      demand(serial - mark.serial <= JUMP, "the serial jumps");
    }
    for (const [what, after] of Object.entries({ ...permissions, interworking })) {
      demand(!grows(mark.permissions[what], after), `asks for more: ${what} (held)`);
    }
  }
}

/** True if a key of a role is gone: then what it signed counts no more, and serials begin anew. */
function hasLostKey(before, after, role) {
  const publics = (root) => root.roles[role].keys.map((id) => root.keys[id].pub);
  const left = publics(after);
  return publics(before).some((one) => !left.includes(one));
}

function judge(folder, index, { id, file }) {
  const verifier = new Verifier(index.domain, index.verifier);
  return JSON.parse(readFileSync(join(folder, file), "utf8")).editions.map((edition, number) => {
    for (const [url, text] of Object.entries(edition.files)) verifier.files.set(url, Buffer.from(text, "base64"));
    let why = "";
    try {
      verifier.refresh(edition.now, edition.verify);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      why = error.message;
    }
    return { id, edition: number + 1, expected: edition.verdict, verdict: why ? "refused" : "accepted", why };
  });
}

const options = process.argv.slice(2);
const asJson = options.includes("--json");
const [folder, ...wanted] = options.filter((one) => one !== "--json");
let index;
try {
  index = JSON.parse(readFileSync(join(folder, "index.json"), "utf8"));
} catch (error) {
  console.error(`node verify.mjs FOLDER [--json] [id …]: ${error.message}`);
  process.exit(2);
}
const cases = index.cases.filter(({ id }) => !wanted.length || wanted.includes(id));
const rows = cases.flatMap((one) => judge(folder, index, one));
const wrong = rows.filter(({ verdict, expected }) => verdict !== expected);
if (asJson) {
  console.log(JSON.stringify(rows));
} else {
  for (const row of wanted.length ? rows : wrong) {
    console.log(`${row.id}, edition ${row.edition}: ${row.verdict}, expected ${row.expected}${row.why && `: ${row.why}`}`);
  }
  console.log(`${cases.length} cases, ${rows.length} editions, ${wrong.length} judged otherwise`);
}
process.exit(wrong.length ? 1 : 0);
