// The scores of one unit, phi(sum of its inputs), as the library computes them; the pictures draw what stands here.
"use strict";
const Unit = (() => {
  // The error function: a series for small x, a continued fraction for large x.
  function erf(x) {
    const size = Math.abs(x);
    if (size > 6) return Math.sign(x);
    if (size < 2.5) {
      let term = size, sum = size;
      for (let k = 1; Math.abs(term) > 1e-17 * sum; k++) sum += (term *= (-size * size) / k) / (2 * k + 1);
      return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
    }
    let tail = 0;
    for (let k = 60; k > 0; k--) tail = k / 2 / (size + tail);
    return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / (size + tail));
  }
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const functions = {
    ReLU: (x) => Math.max(x, 0),
    GELU: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
    SiLU: (x) => x * sigmoid(x),
    tanh: Math.tanh,
    sigmoid,
    softplus: (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
    ELU: (x) => (x > 0 ? x : Math.expm1(x)),
    "leaky ReLU": (x) => (x > 0 ? x : 0.01 * x),
  };
  // The derivative at a point where the inputs cancel exactly; ReLU and its kind have slope 0 (or 0.01) at 0, as in torch.
  function slope(phi, x) {
    if (phi === functions.ReLU) return x > 0 ? 1 : 0;
    if (phi === functions["leaky ReLU"]) return x > 0 ? 1 : 0.01;
    const step = 1e-5;
    return (phi(x + step) - phi(x - step)) / (2 * step);
  }

  // r: reference; p, n: sums of the positive and of the negative inputs, both at least 0. Definitions of the paper.
  function flows(phi, r, p, n, c) {
    const d = p - n, change = phi(r + d) - phi(r), cancels = Math.min(p, n) > 0 ? 1 : 0;
    const up = cancels * (phi(r + p) - phi(d >= 0 ? r + d : r)), down = cancels * (phi(d >= 0 ? r : r + d) - phi(r - n));
    const along = Math.max(up, down, 0), against = Math.max(-up, -down, 0);
    const above = d >= 0 ? 1 : 0, rise = Math.max(change, 0), fall = Math.max(-change, 0);
    const peak = {
      "++": above * rise + along, "--": (1 - above) * fall + along,
      "+-": above * fall + against, "-+": (1 - above) * rise + against,
    };
    const line = d ? change / d : 0, linear = {}, mixed = {};
    for (const [way, most] of Object.entries(peak)) {
      const start = way[0] === "+" ? p : n, same = way[0] === way[1] ? 1 : -1;
      linear[way] = Math.min(start * Math.max(same * line, 0), most);
      mixed[way] = (1 - c) * linear[way] + c * most;
    }
    return { change, up, down, peak, linear, mixed, slope: d ? line : slope(phi, r) };
  }

  // What every input of the unit gets. variant: "published" (paths, peak flows) or "default" (units, mean flows).
  function scores(phi, r, inputs, c, variant) {
    const p = inputs.reduce((sum, k) => sum + Math.max(k, 0), 0), n = inputs.reduce((sum, k) => sum + Math.max(-k, 0), 0);
    const all = flows(phi, r, p, n, c);
    if (variant === "published")
      return inputs.map((k) => {
        const from = k >= 0 ? "+" : "-", share = k ? Math.abs(k) / (k > 0 ? p : n) : 0;
        return { positive: share * all.mixed[`${from}+`], negative: share * all.mixed[`${from}-`] };
      });
    const kept = (1 - c) * Math.min(p, n) * all.slope + (c * (all.up + all.down)) / 2;
    const above = p - n >= 0 ? all.change : 0, below = p - n >= 0 ? 0 : all.change;
    return inputs.map((k) => {
      const net = k > 0 ? (k / p) * (above + kept) : k < 0 ? (-k / n) * (below - kept) : 0;
      return { positive: Math.max(net, 0), negative: Math.max(-net, 0) };
    });
  }

  // The measured conflict of a function between inputs with positive and with negative nets (Definition 4 of the paper).
  function conflict(f, inputs, nets) {
    const keep = (sign) => f(inputs.map((k, i) => (Math.sign(nets[i]) === -sign ? 0 : k)));
    const y = f(inputs), r = f(inputs.map(() => 0)), forIt = keep(1), against = keep(-1);
    const cancelled = (u) => ((y - u) * (u - r) < 0 ? Math.min(Math.abs(y - u), Math.abs(u - r)) : 0);
    const size = Math.max(cancelled(forIt), cancelled(against)), left = Math.abs(y - r);
    return { sides: [r, forIt, against, y], conflict: size, left, share: size ? size / (size + left) : 0 };
  }
  return { functions, flows, scores, conflict, erf, slope };
})();
