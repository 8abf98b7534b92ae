// The figures above the picture, each with its last minute as a line.

const POINTS = 90;
const WINDOW = 2;           // seconds that rates and means are over

const element = (id) => document.getElementById(id);

export class Readouts {
  constructor() {
    this.recent = [];       // steps of the last WINDOW seconds, with the moment they came
    this.lines = {};
    for (const canvas of document.querySelectorAll("[data-spark]")) this.lines[canvas.dataset.spark] = { canvas, points: [] };
    this.hello = null;
    this.last = null;
    this.shown = {};
    setInterval(() => this.show(), 500);
  }

  begin(hello) { this.hello = hello; this.last = null; this.recent = []; }

  add(message) {
    this.memory = message.memory;
    const now = performance.now() / 1e3;
    for (const step of message.steps) {
      this.recent.push({ now, step });
      this.last = step;
    }
  }

  show() {
    if (!this.hello) return;
    const now = performance.now() / 1e3;
    while (this.recent.length && this.recent[0].now < now - WINDOW) this.recent.shift();
    const steps = this.recent.map(({ step }) => step).filter((step) => step.slices.length);
    const rows = steps.map((step) => step.slices.reduce((sum, slice) => sum + slice[3], 0));
    const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : 0);
    const { running = 0, waiting = 0, cached_tokens: cached = 0 } = this.last ?? {};
    const facts = {
      tokens: steps.reduce((sum, step) => sum + step.tokens, 0) / WINDOW,
      rows: mean(rows), step: mean(steps.map((step) => step.seconds * 1e3)), running, waiting,
      cache: (100 * cached) / this.hello.capacity, memory: this.memory / 2 ** 30,
    };
    this.shown = facts;
    put("tokens", facts.tokens.toFixed(facts.tokens < 10 ? 1 : 0));
    put("rows", facts.rows.toFixed(facts.rows < 10 ? 1 : 0));
    put("step", steps.length ? facts.step.toFixed(1) : "–", "ms");
    put("running", running, `of ${this.hello.slots}`);
    put("waiting", waiting);
    put("cache", facts.cache.toFixed(1), `% · ${cached.toLocaleString("en")} tok`);
    put("memory", facts.memory.toFixed(2), "GiB");
    for (const [name, line] of Object.entries(this.lines)) {
      line.points.push(facts[name]);
      if (line.points.length > POINTS) line.points.shift();
      draw(line);
    }
  }

  summary() {
    const { running = 0, waiting = 0, tokens = 0 } = this.shown;
    return `${running} requests running, ${waiting} waiting, ${Math.round(tokens)} tokens a second`;
  }
}

function put(name, value, unit = "") {
  const to = element(`r-${name}`);
  to.textContent = value;
  if (unit) {
    const small = document.createElement("small");
    small.textContent = ` ${unit}`;
    to.append(small);
  }
}

function draw({ canvas, points }) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  g.scale(scale, scale);
  const most = Math.max(...points) || 1;
  const x = (i) => width - (points.length - 1 - i) * (width / (POINTS - 1)), y = (v) => height - 2 - (v / most) * (height - 5);
  g.beginPath();
  points.forEach((value, i) => (i ? g.lineTo(x(i), y(value)) : g.moveTo(x(i), y(value))));
  g.strokeStyle = style.getPropertyValue("--decode");
  g.lineWidth = 1.4;
  g.lineJoin = "round";
  g.stroke();
  g.lineTo(width, height);
  g.lineTo(x(0), height);
  g.globalAlpha = 0.1;
  g.fillStyle = style.getPropertyValue("--decode");
  g.fill();
}
