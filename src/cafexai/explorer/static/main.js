// The page: views, keys, and what is in the address.
import { ask, onReturn, Refusal } from "./api.js";
import { byId, clear, h, many } from "./dom.js";
import { about, keep, restore, state } from "./state.js";
import * as fights from "./fights.js";
import * as overview from "./overview.js";
import * as row from "./row.js";
import * as sides from "./sides.js";
import * as table from "./table.js";
import * as take from "./take.js";

const VIEWS = {
  rows: ["Rows", table], row: ["One row", row], fights: ["Who fights whom", fights], sides: ["Side by side", sides], overview: ["Overview", overview], take: ["Take away", take],
};
let shown = null;

function go(step = false) {
  if (!(state.view in VIEWS)) state.view = "rows";
  keep(step);
  shown?.hide?.();
  const [, view] = VIEWS[state.view];
  for (const link of byId("views").children) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[state.view][0]} · ${about.title} · cafexai explorer`;
  shown = view;
  view.show(byId("main"), go);
}

function open(view) {
  state.view = view;
  go(true);
}

addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select");
  if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !typing && state.view === "row") {
    event.preventDefault();
    row.undo();
  } else if (event.altKey && /^[1-6]$/.test(event.key)) {
    event.preventDefault();
    open(Object.keys(VIEWS)[+event.key - 1]);
    byId("main").focus();
  }
});
addEventListener("popstate", () => {
  if (restore()) go();
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

async function begin() {
  try {
    Object.assign(about, await ask("about"));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return clear(byId("main"), h("p", null, error.message));
  }
  const restored = restore();
  state.choice = { ...about.start, ...(restored ? state.choice : {}) };
  if (!Number.isInteger(state.row) || state.row < 0 || state.row >= about.rows) state.row = 0;
  clear(byId("title"), about.title, " ", h("small", null, many(about.rows, "row")));
  clear(byId("views"), Object.entries(VIEWS).map(([name, [label]], place) =>
    h("button", { type: "button", "data-view": name, id: `view-${name}`, title: `Alt+${place + 1}`, onclick: () => open(name) }, label)));
  return go();
}

onReturn(() => (about.title ? go() : begin()));
begin();
