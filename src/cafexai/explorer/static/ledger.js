// The ledger of one explanation: two-sided bars and numbers that add up, the old ones behind.
import { h, minus } from "./dom.js";

export function reach(...ledgers) {
  // The longest bar: a single feature, unless sums are little longer.
  const all = ledgers.filter(Boolean).flatMap((one) => one.lines);
  const size = (lines) => Math.max(0, ...lines.map((line) => Math.max(line.exact[0], line.exact[1])));
  const single = size(all.filter((line) => line.single)), longest = size(all);
  return Math.min(longest, 1.25 * single) || longest || 1;
}

export function bar(exact, most, old) {
  const [up, down, net] = exact;
  const percent = (value) => `${Math.min((50 * value) / most, 50)}%`;
  const parts = [];
  if (old) {
    parts.push(h("i", { class: "old up", look: { width: percent(old[0]) } }), h("i", { class: "old down", look: { width: percent(old[1]) } }));
  }
  parts.push(h("i", { class: up > most * 1.005 ? "up cut" : "up", look: { width: percent(up) } }));
  parts.push(h("i", { class: down > most * 1.005 ? "down cut" : "down", look: { width: percent(down) } }));
  if (up > 0 && down > 0) parts.push(h("i", { class: "net", look: { left: `${50 + Math.max(-50, Math.min(50, (50 * net) / most))}%` } }));
  return h("div", { class: "bar", "aria-hidden": "true" }, parts);
}

// Numbers differ, and not only in how they are rounded so that the lines sum.
const differ = (one, other, size) => Math.abs(one - other) > 1e-5 * Math.max(Math.abs(one), Math.abs(other), size);

function linesByName(before, now) {
  // The old lines; of a word that stands at several places no name says which of them it was.
  const several = new Set([before, now].flatMap((lines) => lines.map((line) => line.name).filter((name, place, all) => all.indexOf(name) !== place)));
  return new Map(before.filter((line) => !several.has(line.name)).map((line) => [line.name, line]));
}

export class Ledger {
  // ``control(line)`` gives what stands beside a name: a value, or a field to change it.
  constructor(control) {
    this.control = control;
    this.lines = new Map();
    this.body = h("tbody");
    this.caption = h("caption");
    this.first = h("th", { scope: "col" });
    const head = ["value", "baseline", "down | up", "up", "down", "net"].map((word, place) => h("th", { scope: "col", class: ["left", "left", "middle"][place] }, word));
    this.table = h("table", { class: "ledger" }, this.caption, h("thead", null, h("tr", null, this.first, head)), this.body);
    this.element = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Ledger" }, this.table);
  }

  show(now, before) {
    this.caption.textContent = now.times ? `all numbers ${now.times}` : "";
    this.first.textContent = now.feature;
    const old = linesByName(before ? before.lines : [], now.lines);
    const most = reach(now, before);
    const rows = [this.end("baseline output", now.start, before && differ(now.baseline_output, before.baseline_output, most) ? before.start : now.start)];
    const seen = new Map();
    for (const line of now.lines) {
      const times = seen.get(line.name) || 0; // a word may stand at several places
      seen.set(line.name, times + 1);
      rows.push(this.line(`${line.name} ${times}`, line, most, old.get(line.name)));
    }
    rows.push(this.end("output", now.end, before && before.end));
    const focused = this.body.contains(document.activeElement) && document.activeElement !== document.body;
    const kept = focused ? [...this.body.children].filter((row) => rows.includes(row)) : [];
    if (kept.length === rows.length) return; // nothing moves under somebody's hands
    if (focused && kept.length) {
      for (const row of [...this.body.children]) if (!rows.includes(row)) row.remove();
      for (const row of rows) if (!kept.includes(row)) this.body.lastElementChild.before(row);
    } else this.body.replaceChildren(...rows);
  }

  entry(key) {
    if (!this.lines.has(key)) {
      const row = h("tr");
      row.name = h("th", { scope: "row" });
      row.value = h("td", { class: "value" });
      row.start = h("td", { class: "baseline" });
      row.picture = h("td", { class: "picture" });
      row.numbers = [0, 1, 2].map(() => h("td"));
      row.append(row.name, row.value, row.start, row.picture, ...row.numbers);
      this.lines.set(key, row);
    }
    return this.lines.get(key);
  }

  line(key, line, most, old) {
    const row = this.entry(key);
    row.name.textContent = line.name;
    row.className = line.single ? "" : "sum";
    row.start.textContent = line.same ? `${minus(line.baseline)} (the same)`.trim() : minus(line.baseline);
    if (!row.value.contains(document.activeElement)) row.value.replaceChildren(...[this.control(line)].flat().filter(Boolean));
    row.picture.replaceChildren(bar(line.exact, most, old && old.exact));
    ["positive", "negative", "net"].forEach((name, place) => {
      const cells = [minus(line[name])];
      if (old && old[name] !== line[name] && differ(line.exact[place], old.exact[place], most)) cells.unshift(h("s", null, h("span", { class: "unseen" }, "was "), minus(old[name])), " ");
      row.numbers[place].replaceChildren(...cells);
    });
    return row;
  }

  end(name, text, old) {
    const row = this.entry(` ${name}`);
    row.name.textContent = name;
    row.className = name === "output" ? "end" : "start";
    row.numbers[2].replaceChildren(...(old && old !== text ? [h("s", null, h("span", { class: "unseen" }, "was "), minus(old)), " "] : []), minus(text));
    return row;
  }
}
