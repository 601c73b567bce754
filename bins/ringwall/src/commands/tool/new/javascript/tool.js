// What the tool does: `greet` over plain values, and the interface that Ringwall calls.

/** Why there is no output. The code is for programs (kebab-case), the message for people. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export function greet({ name }) {
  if (name.trim() === "") {
    throw new Refused("bad-input", "the name is blank; say whom to greet");
  }
  return { greeting: `Hello, ${name}!` };
}

/** The interface `tool` of wit/tool.wit. */
export const tool = {
  call(input) {
    try {
      return JSON.stringify(greet(JSON.parse(input)));
    } catch (error) {
      // What is thrown with a payload is the failure of the call.
      throw Object.assign(new Error(error.message), {
        payload: { code: error.code ?? "failed", message: error.message },
      });
    }
  },
};
