// Small pictures of our own: distributions, swarms, circuits.
import { h, many, minus, s, short } from "./dom.js";

export function columns(counts, { width = 400, height = 120, name = "", low = 0, high = 1, kind = "k", percent = false } = {}) {
  // A histogram with its ends.
  const most = Math.max(...counts, 1), step = width / Math.max(counts.length, 1), end = (value) => (percent ? `${short(100 * value)} %` : short(value));
  return s("svg", { viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": name }, counts.map((count, place) =>
    s("rect", { x: place * step + 0.5, y: height - (height * count) / most, width: Math.max(step - 1, 0.5), height: (height * count) / most, class: kind },
      s("title", null, many(count, "row")))),
    s("text", { x: 0, y: height + 14 }, end(low)), s("text", { x: width, y: height + 14, "text-anchor": "end" }, end(high)));
}

export function small(found) {
  if (!found.counts.length) return h("span", { class: "quiet" }, "empty");
  const most = Math.max(...found.counts), step = 90 / found.counts.length;
  const label = found.words ? `${found.kinds} categories; most frequent: ${found.words.join(", ")}` : `from ${short(found.low)} to ${short(found.high)}`;
  const title = (place) => (found.words ? `${found.words[place]}: ${found.counts[place]}` : many(found.counts[place], "row"));
  return [s("svg", { viewBox: "0 0 90 22", role: "img", "aria-label": label, class: "tiny" }, found.counts.map((count, place) =>
    s("rect", { x: place * step + 0.3, y: 22 - (21 * count) / most, width: Math.max(step - 0.6, 0.4), height: (21 * count) / most }, s("title", null, title(place))))),
    h("span", { class: "ends" }, found.words ? `${found.kinds} kinds` : `${short(found.low)} … ${short(found.high)}`)];
}

export function swarm(features) {
  // Every dot is a row: its net score, and how high the value of the feature is in it.
  const width = 720, left = 190, line = 34, height = line * features.length + 26;
  const all = features.flatMap((one) => one.nets.map(Math.abs)), most = Math.max(...all, 1e-30);
  const x = (value) => left + ((value / most + 1) / 2) * (width - left - 12);
  const parts = [s("line", { x1: x(0), x2: x(0), y1: 0, y2: height - 22, class: "axis" })];
  features.forEach((one, place) => {
    const middle = line * place + line / 2, taken = new Map();
    parts.push(s("text", { x: left - 10, y: middle + 4, "text-anchor": "end" }, one.name.length > 26 ? `${one.name.slice(0, 25)}…` : one.name, s("title", null, one.name)));
    const paths = new Map();
    one.nets.forEach((net, row) => {
      const column = Math.round(x(net) / 3), count = taken.get(column) || 0;
      taken.set(column, count + 1);
      const offset = (count % 2 ? 1 : -1) * Math.ceil(count / 2) * 2.4;
      const rank = one.ranks[row], colour = rank === null || one.category ? "none" : String(Math.round(rank * 4));
      paths.set(colour, `${paths.get(colour) || ""}M${x(net).toFixed(1)} ${(middle + Math.max(-line / 2 + 2, Math.min(line / 2 - 2, offset))).toFixed(1)}h0`);
    });
    for (const [colour, path] of paths) parts.push(s("path", { d: path, class: `dot dot-${colour}` }));
  });
  parts.push(s("text", { x: left, y: height - 6 }, minus(short(-most))), s("text", { x: width - 12, y: height - 6, "text-anchor": "end" }, short(most)),
    s("text", { x: x(0), y: height - 6, "text-anchor": "middle" }, "0"));
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Net scores of single rows for each feature", class: "swarm" }, parts);
}

export function circuit(unit) {
  // A hidden unit with the inputs that push it up and down, and what it holds of the output.
  const inputs = unit.inputs || [], line = 26, height = Math.max(inputs.length * line, 60) + 10, middle = height / 2;
  const most = Math.max(...inputs.map((one) => Math.abs(one.exact)), 1e-30);
  const cut = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);
  return s("svg", { viewBox: `0 0 620 ${height}`, role: "img", "aria-label": `Unit ${unit.unit} of ${unit.layer} and its inputs`, class: "circuit" },
    inputs.map((one, place) => {
      const y = 5 + line * place + line / 2;
      return [s("text", { x: 165, y: y + 4, "text-anchor": "end" }, cut(one.name), s("title", null, one.name)), s("text", { x: 226, y: y + 4, "text-anchor": "end", class: one.exact > 0 ? "u" : "d" }, minus(one.told)),
        s("line", { x1: 232, y1: y, x2: 392, y2: middle, class: one.exact > 0 ? "u" : "d", "stroke-width": Math.max(0.8, (7 * Math.abs(one.exact)) / most) })];
    }),
    s("line", { x1: 434, y1: middle, x2: 520, y2: middle, class: Number(unit.effect) > 0 ? "u" : "d", "stroke-width": 3 }),
    s("circle", { cx: 410, cy: middle, r: 28, class: unit.active === false ? "off" : null }), s("text", { x: 410, y: middle + 4, "text-anchor": "middle", class: "strong" }, minus(unit.value)),
    s("text", { x: 526, y: middle - 4 }, `× ${minus(unit.effect)}`), s("text", { x: 526, y: middle + 12 }, "output"));
}

export function whatIfCurve(found) {
  // A line over numbers and dates, bars over categories; the value of the row is marked.
  const width = 640, height = 200, left = 64, bottom = 34, values = found.chances || found.outputs, percent = Boolean(found.chances);
  const told = (value) => (percent ? `${short(100 * value)} %` : short(value));
  let low = percent ? 0 : Math.min(...values), high = percent ? 1 : Math.max(...values);
  if (found.kind !== "number" && found.kind !== "date" && !percent) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (high - low < 1e-12) [low, high] = [low - 0.5, high + 0.5];
  const y = (value) => 10 + (1 - (value - low) / (high - low)) * (height - 20), end = width - 12;
  const label = (text, x, anchor) => s("text", { x, y: height + 16, "text-anchor": anchor }, text.length > 18 ? `${text.slice(0, 17)}…` : text, s("title", null, text));
  const guides = [low, (low + high) / 2, high].map((value) => [s("line", { x1: left, x2: end, y1: y(value), y2: y(value), class: "guide" }), s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, told(value))]);
  const title = (place) => s("title", null, `${found.values[place]}: ${told(values[place])}`);
  const parts = [];
  if (found.kind === "number" || found.kind === "date") {
    const at = found.values.map((value) => (found.kind === "number" ? value : Date.parse(value)));
    const from = Math.min(...at), to = Math.max(...at), x = (value) => left + ((value - from) / (to - from || 1)) * (end - left);
    parts.push(s("polyline", { points: at.map((value, place) => `${x(value).toFixed(1)},${y(values[place]).toFixed(1)}`).join(" ") }));
    at.forEach((value, place) => parts.push(s("circle", { cx: x(value), cy: y(values[place]), r: found.values[place] === found.now ? 6 : 2, class: found.values[place] === found.now ? "here" : "k" }, title(place))));
    const text = (value) => (found.kind === "number" ? short(value) : value);
    parts.push(label(text(found.values[0]), left, "start"), label(text(found.values.at(-1)), end, "end"));
  } else {
    const step = (end - left) / values.length, zero = y(Math.max(low, Math.min(high, 0)));
    values.forEach((value, place) => {
      const top = Math.min(y(value), zero);
      parts.push(s("rect", { x: left + place * step + step * 0.15, y: top, width: step * 0.7, height: Math.max(Math.abs(zero - y(value)), 1), class: found.values[place] === found.now ? "here" : null }, title(place)));
      if (values.length <= 8) parts.push(label(String(found.values[place]), left + (place + 0.5) * step, "middle"));
    });
  }
  return s("svg", { viewBox: `0 0 ${width} ${height + bottom}`, role: "img", id: "curve", class: "curve", "aria-label": `${percent ? "Probability" : "Output"} by ${found.column}: ${told(Math.min(...values))} to ${told(Math.max(...values))}` }, guides, parts);
}
