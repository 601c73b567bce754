// Times calls of a WASI preview 1 command in Node: a fresh WASI and a fresh instance of a compiled
// module, run to its end.
//
// Usage: node node-wasi.mjs MODULE. For each line of standard input it makes one call and writes the
// nanoseconds that it took; what goes wrong is written as `error: ...`.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { WASI } from 'node:wasi';

try {
  const module = new WebAssembly.Module(readFileSync(process.argv[2]));
  for await (const _ of createInterface({ input: process.stdin })) {
    const begun = process.hrtime.bigint();
    const wasi = new WASI({ version: 'preview1', returnOnExit: true });
    wasi.start(new WebAssembly.Instance(module, wasi.getImportObject()));
    console.log(String(process.hrtime.bigint() - begun));
  }
} catch (error) {
  console.log(`error: ${String(error).replaceAll('\n', ' ')}`);
  process.exit(1);
}
