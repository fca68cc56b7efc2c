// Two pictures that the reader can move: the neuron of the first page, and the score flows of a unit.
"use strict";
const Pictures = (() => {
  const svg = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const make = (name, attributes = {}, ...parts) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...parts);
    return node;
  };
  const shown = (value) => (Math.abs(value) < 0.005 ? "0.00" : value.toFixed(2)).replace("-", "−");

  // A slider with its label and its value: returns the row and a function for its number.
  function slider(name, label, [low, high, step, start], redraw) {
    const input = make("input", { type: "range", name, min: low, max: high, step, value: start, "aria-label": label });
    const output = make("output", {}, shown(start));
    input.addEventListener("input", () => { output.textContent = shown(+input.value); redraw(); });
    return [make("label", { class: "cafe-slider" }, make("span", {}, label), input, output), () => +input.value];
  }
  function choice(name, label, options, redraw) {
    const select = make("select", { name, "aria-label": label }, ...options.map((one) => make("option", {}, one)));
    select.addEventListener("change", redraw);
    return [make("label", { class: "cafe-slider" }, make("span", {}, label), select), () => select.value];
  }
  // A number in a table, with all its digits for those who check it.
  const cell = (name, value) => make("td", { "data-name": name, "data-value": value }, shown(value));

  // A bar of one feature: up to the right, down to the left, of at most one unit.
  function bar(positive, negative) {
    const box = svg("svg", { viewBox: "-100 0 200 12", class: "cafe-bar", "aria-hidden": "true" });
    const width = (value) => Math.min(100, 100 * value);
    box.append(svg("rect", { x: 0, y: 1, height: 10, width: width(positive), class: "cafe-up" }));
    box.append(svg("rect", { x: -width(negative), y: 1, height: 10, width: width(negative), class: "cafe-down" }));
    box.append(svg("line", { x1: 0, x2: 0, y1: 0, y2: 12, class: "cafe-axis" }));
    return box;
  }

  // relu(0.9 chest pain - breathing), the neuron of the paper.
  function neuron(place) {
    const phi = Unit.functions.ReLU, names = ["chest pain", "worse with breathing"];
    const result = make("div", { "aria-live": "polite" });
    const redraw = () => {
      const inputs = [0.9 * one(), -two()], y = phi(inputs[0] + inputs[1]);
      const open = y > 0 ? 1 : 0;
      const rows = [
        ["gradient", "Gradient × input, Integrated Gradients, DeepLIFT Rescale", inputs.map((k) => open * k)
          .map((k) => ({ positive: Math.max(k, 0), negative: Math.max(-k, 0) }))],
        ["default", "CAFE(model)", Unit.scores(phi, 0, inputs, 0.5, "default")],
        ["published", "CAFE.published(model, c=1)", Unit.scores(phi, 0, inputs, 1, "published")],
      ];
      const table = make("table", {}, make("tr", {}, make("th", {}, "scores by"), ...names.map((n) => make("th", {}, n))));
      for (const [name, label, found] of rows) {
        const line = make("tr", {}, make("td", {}, ...(name === "gradient" ? [label] : [make("code", {}, label)])));
        found.forEach(({ positive, negative }, i) => {
          const place = cell(`${name}-${i}`, positive - negative);
          place.prepend(bar(positive, negative));
          line.append(place);
        });
        table.append(line);
      }
      const nets = rows[1][2].map((s) => s.positive - s.negative);
      const measured = Unit.conflict((k) => phi(k[0] + k[1]), inputs, nets);
      const text = `Output ${shown(y)}. With only chest pain it would be ${shown(phi(inputs[0]))}. ` +
        `So ${shown(measured.conflict)} cancelled and ${shown(measured.left)} is left: conflict ${Math.round(100 * measured.share)} %.`;
      const sentence = make("p", { "data-name": "conflict", "data-value": measured.conflict, "data-share": measured.share,
        "data-output": y }, text);
      result.replaceChildren(sentence, make("div", { class: "cafe-scroll" }, table));
    };
    const [row1, one] = slider("x1", "chest pain, weight +0.9", [0, 1, 0.01, 1], () => redraw());
    const [row2, two] = slider("x2", "worse with breathing, weight −1", [0, 1, 0.01, 1], () => redraw());
    place.replaceChildren(row1, row2, result);
    redraw();
  }

  // The curve of phi with the four points of the rule.
  function curve(phi, r, p, n, name) {
    const low = Math.min(r - n, r) - 1, high = Math.max(r + p, r) + 1, steps = 160;
    const xs = [...Array(steps + 1).keys()].map((i) => low + ((high - low) * i) / steps), ys = xs.map(phi);
    const bottom = Math.min(...ys, 0), top = Math.max(...ys, 0.5), [W, H, edge] = [640, 300, 28];
    const X = (x) => edge + ((x - low) / (high - low)) * (W - 2 * edge), Y = (y) => H - edge - ((y - bottom) / (top - bottom)) * (H - 2 * edge);
    const box = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${name} with the points of the rule`, class: "cafe-curve" });
    box.append(svg("line", { x1: edge, x2: W - edge, y1: Y(0), y2: Y(0), class: "cafe-axis" }));
    box.append(svg("polyline", { points: xs.map((x, i) => `${X(x)},${Y(ys[i])}`).join(" "), class: "cafe-line" }));
    const a = r + p - n, points = [["all", a, "cafe-net"], ["positive alone", r + p, "cafe-up"], ["negative alone", r - n, "cafe-down"], ["reference", r, "cafe-axis"]];
    const lifts = [-14, -14, 22, 22];
    points.forEach(([label, x, kind], i) => {
      box.append(svg("circle", { cx: X(x), cy: Y(phi(x)), r: 6, class: kind }));
      box.append(svg("text", { x: Math.min(Math.max(X(x), 60), W - 70), y: Math.min(Math.max(Y(phi(x)) + lifts[i], 14), H - 6), class: "cafe-label" }, label));
    });
    return box;
  }

  // Score flows: p, n, c, the reference and the function are free.
  function flows(place) {
    const result = make("div", { "aria-live": "polite" });
    const redraw = () => {
      const name = kind(), phi = Unit.functions[name], r = at(), p = up(), n = down(), c = share();
      const all = Unit.flows(phi, r, p, n, c);
      const head = (...words) => make("tr", {}, ...words.map((word) => make("th", {}, word)));
      const table = make("table", {}, head("from inputs to output", "linear flow (c = 0)", "peak flow (c = 1)", "at this c"));
      const ways = { "++": "positive to positive", "-+": "negative to positive", "+-": "positive to negative", "--": "negative to negative" };
      for (const [way, label] of Object.entries(ways))
        table.append(make("tr", {}, make("td", {}, label), cell(`linear${way}`, all.linear[way]), cell(`peak${way}`, all.peak[way]), cell(`mixed${way}`, all.mixed[way])));
      const scores = make("table", {}, head("scores", "positive inputs: up", "down", "negative inputs: up", "down", "sum"));
      for (const variant of ["published", "default"]) {
        const found = Unit.scores(phi, r, [p, -n], c, variant), line = make("tr", {}, make("td", {}, make("code", {}, variant)));
        found.forEach((s, i) => line.append(cell(`${variant}-${i}-positive`, s.positive), cell(`${variant}-${i}-negative`, s.negative)));
        line.append(cell(`${variant}-sum`, found.reduce((sum, s) => sum + s.positive - s.negative, 0)));
        scores.append(line);
      }
      const change = make("p", { "data-name": "change", "data-value": all.change },
        `${name} changes from ${shown(phi(r))} to ${shown(phi(r + p - n))}, by ${shown(all.change)}. Of the inputs, ${shown(Math.min(p, n))} cancelled.`);
      result.replaceChildren(curve(phi, r, p, n, name), change, make("div", { class: "cafe-scroll" }, table), make("div", { class: "cafe-scroll" }, scores));
    };
    const [row0, kind] = choice("phi", "function", ["GELU", ...Object.keys(Unit.functions).filter((f) => f !== "GELU")], () => redraw());
    const [row1, up] = slider("p", "p, the positive inputs", [0, 4, 0.01, 0.5], () => redraw());
    const [row2, down] = slider("n", "n, the negative inputs", [0, 4, 0.01, 1.5], () => redraw());
    const [row3, at] = slider("r", "r, the reference", [-2, 2, 0.01, 0], () => redraw());
    const [row4, share] = slider("c", "c", [0, 1, 0.01, 0.5], () => redraw());
    place.replaceChildren(row0, row1, row2, row3, row4, result);
    redraw();
  }

  const start = () => {
    document.querySelectorAll(".cafe-neuron").forEach(neuron);
    document.querySelectorAll(".cafe-flows").forEach(flows);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
  return { start };
})();
