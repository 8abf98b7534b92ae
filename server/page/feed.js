// The server's steps, with a key where one is wanted. EventSource sends no headers, hence fetch.

const store = "paceline-key";

export function headers() {
  const key = sessionStorage.getItem(store);
  return key ? { authorization: `Bearer ${key}` } : {};
}

export function keep(key) {
  sessionStorage.setItem(store, key);
}

/** The events of a server-sent stream, as [name, data]. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        let name = "", data = "";
        for (const line of part.split("\n")) {
          if (line.startsWith("event: ")) name = line.slice(7);
          if (line.startsWith("data: ")) data += line.slice(6);
        }
        if (data) yield [name, data];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Follow the feed for ever; `wanted` is asked for a key when the server wants one. */
export async function follow({ hello, steps, cut, wanted }) {
  for (let wait = 500; ; wait = Math.min(wait * 2, 8000)) {
    try {
      const response = await fetch("v1/steps", { headers: headers(), cache: "no-store" });
      if (response.status === 401) {
        await wanted(Boolean(headers().authorization));
        wait = 250;
        continue;
      }
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      for await (const [name, data] of events(response)) {
        wait = 500;
        if (name === "hello") hello(JSON.parse(data));
        else if (!name) steps(JSON.parse(data));
      }
    } catch { /* the server is away; try again */ }
    cut();
    await new Promise((go) => setTimeout(go, wait));
  }
}
