// An OpenAI-compatible server round a small local model. Answers follow the schema that a request gives.
import http from "node:http";
import {getLlama, LlamaChatSession} from "node-llama-cpp";

const [, , file, port] = process.argv;
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: "error"});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({contextSize: 2048, threads: 1});

async function complete(body) {
    const sequence = context.getSequence();
    try {
        const system = body.messages.filter((m) => m.role === "system").map((m) => m.content).join("\n");
        const rest = body.messages.filter((m) => m.role !== "system");
        const session = new LlamaChatSession({contextSequence: sequence, systemPrompt: system});
        const history = [{type: "system", text: system}];
        for (const message of rest.slice(0, -1))
            history.push(message.role === "user" ? {type: "user", text: message.content} : {type: "model", response: [message.content]});
        session.setChatHistory(history);
        const schema = body.response_format?.json_schema?.schema;
        const grammar = schema && (await llama.createGrammarForJsonSchema(schema));
        return await session.prompt(rest.at(-1).content, {grammar, maxTokens: body.max_tokens ?? 200, temperature: 0});
    } finally {
        sequence.dispose();
    }
}

let last = Promise.resolve();
http.createServer((request, response) => {
    let text = "";
    request.on("data", (piece) => (text += piece));
    request.on("end", () => {
        last = last.then(async () => {
            try {
                const content = await complete(JSON.parse(text));
                response.setHeader("content-type", "application/json");
                response.end(JSON.stringify({id: "x", object: "chat.completion", model: "smollm2-135m",
                    choices: [{index: 0, finish_reason: "stop", message: {role: "assistant", content}}],
                    usage: {prompt_tokens: 0, completion_tokens: 0, total_tokens: 0}}));
            } catch (error) {
                response.statusCode = 500;
                response.end(String(error));
            }
        });
    });
}).listen(Number(port ?? 0), "127.0.0.1", function () {
    console.log(this.address().port);
});
