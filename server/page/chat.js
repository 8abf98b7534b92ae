// The chat: one conversation, streamed, with what it cost below each answer.

import { events, headers } from "./feed.js";

const element = (id) => document.getElementById(id);

export class Chat {
  /** `mine` is told the id of each request, `wanted` is asked for a key when the server wants one. */
  constructor({ mine, wanted }) {
    this.mine = mine;
    this.wanted = wanted;
    this.messages = [];
    this.talk = element("talk");
    this.send = element("send");
    this.say = element("say");
    element("ask").addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    element("fresh").addEventListener("click", () => this.clear());
    this.say.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.submit(); }
      if (event.key === "Escape") this.stop();
    });
  }

  submit() {
    if (this.under) return this.stop();
    const text = this.say.value.trim();
    if (!text) return undefined;
    this.say.value = "";
    this.messages.push({ role: "user", content: text });
    this.put("you", text);
    return this.answer();
  }

  stop() { this.under?.abort(); }

  clear() {
    this.stop();
    this.messages = [];
    this.talk.replaceChildren();
    this.say.focus();
  }

  async answer() {
    const messages = this.messages, it = this.put("it", ""), figures = this.put("figures", "");
    const begun = performance.now();
    let first = 0, tokens = 0, text = "", finish = "";
    this.under = new AbortController();
    this.send.textContent = "Stop";
    try {
      for await (const chunk of stream(this.body(), this.under.signal, this.wanted)) {
        this.mine(chunk.id);
        const choice = chunk.choices[0];
        if (chunk.usage) tokens = chunk.usage.completion_tokens;
        if (!choice) continue;
        if (choice.delta.content) {
          first ||= performance.now();
          text += choice.delta.content;
          it.textContent = text;
          this.talk.scrollTop = this.talk.scrollHeight;
        }
        finish = choice.finish_reason ?? finish;
      }
    } catch (error) {
      if (error.name === "AbortError") finish = "stopped";
      else { it.className = "wrong"; it.textContent = error.message; }
    }
    this.under = null;
    this.send.textContent = "Send";
    if (text) messages.push({ role: "assistant", content: text });
    else if (it.className === "wrong") messages.pop();
    const seconds = (performance.now() - first) / 1e3;
    const parts = [first && `first after ${Math.round(first - begun)} ms`, tokens && `${tokens} tokens`];
    parts.push(tokens > 1 && `${((tokens - 1) / seconds).toFixed(1)} a second`, { length: "cut at the limit", stopped: "stopped" }[finish]);
    figures.textContent = parts.filter(Boolean).join(" · ");
    this.talk.scrollTop = this.talk.scrollHeight;
  }

  body() {
    const heat = element("heat").value;
    return {
      messages: this.messages, stream: true, stream_options: { include_usage: true },
      max_tokens: Number(element("most").value), temperature: heat === "" ? undefined : Number(heat),
    };
  }

  put(kind, text) {
    const p = document.createElement("p");
    p.className = kind;
    p.textContent = text;
    this.talk.querySelector(".hint")?.remove();
    this.talk.append(p);
    this.talk.scrollTop = this.talk.scrollHeight;
    return p;
  }
}

/** The chunks of a chat's answer; asks for a key where one is wanted, and throws what the server says is wrong. */
export async function* stream(body, signal, wanted, path = "v1/chat/completions") {
  for (;;) {
    const response = await fetch(path, {
      method: "POST", signal, body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers() },
    });
    if (response.status === 401) {
      await wanted(Boolean(headers().authorization));
      continue;
    }
    if (!response.ok) {
      const said = await response.json().catch(() => null);
      throw new Error(said?.error?.message ?? `The server answered ${response.status}.`);
    }
    for await (const [, data] of events(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
    return;
  }
}
