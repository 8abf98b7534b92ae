// What an unchanged program with the openai package for Node does; prints what it got as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const asked = {
  model: "tiny",
  messages: [{ role: "user", content: "Say it" }],
  n: 2,
  seed: 7,
  max_tokens: 15,
  ignore_eos: true,
  logprobs: true,
};

const plain = await client.chat.completions.create(asked);
const streamed = ["", ""];
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  for (const choice of chunk.choices) streamed[choice.index] += choice.delta.content ?? "";
}

const endless = await client.completions.create({ model: "tiny", prompt: "a", stream: true, ignore_eos: true });
for await (const _ of endless) break; // leaving the loop closes the connection

let error = null;
try {
  await client.completions.create({ model: "tiny", prompt: "a", temperature: 9 });
} catch (caught) {
  error = { name: caught.constructor.name, param: caught.param, status: caught.status };
}

console.log(
  JSON.stringify({
    plain: plain.choices.map((choice) => choice.message.content),
    streamed,
    choices: plain.choices.length,
    logprobs: plain.choices[0].logprobs.content.length,
    usage: plain.usage,
    error,
  }),
);
