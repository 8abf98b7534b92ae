// The picture of the batch: a lane for each slot, a tick for each step, and below them the step's time and rows.

import { nice, told } from "./words.js";

const KEEP = 4000;          // steps that are remembered
const LABELS = [96, 118];   // pixels for the lanes' labels, on narrow and wide screens
const LANE = 22;            // pixels of a lane where there is room
const GAP = 24;             // pixels above each strip
const PAUSE = 0.4;          // seconds between steps that count as a pause

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Batch {
  constructor(canvas, cursorLine) {
    this.canvas = canvas;
    this.line = cursorLine;
    this.steps = [];        // of {n, gap, seconds, model, decode, prefill, waiting, lanes: Map(slot -> cell)}
    this.owners = new Map(); // slot -> {id, tokens, prompt}
    this.mine = new Set();
    this.count = 0;
    this.used = 1;          // lanes that have been in use
    this.slots = 8;
    this.held = null;       // the last step shown while paused
    this.cursor = null;     // the step under the pointer
    this.dirty = true;
    new ResizeObserver(() => this.touch()).observe(canvas);
    canvas.addEventListener("pointermove", (e) => this.point(e.offsetX));
    canvas.addEventListener("pointerleave", () => this.choose(null));
    canvas.addEventListener("blur", () => this.choose(null));
    canvas.addEventListener("keydown", (e) => this.key(e));
    this.touch();
  }

  begin({ slots }) {
    this.slots = slots;
    this.seen = false;      // whether a step was seen since: who is there in the first one did not join in it
    this.owners.clear();
    this.touch();
  }

  /** Take one step of the feed. */
  add(step) {
    const last = this.steps[this.steps.length - 1];
    const cell = {
      n: this.count++, at: step.at, seconds: step.seconds, model: step.model_seconds, waiting: step.waiting,
      gap: last ? step.at - step.seconds - last.at : 0, decode: 0, prefill: 0, lanes: new Map(),
    };
    for (const [id, slot, start, rows, decodes] of step.slices) {
      let owner = this.owners.get(slot);
      const fresh = !owner || owner.id !== id, joins = fresh && (start === 0 || this.seen);
      if (fresh) this.owners.set(slot, owner = { id, prompt: 0, tokens: 0, late: !joins });
      if (decodes) owner.tokens++;
      else owner.prompt = start + rows;
      cell[decodes ? "decode" : "prefill"] += rows;
      cell.lanes.set(slot, { id, rows, decodes, joins, start });
      this.used = Math.max(this.used, slot + 1);
    }
    for (const [slot, owner] of this.owners) {
      if (!cell.lanes.has(slot)) cell.lanes.set(slot, { id: owner.id, rows: 0 });
    }
    for (const [id, finish] of step.ended) {
      for (const [slot, owner] of this.owners) {
        if (owner.id === id) {
          const there = cell.lanes.get(slot);
          if (there) there.finish = finish;
          this.owners.delete(slot);
        }
      }
    }
    this.seen = true;
    this.steps.push(cell);
    if (this.steps.length > KEEP) this.steps.splice(0, KEEP / 4);
    this.touch();
  }

  pause(on) {
    this.held = on ? this.count - 1 : null;
    this.touch();
  }

  touch() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => { this.due = 0; this.draw(); });
  }

  shown() {
    const first = this.steps[0]?.n ?? 0;
    const end = this.held === null ? this.steps.length : this.held - first + 1;
    return this.steps.slice(Math.max(0, end - this.columns), end);
  }

  point(x) {
    const shown = this.shown();
    const at = shown.length - 1 - Math.floor((this.plot - x) / this.tick);
    this.choose(shown[at] ?? null);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const shown = this.shown();
    const at = this.cursor ? shown.indexOf(this.cursor) + by : shown.length - 1;
    if (shown[at]) this.choose(shown[at]);
  }

  choose(step) {
    this.cursor = step;
    this.line.textContent = step ? told(step) : "";
    this.touch();
  }

  draw() {
    const { canvas } = this;
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const g = canvas.getContext("2d");
    g.scale(scale, scale);
    this.narrow = width < 520;
    this.tick = this.narrow ? 6 : 8;
    this.plot = width - LABELS[this.narrow ? 0 : 1];
    this.columns = Math.floor(this.plot / this.tick);
    const strip = Math.min(72, height * 0.13), room = height - 2 * (strip + GAP) - 8;
    this.lanes = Math.min(this.slots, Math.max(this.used, Math.floor(room / LANE)));
    const lane = Math.min(room / this.lanes, LANE * 1.5);
    const shown = this.shown();
    this.colours = Object.fromEntries(["ink", "soft", "faint", "hair", "paper", "decode", "decode-tint", "prefill",
      "prefill-tint", "mine"].map((name) => [name, css(`--${name}`)]));
    g.font = `11px ${css("--mono")}`;
    g.textBaseline = "middle";
    this.drawGrid(g, lane);
    shown.forEach((step, i) => this.drawStep(g, step, this.plot - (shown.length - i) * this.tick, lane));
    if (this.held === null) this.drawLabels(g, lane);
    const top = lane * this.lanes + GAP;
    this.drawTimes(g, shown, top, strip);
    this.drawRows(g, shown, top + strip + GAP, strip);
    this.drawCursor(g, shown, height);
  }

  drawGrid(g, lane) {
    g.fillStyle = this.colours.hair;
    for (let i = 0; i <= this.lanes; i++) g.fillRect(0, Math.round(i * lane), this.plot, 1);
  }

  drawStep(g, step, x, lane) {
    const c = this.colours, w = this.tick;
    if (step.gap > PAUSE) {
      g.fillStyle = c.faint;
      for (let y = 2; y < lane * this.lanes; y += 6) g.fillRect(x, y, 1, 3);
      g.fillStyle = c.soft;
      g.textAlign = "center";
      if (step.gap >= 1) g.fillText(`${step.gap.toFixed(0)} s`, x, lane * this.lanes + GAP / 2);
    }
    for (const [slot, cell] of step.lanes) {
      const y = slot * lane + 2, h = lane - 3;
      const prefills = cell.rows > 0 && !cell.decodes;
      g.fillStyle = prefills ? c["prefill-tint"] : c["decode-tint"];
      g.fillRect(x, y, w, h);
      if (prefills) {
        const tall = Math.max(3, h * Math.min(1, Math.log2(1 + cell.rows) / 8));
        g.fillStyle = c.prefill;
        g.fillRect(x + 1, y + h - tall, w - 1, tall);
      } else if (cell.rows) {
        g.fillStyle = this.mine.has(cell.id) ? c.mine : c.decode;
        g.fillRect(x + w / 2 - 1, y + h * 0.25, 2.5, h * 0.5);
      }
      if (cell.joins) { g.fillStyle = c.ink; g.fillRect(x, y - 1, 2, h + 2); }
      if (cell.finish) { g.fillStyle = c.soft; g.fillRect(x + w - 2, y - 1, 2, h + 2); }
    }
  }

  drawLabels(g, lane) {
    g.textAlign = "left";
    for (const [slot, owner] of this.owners) {
      const mine = this.mine.has(owner.id), y = (slot + 0.5) * lane + 0.5;
      g.fillStyle = mine ? this.colours.mine : this.colours.soft;
      const name = mine ? "yours" : owner.id.slice(-4);
      const what = owner.tokens ? `${owner.late ? "≥" : ""}${owner.tokens} tok` : `${owner.prompt} in`;
      if (lane >= 9) g.fillText(`${name.padEnd(5)} ${what.padStart(this.narrow ? 7 : 9)}`, this.plot + 8, y);
    }
  }

  /** Step times on a logarithmic scale: a prefill may take a hundred times as long as a decode. */
  drawTimes(g, shown, top, height) {
    const c = this.colours, times = shown.map((step) => step.seconds * 1e3);
    const low = Math.floor(Math.log10(Math.max(0.1, Math.min(10, ...times))));
    const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(1, ...times))));
    const y = (ms) => top + height * (1 - (Math.log10(Math.max(ms, 10 ** low)) - low) / (high - low));
    for (let power = low; power <= high; power++) {
      this.rule(g, y(10 ** power), power === low ? "a step" : power < 3 ? `${10 ** power} ms` : `${10 ** (power - 3)} s`);
    }
    times.forEach((ms, i) => {
      const x = this.plot - (shown.length - i) * this.tick, at = y(ms);
      g.fillStyle = c.hair;
      g.fillRect(x + 1, at, this.tick - 1, top + height - at);
      g.fillStyle = c.soft;
      g.fillRect(x + 1, at - 1, this.tick - 1, 2);
    });
  }

  /** Rows of prefill above the line and of decode below it, each on a scale of its own. */
  drawRows(g, shown, top, height) {
    const c = this.colours, up = height * 0.6, line = top + up;
    const most = { prefill: nice(Math.max(1, ...shown.map((s) => s.prefill))), decode: nice(Math.max(1, ...shown.map((s) => s.decode))) };
    this.rule(g, top, `${most.prefill} rows`);
    this.rule(g, top + height, `${most.decode} rows`);
    shown.forEach((step, i) => {
      const x = this.plot - (shown.length - i) * this.tick + 1;
      const tall = (step.prefill / most.prefill) * (up - 1), deep = (step.decode / most.decode) * (height - up - 1);
      g.fillStyle = c.prefill;
      g.fillRect(x, line - tall, this.tick - 1, tall);
      g.fillStyle = c.decode;
      g.fillRect(x, line + 1, this.tick - 1, deep);
    });
    this.rule(g, line, "");
  }

  /** A line across, with its name at the right. */
  rule(g, y, name) {
    g.fillStyle = this.colours.hair;
    g.fillRect(0, Math.round(y), this.plot, 1);
    g.fillStyle = this.colours.soft;
    g.textAlign = "left";
    g.fillText(name, this.plot + 8, Math.round(y) + 0.5);
  }

  drawCursor(g, shown, height) {
    const i = this.cursor ? shown.indexOf(this.cursor) : -1;
    if (i < 0) return;
    g.fillStyle = this.colours.ink;
    g.globalAlpha = 0.12;
    g.fillRect(this.plot - (shown.length - i) * this.tick, 0, this.tick, height);
    g.globalAlpha = 1;
  }
}
