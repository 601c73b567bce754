// Builds %name%.wasm: the code with its engine, and the manifest as the custom section `ringwall:tool`.

import { readFile, writeFile } from "node:fs/promises";

import { componentize } from "@bytecodealliance/componentize-js";

function leb128(number) {
  const bytes = [];
  do {
    const low = number & 0x7f;
    number >>>= 7;
    bytes.push(low | (number ? 0x80 : 0));
  } while (number);
  return Buffer.from(bytes);
}

const { component } = await componentize({
  sourcePath: "tool.js",
  witPath: "wit",
  worldName: "tool-world",
  disableFeatures: ["http", "fetch-event"],
});
const manifest = JSON.stringify(JSON.parse(await readFile("tool.json", "utf8")));
const name = Buffer.from("ringwall:tool");
const body = Buffer.concat([leb128(name.length), name, Buffer.from(manifest)]);
const section = Buffer.concat([Buffer.from([0]), leb128(body.length), body]);
await writeFile("%name%.wasm", Buffer.concat([component, section]));
