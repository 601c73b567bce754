// What scripts find beside the language itself. Evaluated once, before the snapshot.
(log, random, setOutput) => {
  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return String(value);
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  };
  const at = (level) => (...values) => log(level, values.map(show).join(" "));
  const define = (object, name, value) =>
    Object.defineProperty(object, name, { value, writable: true, configurable: true });
  define(globalThis, "console", {
    log: at("info"), info: at("info"), debug: at("debug"), warn: at("warning"), error: at("error"),
  });
  // The state of the engine's own generator is part of the snapshot: every call would draw alike.
  define(Math, "random", random);
  define(globalThis, "output", (value) => setOutput(JSON.stringify(value)));
};
