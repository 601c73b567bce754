// The examples of the manifest are true, and what is wrong is refused.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { greet } from "./tool.js";

const manifest = JSON.parse(readFileSync(new URL("tool.json", import.meta.url)));

for (const { title, input, output } of manifest.examples) {
  test(title, () => assert.deepEqual(greet(input), output));
}

test("a blank name is refused", () => {
  assert.throws(() => greet({ name: " " }), { code: "bad-input" });
});
