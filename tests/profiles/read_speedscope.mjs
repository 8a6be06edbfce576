// Reads profiles with speedscope's own code, whatever their format, and prints what it shows of each as JSON.
//
// usage: node read_speedscope.mjs NODE_MODULES FILE...
//
// The package is a page for browsers: its script is run here without one. What it draws comes to nothing; the function by which the page
// opens a file is taken out by the place where the page offers it. A file of its own format must also keep to the published schema.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import vm from "node:vm";

const [modules, ...files] = process.argv.slice(2);
const page = path.join(modules, "speedscope/dist/release");
const own = "https://www.speedscope.app/file-format-schema.json";

// Stands for the document and whatever else a page has: each part of it is one more of these.
const nothing = () =>
  new Proxy(function () {}, {
    get: (_, key) => {
      if (key === Symbol.toPrimitive) return () => "";
      return key === Symbol.iterator || key === "then" ? undefined : nothing();
    },
    apply: nothing,
    construct: nothing,
    set: () => true,
  });

const script = fs.readdirSync(page).find((name) => /^speedscope-.*\.js$/.test(name));
let text = fs.readFileSync(path.join(page, script), "utf8");
const offered = /loadFileFromBase64:\((\w+),(\w+)\)=>\{this\.loadProfile\(\(\)=>(\w+)\(\1,\2\)\)/.exec(text);
const begin = text.indexOf("(()=>{") + "(()=>{".length;
text = `${text.slice(0, begin)}globalThis.open_file=(...told)=>${offered[3]}(...told);${text.slice(begin)}`;
const quiet = { error() {}, log() {}, warn() {} };
const browser = vm.createContext({ ArrayBuffer, TextDecoder, TextEncoder, URL, Uint8Array, atob, console: quiet, performance });
for (const name of ["document", "localStorage", "location", "navigator", "matchMedia", "getComputedStyle", "fetch"]) {
  browser[name] = nothing();
}
for (const name of ["addEventListener", "clearTimeout", "requestAnimationFrame", "setTimeout"]) browser[name] = () => {};
browser.window = browser.self = browser;
try {
  vm.runInContext(text, browser);
} catch {
  // There is nothing to draw on; everything that reads files is defined before.
}

const require = createRequire(path.resolve(modules, "x.js"));
const Ajv = require("ajv");
const schema = JSON.parse(fs.readFileSync(path.join(page, "file-format-schema.json"), "utf8"));
const keeps = new Ajv({ strict: false }).compile(schema);

for (const file of files) {
  const bytes = fs.readFileSync(file);
  if (file.endsWith(".json")) {
    const value = JSON.parse(bytes.toString("utf8"));
    if (value.$schema !== own || !keeps(value)) throw new Error(`${file}: ${JSON.stringify(keeps.errors)}`);
  }
  const group = await browser.open_file(path.basename(file), bytes.toString("base64"));
  const profiles = group.profiles.map((profile) => {
    const stacks = {};
    const open = [];
    const name = ({ frame }) => [frame.name, frame.file ?? "", frame.line ?? 0].join("|");
    // Calls come with their begin and end on the axis of the values; what lies between two events is the open stack's.
    let at = 0;
    const to = (value) => {
      if (value > at) stacks[open.join(";")] = (stacks[open.join(";")] ?? 0) + value - at;
      at = value;
    };
    profile.forEachCall(
      (node, value) => (to(value), open.push(name(node))),
      (_, value) => (to(value), open.pop()),
    );
    return { name: profile.getName(), unit: profile.getWeightUnit(), total: profile.getTotalWeight(), stacks };
  });
  console.log(JSON.stringify(profiles));
}
