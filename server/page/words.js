// A step in words, and the top of a scale.

/** The least round number that is not below a value. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((m) => m * power >= value * 0.9999);
  return Number((step * power).toPrecision(3));
}

/** What happened in a step. */
export function told(step) {
  const ms = (seconds) => `${(seconds * 1e3).toFixed(1)} ms`;
  const parts = [`step ${step.n + 1}`, `${ms(step.seconds)}, the model ${ms(step.model)}`];
  parts.push(`${step.decode} rows of decode, ${step.prefill} of prefill`);
  if (step.waiting) parts.push(`${step.waiting} waiting`);
  for (const [slot, cell] of step.lanes) {
    if (cell.joins) parts.push(`${cell.id.slice(-4)} joins in slot ${slot}`);
    if (cell.finish) parts.push(`${cell.id.slice(-4)} leaves: ${cell.finish}`);
  }
  return parts.join("  ·  ");
}
