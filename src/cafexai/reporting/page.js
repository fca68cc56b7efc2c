"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const list = byId("rows"), rows = [...list.children], status = byId("status"), all = byId("all"), which = byId("which");
  const several = which ? which.options.length - 1 : 1;
  const names = rows.map((row) => row.querySelector("b").textContent.toLowerCase());
  const texts = rows.map((row) => {
    // "feature=value" of every line can be searched, beside all words that are seen.
    const pairs = [...row.querySelectorAll("th")].map((th) => [...th.childNodes].map((n) => n.textContent.trim()).filter(Boolean).join("="));
    return (row.textContent + " " + pairs.join(" ")).toLowerCase();
  });
  let last = "";
  const update = () => {
    const order = byId("order").value, wanted = byId("search").value.toLowerCase().split(",").map((w) => w.trim()).filter(Boolean);
    const key = order.slice(-1), sign = order.length > 1 ? -1 : 1;
    const places = rows.map((_, place) => place);
    if (key) places.sort((a, b) => sign * (rows[a].dataset[key] - rows[b].dataset[key]) || a - b);
    let shown = 0;
    for (const place of places) {
      const mine = !which || !which.value || place % several === +which.value;
      rows[place].hidden = !mine || !wanted.every((word) => (names.includes(word) ? names[place] === word : texts[place].includes(word)));
      shown += !rows[place].hidden;
    }
    if (order !== last) list.append(...places.map((place) => rows[place])); // a search moves nothing
    last = order;
    status.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
  };
  const open = (value) => {
    for (const row of rows) row.open = value;
    all.textContent = value ? "Close all" : "Open all";
  };
  const visit = () => {
    const row = byId(location.hash.slice(1));
    if (row && row.tagName === "DETAILS") {
      row.hidden = false;
      row.open = true;
      row.scrollIntoView();
      row.firstChild.focus({ preventScroll: true });
    }
  };
  let before = null; // what was open before printing: paper shows all rows, whatever was searched for
  addEventListener("beforeprint", () => {
    before = rows.map((row) => [row.open, row.hidden]);
    for (const row of rows) [row.open, row.hidden] = [true, false];
  });
  addEventListener("afterprint", () => {
    if (before) rows.forEach((row, place) => ([row.open, row.hidden] = before[place]));
    before = null;
  });
  byId("tools").hidden = false;
  byId("tools").addEventListener("submit", (event) => event.preventDefault());
  for (const control of [byId("order"), byId("search"), which]) if (control) control.addEventListener("input", update);
  all.addEventListener("click", () => open(all.textContent === "Open all"));
  addEventListener("hashchange", visit);
  update();
  visit();
})();
