// Puts the page together: the feed to the picture and the figures, the buttons to what they do.

import { Batch } from "./batch.js";
import { Chat, stream } from "./chat.js";
import { follow, keep } from "./feed.js";
import { Readouts } from "./readouts.js";

const element = (id) => document.getElementById(id);
const batch = new Batch(element("lanes"), element("cursor"));
const readouts = new Readouts();
const eight = [
  "Why is the sky blue?", "Write a limerick about queues.", "Name five rivers of Europe and where they end.",
  "Explain what a cache is to a child.", "Give me a recipe for pancakes.", "What did Ada Lovelace do?",
  "Tell a very short story about a lighthouse.", "List the planets, with one fact about each.",
];

/** Ask the person for a key, once at a time. */
let asking = null;
function wanted(refused) {
  asking ??= new Promise((go) => {
    const dialog = element("key-dialog");
    element("key").hidden = false;
    if (refused) element("key-note").textContent = "The server does not know that key.";
    dialog.addEventListener("close", () => {
      keep(element("key-value").value.trim());
      asking = null;
      go();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
  return asking;
}

function state(word) {
  if (element("state").dataset.state === word) return;
  element("state").dataset.state = word;
  element("state-word").textContent = word;
}

function hello(facts) {
  document.title = `${facts.models[0]} · paceline`;
  element("model").textContent = facts.models.join(", ");
  element("room").textContent = `${facts.slots} slots of ${facts.context.toLocaleString("en")} tokens, `
    + `${facts.step_rows} rows a step, ${facts.threads} threads`;
  batch.begin(facts);
  readouts.begin(facts);
}

const mine = (id) => batch.mine.add(id.slice(-8));
new Chat({ mine, wanted });

element("pause").addEventListener("click", ({ target }) => {
  const on = target.getAttribute("aria-pressed") !== "true";
  target.setAttribute("aria-pressed", String(on));
  batch.pause(on);
});

element("eight").addEventListener("click", async ({ target }) => {
  target.disabled = true;
  const ask = async (content) => {
    const body = { messages: [{ role: "user", content }], stream: true, max_tokens: Number(element("most").value) };
    try {
      for await (const chunk of stream(body, undefined, wanted)) mine(chunk.id);
    } catch { /* the picture shows what became of it */ }
  };
  await Promise.all(eight.map(ask));
  target.disabled = false;
});

element("key").addEventListener("click", () => wanted(false));

const themes = matchMedia("(prefers-color-scheme: dark)");
element("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (themes.matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  batch.touch();
});
themes.addEventListener("change", () => batch.touch());

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("textarea, input, dialog")) {
    event.preventDefault();
    element("say").focus();
  }
});

let said = "";
setInterval(() => {
  const words = readouts.summary();
  if (words !== said) element("summary").textContent = said = words;
}, 10000);

follow({
  hello, wanted,
  steps: (message) => {
    state(message.state);
    readouts.add(message);
    for (const step of message.steps) batch.add(step);
  },
  cut: () => state("cut off"),
});
