"""The rules a second time: straight from the paper's definitions, with positive and negative scores, slowly.

Every operation becomes four matrices M[to][from]: the share of each input's positive or negative score that arrives as
positive or negative score at each output, plus a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Pair:
    """Reference, positive and negative scores of one value."""

    reference: Tensor
    positive: Tensor
    negative: Tensor

    @property
    def value(self) -> Tensor:
        return self.reference + self.positive - self.negative


@dataclass
class Twin:
    """What an operation should do: matrices from each flattened input to the flattened output."""

    reference: Tensor
    bias: Tensor
    pp: list[Tensor]  # positive from positive
    pn: list[Tensor]  # positive from negative
    np: list[Tensor]  # negative from positive
    nn: list[Tensor]  # negative from negative

    def pair(self, inputs: Sequence[Pair]) -> Pair:
        return Pair(self.reference, *self.scores(inputs))

    def scores(self, inputs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        positive, negative = self.bias.clamp_min(0).flatten(), (-self.bias).clamp_min(0).flatten()
        for k, x in enumerate(inputs):
            p, n = x.positive.flatten(), x.negative.flatten()
            positive = positive + self.pp[k] @ p + self.pn[k] @ n
            negative = negative + self.np[k] @ p + self.nn[k] @ n
        return positive.view(self.reference.shape), negative.view(self.reference.shape)


def clip(x: Tensor) -> Tensor:
    return x.clamp_min(0)


def matrices(f: Callable[..., Tensor], at: Sequence[Tensor]) -> list[Tensor]:
    """The matrix of an affine function with respect to each of its arguments."""
    jacobian = torch.autograd.functional.jacobian(f, tuple(at))
    size = f(*at).numel()
    return [part.reshape(size, -1) for part in jacobian]


def linear(f: Callable[..., Tensor], inputs: Sequence[Pair]) -> Twin:
    """Definition "Linear Layer Scores": clip(W), clip(-W) and the bias."""
    weights = matrices(f, [x.value for x in inputs])
    bias = f(*(torch.zeros_like(x.value) for x in inputs))
    reference = f(*(x.reference for x in inputs)) - bias
    return Twin(
        reference,
        bias,
        [clip(w) for w in weights],
        [clip(-w) for w in weights],
        [clip(-w) for w in weights],
        [clip(w) for w in weights],
    )


def product(f: Callable[[Tensor, Tensor], Tensor], inputs: Sequence[Pair]) -> Twin:
    """f(a, b) - f(r, s) = f(a - r, (b + s) / 2) + f((a + r) / 2, b - s), both brackets constant."""
    u, v = inputs
    mid_u, mid_v = (u.value + u.reference) / 2, (v.value + v.reference) / 2
    (w_u,) = matrices(lambda x: f(x, mid_v), [u.value])
    (w_v,) = matrices(lambda x: f(mid_u, x), [v.value])
    weights = [w_u, w_v]
    reference = f(u.reference, v.reference)
    return Twin(
        reference,
        torch.zeros_like(reference),
        [clip(w) for w in weights],
        [clip(-w) for w in weights],
        [clip(-w) for w in weights],
        [clip(w) for w in weights],
    )


def softmax(f: Callable[[Tensor], Tensor], inputs: Sequence[Pair]) -> Twin:
    """Open attention, f being softmax or log_softmax along dimension 1: l_i (dL_i - mean of dL), with log-means l."""
    (x,) = inputs
    blocks = []
    for now, then in zip(x.value, x.reference, strict=True):
        p, r = now.softmax(0), then.softmax(0)
        mean = (p - r) / (p.log() - r.log())
        of_log = torch.eye(len(p)) - mean / mean.sum()
        blocks.append(of_log if bool((f(now[None]) < 0).any()) else mean[:, None] * of_log)
    weight = torch.block_diag(*blocks)
    reference = f(x.reference)
    return Twin(reference, torch.zeros_like(reference), [clip(weight)], [clip(-weight)], [clip(-weight)], [clip(weight)])


def flows(r: float, p: float, n: float, phi: Callable[[str], float]) -> dict[str, float]:
    """The eight score flows of one unit (appendix "Score Flow Definitions"); phi at "ref", "comb", "pos", "neg"."""
    comb = p - n
    i_pos, i_neg = (1.0, 0.0) if comb >= 0 else (0.0, 1.0)
    f_ref, f_comb, f_pos, f_neg = phi("ref"), phi("comb"), phi("pos"), phi("neg")
    upper = f_comb if comb >= 0 else f_ref  # phi(I+ o_comb + I- r)
    lower = f_ref if comb >= 0 else f_comb  # phi(I+ r + I- o_comb)
    peak = {
        "++": i_pos * max(f_comb - f_ref, 0) + max(max(f_pos - upper, 0), max(lower - f_neg, 0)),
        "-+": i_neg * max(f_comb - f_ref, 0) + max(max(upper - f_pos, 0), max(f_neg - lower, 0)),
        "+-": i_pos * max(f_ref - f_comb, 0) + max(max(upper - f_pos, 0), max(f_neg - lower, 0)),
        "--": i_neg * max(f_ref - f_comb, 0) + max(max(f_pos - upper, 0), max(lower - f_neg, 0)),
    }
    sign = (comb > 0) - (comb < 0)
    up = 0.0 if comb == 0 else max(sign * (f_comb - f_ref), 0) / abs(comb)
    down = 0.0 if comb == 0 else max(sign * (f_ref - f_comb), 0) / abs(comb)
    line = {
        "++": min(p * up, peak["++"]),
        "-+": min(n * down, peak["-+"]),
        "+-": min(p * down, peak["+-"]),
        "--": min(n * up, peak["--"]),
    }
    return {f"peak{k}": v for k, v in peak.items()} | {f"linear{k}": v for k, v in line.items()}


def elementwise(f: Callable[[Tensor], Tensor], inputs: Sequence[Pair], c: float) -> Twin:
    """Definitions "Score Multipliers" and "Activation Layer Scores", one unit after the other."""
    (x,) = inputs
    at = {"ref": f(x.reference), "comb": f(x.value), "pos": f(x.reference + x.positive), "neg": f(x.reference - x.negative)}
    flat = {name: values.flatten().tolist() for name, values in at.items()}
    size = x.reference.numel()
    multiplier = {k: torch.zeros(size, size, dtype=torch.float64) for k in ("++", "-+", "+-", "--")}
    r, p, n = (t.flatten().tolist() for t in (x.reference, x.positive, x.negative))
    for i in range(size):
        flow = flows(r[i], p[i], n[i], lambda name: flat[name][i])
        for k in multiplier:
            score = p[i] if k[0] == "+" else n[i]
            mixed = (1 - c) * flow[f"linear{k}"] + c * flow[f"peak{k}"]
            multiplier[k][i, i] = mixed / score if score else 0.0
    return Twin(
        at["ref"], torch.zeros_like(at["ref"]), [multiplier["++"]], [multiplier["-+"]], [multiplier["+-"]], [multiplier["--"]]
    )


def selection(f: Callable[..., Tensor], inputs: Sequence[Pair], sign: int) -> Twin:
    """Interpolation between the winners at the reference and at the input; windows are found by probing f."""
    out = f(*(x.reference for x in inputs))
    sizes = [x.reference.numel() for x in inputs]
    a = torch.cat([x.value.flatten() for x in inputs]) * sign
    r = torch.cat([x.reference.flatten() for x in inputs]) * sign
    member = torch.zeros(out.numel(), len(a), dtype=torch.bool)
    for i in range(len(a)):
        probe = r.clone()
        probe[i] = 1e6
        parts = [part.view(x.reference.shape) * sign for part, x in zip(probe.split(sizes), inputs, strict=True)]
        member[:, i] = f(*parts).flatten() * sign > 1e5
    weights = torch.zeros(out.numel(), len(a), dtype=torch.float64)
    for o in range(out.numel()):
        window = member[o].nonzero().flatten().tolist()
        best, best_r = max(a[i].item() for i in window), max(r[i].item() for i in window)
        now = [i for i in window if a[i] == best]
        then = [i for i in window if r[i] == best_r]

        def mean(values: Tensor, where: list[int]) -> float:
            return sum(values[i].item() for i in where) / len(where)

        u = mean(r, then) - mean(r, now)
        v = mean(a, now) - mean(a, then)
        tau = u / (u + v) if u + v > 0 else 0.0
        for i in now:
            weights[o, i] += (1 - tau) / len(now)
        for i in then:
            weights[o, i] += tau / len(then)
    split = list(weights.split(sizes, 1))
    zero = [torch.zeros_like(w) for w in split]
    return Twin(out, torch.zeros_like(out), split, zero, zero, split)


def soft_selection(f: Callable[[Tensor], Tensor], inputs: Sequence[Pair]) -> Twin:
    """As for a selection, between the derivatives of f, which is convex, at the reference and at the input."""
    (x,) = inputs
    (now,), (then,) = matrices(f, [x.value]), matrices(f, [x.reference])
    change, delta = (f(x.value) - f(x.reference)).flatten(), (x.value - x.reference).flatten()
    weights = torch.zeros_like(now)
    for o in range(len(now)):
        low, high = 0.0, 1.0
        for _ in range(200):  # the share of the derivative at the reference, by bisection
            middle = (low + high) / 2
            weights[o] = middle * then[o] + (1 - middle) * now[o]
            low, high = (middle, high) if weights[o] @ delta > change[o] else (low, middle)
    reference, up, down = f(x.reference), clip(weights), clip(-weights)
    return Twin(reference, torch.zeros_like(reference), [up], [down], [down], [up])


# ---- whole layers, step by step --------------------------------------------------------------------------------------
C = 0.5


def lin(f: Callable[..., Tensor], *inputs: Pair) -> Pair:
    return linear(f, inputs).pair(inputs)


def act(phi: Callable[[Tensor], Tensor], x: Pair) -> Pair:
    return elementwise(phi, [x], C).pair([x])


def mul(a: Pair, b: Pair) -> Pair:
    return product(torch.mul, [a, b]).pair([a, b])


def constant(value: Tensor) -> Pair:
    """A constant of the model: reference 0."""
    return Pair(torch.zeros_like(value), clip(value), clip(-value))


def gates(x: Pair, h: Pair, w: Sequence[Tensor]) -> tuple[Pair, Pair]:
    return lin(lambda v: v @ w[0].T + w[2], x), lin(lambda v: v @ w[1].T + w[3], h)


def chunks(x: Pair, count: int) -> list[Pair]:
    size = x.reference.shape[-1] // count
    return [lin(lambda v, i=i: v[..., i * size : (i + 1) * size], x) for i in range(count)]


def lstm_step(x: Pair, state: tuple[Pair, Pair], w: Sequence[Tensor]) -> tuple[Pair, Pair]:
    h, memory = state
    i, f, g, o = chunks(lin(torch.add, *gates(x, h, w)), 4)
    kept = mul(act(torch.sigmoid, f), memory)
    new = mul(act(torch.sigmoid, i), act(torch.tanh, g))
    memory = lin(torch.add, kept, new)
    return mul(act(torch.sigmoid, o), act(torch.tanh, memory)), memory


def gru_step(x: Pair, h: Pair | None, w: Sequence[Tensor]) -> Pair:
    if h is None:  # the state before the first step is a constant, so that its gates are weights and no values
        reset_h, update_h, new_h = w[3].chunk(3)
        r_x, z_x, n_x = chunks(lin(lambda v: v @ w[0].T + w[2], x), 3)
        reset, update = (
            act(torch.sigmoid, lin(lambda v: v + reset_h, r_x)),
            act(torch.sigmoid, lin(lambda v: v + update_h, z_x)),
        )
        new = act(torch.tanh, lin(lambda a, b: a + b * new_h, n_x, reset))
        return lin(torch.add, new, mul(update, lin(torch.neg, new)))
    from_x, from_h = gates(x, h, w)
    (r_x, z_x, n_x), (r_h, z_h, n_h) = chunks(from_x, 3), chunks(from_h, 3)
    reset, update = act(torch.sigmoid, lin(torch.add, r_x, r_h)), act(torch.sigmoid, lin(torch.add, z_x, z_h))
    new = act(torch.tanh, lin(torch.add, n_x, mul(reset, n_h)))
    return lin(torch.add, new, mul(update, lin(lambda a, b: a - b, h, new)))


def rnn_step(x: Pair, h: Pair, w: Sequence[Tensor], phi: Callable[[Tensor], Tensor]) -> Pair:
    return act(phi, lin(torch.add, *gates(x, h, w)))
