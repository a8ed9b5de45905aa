// What users of OpenAI's library for Node.js do: `openai_node.mjs NAME=URL...`.
//
// Standard output is one JSON object: for each server the checks that failed, with what they raised.

import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const model = "tiny";
const messages = [{ role: "user", content: "What do you know of rivers?" }];
const weatherAsked = [{ role: "user", content: "How is the weather in Bonn?" }];
const city = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

async function collected(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

const checks = {
  async chat(sdk) {
    const ask = { model, messages, max_tokens: 8, ignore_eos: true };
    const whole = await sdk.chat.completions.create(ask);
    assert.equal(whole.usage.completion_tokens, 8);
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = await collected(await sdk.chat.completions.create({ ...ask, ...options }));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(chunks.at(-1).usage.completion_tokens, 8);
    const helper = sdk.chat.completions.stream(ask);
    assert.equal(await helper.finalContent(), whole.choices[0].message.content);
  },

  async a_stream_is_left(sdk) {
    const leave = new AbortController();
    const ask = { model, messages, max_tokens: 2000, ignore_eos: true, stream: true };
    const stream = await sdk.chat.completions.create(ask, { signal: leave.signal });
    for await (const _ of stream) {
      leave.abort();
      break;
    }
  },

  async tools(sdk) {
    let called = 0;
    const weather = {
      name: "get_weather",
      description: "The weather in a city.",
      parameters: city,
      parse: JSON.parse,
      function: () => { called += 1; return "rain"; },
    };
    const tools = [{ type: "function", function: weather }];
    const runner = sdk.chat.completions.runTools({ model, messages: weatherAsked, tools });
    assert.ok(await runner.finalContent());
    assert.equal(called, 1);
  },

  async json_and_logprobs(sdk) {
    const json_schema = { name: "place", strict: true, schema: city };
    const response_format = { type: "json_schema", json_schema };
    const reply = await sdk.chat.completions.create({ model, messages, response_format });
    assert.equal(typeof JSON.parse(reply.choices[0].message.content).city, "string");
    const ask = { model, messages, max_tokens: 4, logprobs: true, top_logprobs: 2 };
    const [choice] = (await sdk.chat.completions.create(ask)).choices;
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
  },

  async text_and_embeddings(sdk) {
    const text = await sdk.completions.create({ model, prompt: ["a", "b"], max_tokens: 4 });
    assert.equal(text.choices.length, 2);
    const embedded = await sdk.embeddings.create({ model, input: ["a", "b"] });
    assert.equal(embedded.data.length, 2);
    assert.ok(embedded.data[0].embedding.length > 8);
  },

  async responses(sdk) {
    const ask = { model, input: "Hello.", max_output_tokens: 16 };
    const response = await sdk.responses.create(ask);
    assert.equal((await sdk.responses.retrieve(response.id)).output_text, response.output_text);
    const events = await collected(await sdk.responses.create({ ...ask, stream: true }));
    assert.equal(events.at(-1).response.output[0].content[0].text, response.output_text);
    await sdk.responses.delete(response.id);
    const counted = await sdk.responses.inputTokens.count({ model, input: "Hello." });
    assert.equal(counted.input_tokens, response.usage.input_tokens);
  },

  async audio(sdk) {
    const file = await toFile(Buffer.alloc(40_000), "a.wav");
    assert.ok((await sdk.audio.transcriptions.create({ model, file })).text);
    const speech = await sdk.audio.speech.create({ model, voice: "alloy", input: "hi" });
    assert.ok((await speech.arrayBuffer()).byteLength > 44);
  },

  async models(sdk) {
    const models = await collected(sdk.models.list());
    assert.ok(models.some((card) => card.id === model));
    assert.ok(models.every((card) => card.root));
    assert.equal((await sdk.models.retrieve(model)).id, model);
  },

  async errors(sdk) {
    const { NotFoundError, BadRequestError, APIConnectionTimeoutError } = OpenAI;
    const chat = (changes, options) =>
      sdk.chat.completions.create({ model, messages, ...changes }, options);
    await assert.rejects(chat({ model: "huge" }), NotFoundError);
    await assert.rejects(chat({ temperature: 9 }), BadRequestError);
    const long = { max_tokens: 20_000, ignore_eos: true };
    await assert.rejects(chat(long, { timeout: 100 }), APIConnectionTimeoutError);
  },

  async many_at_once(sdk) {
    const ask = (number) => [{ role: "user", content: `Say ${number}.` }];
    const chat = (_, number) =>
      sdk.chat.completions.create({ model, messages: ask(number), max_tokens: 8 });
    const replies = await Promise.all(Array.from({ length: 30 }, chat));
    assert.ok(replies.every((reply) => reply.choices[0].message.content));
  },
};

const failures = {};
for (const server of process.argv.slice(2)) {
  const [name, url] = server.split("=", 2);
  const baseURL = `${url}/v1`;
  const sdk = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
  failures[name] = {};
  for (const [check, run] of Object.entries(checks)) {
    try {
      await run(sdk);
    } catch (error) {
      failures[name][check] = `${error.constructor.name}: ${error.message}`.slice(0, 500);
    }
  }
}
console.log(JSON.stringify(failures));
