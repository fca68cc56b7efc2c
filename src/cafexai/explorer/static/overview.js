// What all rows have in common.
import { ask } from "./api.js";
import { columns, swarm } from "./charts.js";
import { clear, field, h, many, minus, options, scroll } from "./dom.js";
import { bar } from "./ledger.js";
import { about, keep, state } from "./state.js";

let view = null, timer = null;

export function show(main) {
  view = { all: h("div"), groups: h("div"), drift: h("div") };
  const column = h("select", { id: "group" });
  const few = (one) => about.editable[one.name] && about.editable[one.name].words.length > 0 && about.editable[one.name].words.length <= 20;
  const first = about.columns.find(few) || about.columns.find((one) => one.kind === "category") || about.columns[0];
  state.group ||= first && about.form === "table" ? first.name : "";
  options(column, about.columns.map((one) => [one.name, one.name]), state.group);
  column.addEventListener("change", () => {
    state.group = column.value;
    keep();
    groups();
  });
  clear(main, h("h2", null, "Overview"), view.all,
    about.form === "table" ? [h("h3", null, "Conflict by group of rows"), field("Groups by", column), view.groups] : null,
    about.second ? [h("h3", null, "Conflict in two sets of data"), view.drift] : null);
  refresh();
}

// The filter of the table is a cohort; its order and page do not matter here.
function filter() {
  const { text, ranges, only, wrong, threshold } = state.table;
  return { text, ranges, only, wrong, threshold };
}

export function hide() {
  clearTimeout(timer);
}

export async function refresh() {
  const mine = view;
  try {
    const result = await ask("cohort", { table: filter(), output: state.output });
    if (mine !== view || !view.all.isConnected) return;
    draw(result);
    const waits = [about.form === "table" && state.group ? groups() : null, about.second ? drift() : null];
    const [, other] = await Promise.all(waits);
    clearTimeout(timer);
    const running = (one) => one && one.done < one.total && !one.trouble;
    if (running(result) || (other && other.files.some(running))) timer = setTimeout(refresh, 2000);
  } catch (error) {
    if (error.status) clear(view.all, h("p", { class: "wrong", role: "alert" }, error.message));
  }
}

function draw(result) {
  if (!result.done) return clear(view.all, h("p", null, result.trouble || "No row is scored yet."));
  const most = Math.max(...result.bars.map((one) => Math.max(one.exact[0], one.exact[1])), 1e-30);
  const what = { text: "word", image: "part of the picture" }[result.kind] || "feature";
  const chosen = result.outputs.find((one) => one.place === result.output);
  const of = chosen && chosen.name !== "output" ? ` of rows explained for ${chosen.name}` : "";
  return clear(view.all,
    result.cohort === undefined ? null : h("div", { class: "buttons" }, h("p", { id: "cohort" }, `Cohort: the ${many(result.cohort, "row")} of ${result.rows.toLocaleString("en")} that the filter of Rows finds${result.done < result.cohort ? `; scores are those of a sample of ${result.done}` : ""}.`),
      h("button", { type: "button", id: "all-rows", onclick: () => { state.table = {}; keep(); refresh(); } }, "All rows")),
    outputs(result),
    h("p", { id: "covered" }, `${result.done.toLocaleString("en")} of ${many(result.total, "row")} (c = ${result.choice.c}, variant ${result.choice.variant}). Mean conflict${of} ${result.mean}: cancelled / (cancelled + left).`),
    h("div", { class: "two unequal" },
      h("div", null, h("h3", null, `Mean scores${of}`), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Mean scores" }, h("table", { class: "ledger" },
        h("thead", null, h("tr", null, [what, "down | up", "up", "down", "net", "mean |net|"].map((word) => h("th", { scope: "col", class: word === "down | up" ? "middle" : null }, word)))),
        h("tbody", null, result.bars.map((one) => h("tr", null, h("th", { scope: "row" }, one.name), h("td", { class: "picture" }, bar(one.exact, most)),
          h("td", null, one.up), h("td", null, one.down), h("td", null, minus(one.net)), h("td", null, h("b", null, one.size)))))), h("p", { class: "quiet" }, "Mean |net| says how far a feature moves a row, up or down; opposite nets of two rows cancel in the mean net."), result.more ? h("p", { class: "quiet" }, `${result.more} more with less influence.`) : null)),
      h("figure", null, h("h3", null, "How much cancelled"), columns(result.shares.counts, { ...result.shares, name: "Rows by conflict", percent: true }),
        h("figcaption", null, "Rows by conflict: cancelled / (cancelled + left). It says how outputs came about, not that they are wrong."))),
    result.swarm.length ? h("figure", null, h("h3", null, `Single rows${of}`), scroll("Single rows", swarm(result.swarm)),
      h("figcaption", null, `Every dot is one of ${result.swarm[0].nets.length} rows: its net score`,
        result.swarm.some((one) => one.ranks.some((rank) => rank !== null) && !one.category) ? [", ", h("span", { class: "key dot-0" }, "●"), " low and ", h("span", { class: "key dot-4" }, "●"), " high values of the feature"] : "", ".")) : null);
}

function outputs(result) {
  // Rows are explained for the class that is predicted; scores of different outputs are never averaged.
  if (result.outputs.length < 2) return null;
  const select = h("select", { id: "overview-output" });
  options(select, result.outputs.map((one) => [one.place, `${one.name} (${many(one.rows, "row")})`]), result.output);
  select.addEventListener("change", () => {
    state.output = +select.value;
    keep();
    refresh();
  });
  return h("div", { class: "buttons" }, field("Rows explained for", select), h("span", { class: "quiet" }, "Scores of different outputs are never averaged."));
}

async function groups() {
  const result = await ask("groups", { column: state.group, table: filter() });
  const most = Math.max(...result.groups.map((one) => one.exact), 1e-30);
  clear(view.groups, scroll("Groups of rows", h("table", { class: "layers" }, h("caption", null, `Mean conflict, cancelled / (cancelled + left), ${result.covered.toLocaleString("en")} of ${many(result.total, "row")}.`),
    h("thead", null, h("tr", null, [result.column, "conflict", "share of the most", "rows"].map((word) => h("th", { scope: "col" }, word)))),
    h("tbody", null, result.groups.map((one) => h("tr", null, h("th", { scope: "row" }, one.name), h("td", null, one.told),
      h("td", { class: "picture" }, h("div", { class: "one", look: { width: `${(100 * one.exact) / most}%` } })), h("td", null, one.rows.toLocaleString("en"))))))));
}

async function drift() {
  const result = await ask("drift", { output: state.output });
  const names = [about.title, about.second];
  clear(view.drift, h("div", { class: "two" }, result.files.map((one, place) => h("figure", null,
    columns(one.counts, { ...one, name: `Shares of conflict in ${names[place]}`, percent: true }),
    h("figcaption", null, `${names[place]}: ${one.done.toLocaleString("en")} of ${many(one.total, "row")}, mean conflict ${one.mean}.`)))),
    result.apart === undefined ? null : h("p", { id: "apart" }, `The two distributions are ${result.apart} apart (largest distance of their cumulated shares, 0 to 1).`),
    result.moved ? scroll("Features that differ most", h("table", { class: "layers" }, h("caption", null, `Features whose mean scores differ most, up and down${result.of ? ` (rows explained for ${result.of})` : ""}.`),
      h("thead", null, h("tr", null, ["feature", names[0], names[1]].map((word) => h("th", { scope: "col" }, word)))),
      h("tbody", null, result.moved.map((one) => h("tr", null, h("th", { scope: "row" }, one.name),
        [one.before, one.after].map(([up, down]) => h("td", null, `+${up} ${minus(`-${down}`)}`))))))) : null);
  return result;
}
