// For a call that asked for `strict`: no code is made out of text. Evaluated before its script.
(() => {
  const refuse = function () {
    throw new EvalError("code out of text (eval, Function) is refused: the call is `strict`");
  };
  // So that `instanceof Function` still says what it should.
  refuse.prototype = Function.prototype;
  const fix = (object, name) =>
    Object.defineProperty(object, name, { value: refuse, writable: false, configurable: false });
  // A constructor of functions can be reached by what its functions inherit from, and by no other way.
  for (const made of [function () {}, async function () {}, function* () {}, async function* () {}])
    fix(Object.getPrototypeOf(made), "constructor");
  fix(globalThis, "eval");
  fix(globalThis, "Function");
})();
