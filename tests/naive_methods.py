"""Attribution methods written a second time, unit by unit, straight from their papers."""

from __future__ import annotations

import torch


def layers_of(model):
    """(weight, bias, activation) of a Sequential of Linear layers with activations in between."""
    modules = list(model)
    return [
        (m.weight.detach(), m.bias.detach(), modules[i + 1] if i + 1 < len(modules) else None)
        for i, m in enumerate(modules)
        if isinstance(m, torch.nn.Linear)
    ]


def reveal_cancel_unit(phi, reference, contributions):
    """Both orders of adding the positive and the negative inputs of one unit."""
    up = sum(c for c in contributions if c > 0)
    down = sum(c for c in contributions if c < 0)
    of_up = 0.5 * (phi(reference + up) - phi(reference)) + 0.5 * (phi(reference + up + down) - phi(reference + down))
    of_down = 0.5 * (phi(reference + down) - phi(reference)) + 0.5 * (phi(reference + up + down) - phi(reference + up))
    return of_up, of_down, up, down


def reveal_cancel(model, x, reference, target):
    """Multipliers of DeepLIFT's linear and RevealCancel rules, one row, by loops (Shrikumar et al. 2017, section 3.5)."""
    layers = layers_of(model)
    values, starts = [x], [reference]
    parts = []  # per layer: multipliers of the positive and negative part of each unit
    for weight, bias, activation in layers:
        phi = (lambda v: activation(v)) if activation is not None else (lambda v: v)
        start, value = starts[-1] @ weight.T + bias, values[-1] @ weight.T + bias
        change = values[-1] - starts[-1]
        here = []
        for unit in range(len(weight)):
            of_up, of_down, up, down = reveal_cancel_unit(
                phi, start[unit], [w * d for w, d in zip(weight[unit], change, strict=True)]
            )
            here.append((of_up / up if up else torch.tensor(0.0), of_down / down if down else torch.tensor(0.0)))
        parts.append(here)
        starts.append(phi(start))
        values.append(phi(value))
    multiplier = torch.zeros(len(values[-1]))
    multiplier[target] = 1
    for (weight, _, _), here, value, start in reversed(list(zip(layers, parts, values[:-1], starts[:-1], strict=True))):
        change = value - start
        below = torch.zeros(len(change))
        for i in range(len(change)):
            for unit in range(len(weight)):
                up, down = here[unit]
                w = weight[unit, i]
                if w * change[i] > 0:
                    below[i] += multiplier[unit] * up * w
                elif w * change[i] < 0:
                    below[i] += multiplier[unit] * down * w
                else:
                    below[i] += multiplier[unit] * (up + down) / 2 * w
        multiplier = below
    return multiplier * (x - reference)


def relevance(model, x, target):
    """LRP-0, one row: the relevance of a unit is shared by its inputs in proportion to weight times input."""
    layers = layers_of(model)
    values, sums = [x], []
    for weight, bias, activation in layers:
        sums.append(values[-1] @ weight.T + bias)
        values.append(activation(sums[-1]) if activation is not None else sums[-1])
    relevant = torch.zeros(len(values[-1]))
    relevant[target] = values[-1][target]
    for (weight, _, _), value, total in reversed(list(zip(layers, values[:-1], sums, strict=True))):
        below = torch.zeros(len(value))
        for unit in range(len(weight)):
            if total[unit] != 0:
                below += relevant[unit] * weight[unit] * value / total[unit]
        relevant = below
    return relevant


def handed_down_biases(model, x, target):
    """Bias back-propagation, one row: what each bias brings to the output goes down by shares |weight * input|."""
    layers = layers_of(model)
    values, slopes = [x], []
    for weight, bias, activation in layers:
        total = values[-1] @ weight.T + bias
        slopes.append((total > 0).to(x.dtype) if activation is not None else torch.ones_like(total))
        values.append(total * slopes[-1])
    gradient = torch.zeros(len(values[-1]))
    gradient[target] = 1
    amount = torch.zeros(len(values[-1]))
    for (weight, bias, _), slope, value in reversed(list(zip(layers, slopes, values[:-1], strict=True))):
        amount = amount + gradient * slope * bias
        below = torch.zeros(len(value))
        for unit in range(len(weight)):
            size = (weight[unit] * value).abs()
            share = size / size.sum() if size.sum() > 0 else torch.full_like(size, 1 / len(size))
            below += amount[unit] * share
        gradient = (gradient * slope) @ weight
        amount = below
    return gradient * x, amount
