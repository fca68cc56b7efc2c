"""Scores corrected by a few evaluations: explain(..., refine=20)."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import models
from cafexai import CAFE, DataNoise, Explanation, Explanations, Masks, Refine
from cafexai.methods import METHODS
from cafexai.refinement.fit import fit_correction, fit_slopes


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@functools.cache
def case():
    return models.mlp(5, 8, 3).double(), rows(6, 5), rows(40, 5, seed=1)


def naive(lost, present, scores, change, ridge):
    """One row: the normal equations with a Lagrange multiplier."""
    count = lost.shape[1]
    spread = lost.square().mean(0)
    moved = spread > 0
    system = torch.zeros(count + 1, count + 1, dtype=torch.float64)
    system[:count, :count] = lost.T @ lost + ridge * moved.sum() * torch.diag(torch.where(moved, spread, 1.0))
    system[:count, count] = system[count, :count] = (present & moved).double()
    system[count, count] = 0.0 if (present & moved).any() else 1.0
    goal = torch.cat([lost.T @ (change - lost @ scores), torch.zeros(1, dtype=torch.float64)])
    return torch.linalg.solve(system, goal)[:count]


@pytest.mark.parametrize(("samples", "features"), [(8, 5), (6, 6), (4, 9)])
def test_the_fit_is_the_naive_one(samples, features):
    lost, scores, change = rows(3, samples, features), rows(3, features, seed=1), rows(3, samples, seed=2)
    lost[1, :, 2] = 0  # never moved
    present = rows(3, features, seed=3) > -0.5
    present[:, :2] = True
    fit = fit_correction(lost, present, scores, change, 0.7)
    for i in range(3):
        twin = naive(lost[i], present[i], scores[i], change[i], 0.7)
        torch.testing.assert_close(fit.correction[i] + fit.absent[i], twin, rtol=1e-9, atol=1e-10)
        missed = change[i] - lost[i] @ scores[i]
        assert fit.combined_error[i].item() == pytest.approx(missed.square().mean().sqrt().item())
    assert (fit.correction.sum(1).abs() < 1e-12).all()
    assert not fit.correction[~present].any()
    assert not fit.absent[present].any()
    assert fit.correction[1, 2] == fit.correction_error[1, 2] == 0


def test_held_out_pairs_are_those_of_fits_without_them():
    lost, scores, change = rows(1, 8, 3), rows(1, 3, seed=1), rows(1, 8, seed=2)
    lost = lost / lost.square().mean(1, keepdim=True).sqrt()
    fit = fit_correction(lost, torch.zeros(1, 3).bool(), scores, change, 0.5)
    missed, apart = [], []
    for pair in range(4):
        rest = [i for i in range(8) if i // 2 != pair]
        system = lost[0, rest].T @ lost[0, rest] + 1.5 * torch.eye(3, dtype=torch.float64)
        found = torch.linalg.solve(system, lost[0, rest].T @ (change - (lost @ scores[..., None])[..., 0])[0, rest])
        missed.append((change - (lost @ (scores + found)[..., None])[..., 0])[0, 2 * pair : 2 * pair + 2])
        apart.append(fit.absent[0] - found)
    assert fit.refined_error.item() == pytest.approx(torch.cat(missed).square().mean().sqrt().item())
    torch.testing.assert_close(fit.correction_error[0], (torch.stack(apart).square().sum(0) * 3 / 4).sqrt())


def naive_steps(lost, present, scores, change, slopes):
    """One row: the step to the mean slopes that keeps the sum, by Lagrange, taken as far as the answers agree."""
    count = lost.shape[1]
    spread = lost.square().mean(0)
    step = slopes.mean(0) - scores
    weight = torch.where(spread > 0, spread, 1.0)
    system = torch.zeros(count + 1, count + 1, dtype=torch.float64)
    system[:count, :count] = torch.diag(weight)
    system[:count, count] = (present & (spread > 0)).double()  # what never moved stays at its slope
    system[count, :count] = present.double()
    step = torch.linalg.solve(system, torch.cat([weight * step, torch.zeros(1).double()]))[:count]
    foretold, missed = lost @ step, change - lost @ scores
    return step * min(1.0, max(0.0, (foretold @ missed / (foretold @ foretold)).item()))


def test_steps_to_the_slopes_are_the_naive_ones():
    lost, scores = rows(4, 6, 5), rows(4, 5, seed=1)
    slopes = rows(4, 6, 5, seed=4)
    change = (lost @ (0.4 * scores + 0.6 * slopes.mean(1))[..., None])[..., 0] + 0.1 * rows(4, 6, seed=2)
    change[3] = lost[3] @ (2 * scores[3] - slopes[3].mean(0))  # answers that disagree with the slopes
    lost[1, :, 2] = 0  # never moved
    present = rows(4, 5, seed=3) > -0.5
    present[:, :2] = True
    fit = fit_slopes(lost, present, scores, change, slopes, 1.0)
    for i in range(4):
        twin = naive_steps(lost[i], present[i], scores[i], change[i], slopes[i])
        torch.testing.assert_close(fit.correction[i] + fit.absent[i], twin, rtol=1e-9, atol=1e-10)
        missed, apart = [], []
        for pair in range(3):
            rest = [k for k in range(6) if k // 2 != pair]
            part = naive_steps(lost[i, rest], present[i], scores[i], change[i, rest], slopes[i, rest])
            missed.append(change[i, 2 * pair : 2 * pair + 2] - lost[i, 2 * pair : 2 * pair + 2] @ (scores[i] + part))
            apart.append(part - twin)
        assert fit.refined_error[i].item() == pytest.approx(torch.cat(missed).square().mean().sqrt().item())
        torch.testing.assert_close(fit.correction_error[i], (torch.stack(apart).square().sum(0) * 2 / 3).sqrt())
    assert (fit.correction.sum(1).abs() < 1e-12).all()
    assert not fit.correction[3].any()
    still = torch.zeros(1, 4, 2, dtype=torch.float64)  # nothing moved, and one of one feature: their sums leave no room
    for moved, some in ((still, torch.tensor([[True, True]])), (rows(1, 4, 2), torch.tensor([[True, False]]))):
        alone = fit_slopes(moved, some, scores[:1, :2], change[:1, :4], slopes[:1, :4, :2], 1.0)
        assert alone.correction.abs().max() < 1e-12


def test_features_without_slopes_are_fitted():
    lost, scores, change, slopes = rows(2, 6, 4), rows(2, 4, seed=1), rows(2, 6, seed=2), rows(2, 6, 4, seed=3)
    slopes[:, :, 3] = torch.nan
    present = torch.ones(2, 4, dtype=torch.bool)
    fit = fit_slopes(lost, present, scores, change, slopes, 0.5)
    for i in range(2):
        kept = present[i] & ~slopes[i, 0].isnan()
        known = torch.where(kept, slopes[i], scores[i])
        step = naive_steps(lost[i], kept, scores[i], change[i], known)
        twin = step + naive(lost[i], present[i], scores[i] + step, change[i], 0.5)
        torch.testing.assert_close(fit.correction[i], twin, rtol=1e-9, atol=1e-10)
    nothing = fit_slopes(lost, present, scores, change, torch.full_like(slopes, torch.nan), 0.5)
    torch.testing.assert_close(nothing.correction, fit_correction(lost, present, scores, change, 0.5).correction)


def test_slopes_foretell_what_noise_does():
    """Held against the model at fresh noise: what refined scores miss, with slopes and without, at the same price."""
    torch.manual_seed(0)
    model, data = models.mlp(12, 16, 16, 1).double(), rows(200, 12, seed=1)
    x = rows(20, 12, seed=2)
    noise = rows(20, 300, 12, seed=3)
    with torch.no_grad():
        change = model(x) - model((x[:, None] - noise).flatten(0, 1)).view(20, 300)
    missed = {}
    for slopes in (True, False):
        cafe = CAFE.published(model, background=data)
        e = cafe.refine(cafe.explain(x, target=0), Refine(20, slopes=slopes))
        assert e.meta.settings["refine"]["slopes"] is slopes
        for name, scores in (("plain", e.combined), (slopes, e.refined)):
            missed[name] = (change - (noise / x[:, None] * scores[:, None]).sum(2)).square().mean().item()
    assert missed[True] < 0.8 * missed["plain"]
    assert missed[True] < 0.9 * missed[False]


def test_models_that_leave_autograd_are_evaluated_plainly():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = models.mlp(5, 8, 3).double()

        def forward(self, x):
            with torch.no_grad():
                return self.net(x)

    model, x, data = Alone().eval(), rows(3, 5), rows(30, 5, seed=1)
    e = CAFE(model, background=data).explain(x, refine=8, target=0)
    assert e.meta.settings["refine"]["slopes"] is False
    plain = CAFE(model.net, background=data).explain(x, refine=Refine(8, slopes=False), target=0)
    torch.testing.assert_close(e.refinement.correction, plain.correction)


def test_sums_are_kept_and_nothing_else_changes():
    model, x, data = case()
    plain, e = CAFE(model).explain(x), CAFE(model, background=data).explain(x, refine=20)
    for name in ("positive", "negative", "combined", "output", "bias"):
        assert torch.equal(getattr(plain, name), getattr(e, name))
    assert (e.refinement.correction.sum(1).abs() < 1e-12).all()
    assert e.refinement.correction.abs().max() > 1e-3
    torch.testing.assert_close(e.baseline_output + e.bias + e.refined.sum(1), e.output)
    assert not e.refinement.absent.any()
    with pytest.raises(ValueError, match=r"cafe\.refine"):
        _ = plain.refined


def test_a_linear_model_needs_no_correction():
    model = nn.Linear(4, 2).double()
    e = CAFE(model, background=rows(30, 4)).explain(rows(5, 4, seed=2), refine=10, target=1)
    assert e.refinement.correction.abs().max() < 1e-12
    assert e.refinement.combined_error.max() < 1e-12
    assert e.refinement.refined_error.max() < 1e-12


def test_a_known_quadratic():
    """f = a b + a: at (2, 1) its slopes are 2 and 2, and the scores add up to 4: slopes and sum disagree."""
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    cafe = CAFE(lambda v: v[:, 0] * v[:, 1] + v[:, 0], background=0.01 * rows(50, 2))
    e = cafe.explain(x, refine=Refine(400, ridge=1e-9))
    lost = torch.diag(cafe.background.std(0)) / x  # minimise sum (std (slope - score / x))^2 with scores that add up to 4
    inverse = lost.diagonal().square().reciprocal()
    best = torch.tensor([4.0, 2.0], dtype=torch.float64)
    best = best + inverse / inverse.sum() * (4 - best.sum())
    torch.testing.assert_close(e.refined[0], best, rtol=0.02, atol=0.02)
    assert e.refinement.refined_error < e.refinement.combined_error


def test_features_at_their_baseline_are_apart():
    x = torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 3.0, -1.0], dtype=torch.float64)
    e = CAFE(lambda v: v @ weight, background=rows(50, 3)).explain(x, refine=Refine(60, ridge=1e-6))
    assert e.refinement.absent[0].tolist() == pytest.approx([0, 3, 0], abs=1e-3)
    assert e.refinement.correction[0].tolist() == pytest.approx([0, 0, 0], abs=1e-3)


def test_draws_are_those_of_the_seed_in_any_company():
    model, x, data = case()
    cafe = CAFE(model, background=data)
    before = torch.get_rng_state()
    e = cafe.explain(x, refine=8, target=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(e.refinement.correction, cafe.explain(x, refine=Refine(8, seed=0), target=1).correction)
    assert not torch.equal(e.refinement.correction, cafe.explain(x, refine=Refine(8, seed=1), target=1).correction)

    def noise(given, generator):
        return given + torch.randn(given.shape, generator=generator, dtype=given.dtype)

    for how in (8, Refine(8, noise)):
        whole = cafe.explain(x, refine=how, target=1).correction
        torch.testing.assert_close(whole, cafe.explain(x, refine=how, target=1, batch_size=4).correction)
        torch.testing.assert_close(whole[2:3], cafe.explain(x[2:3], refine=how, target=1).correction)


def test_all_classes_and_several_c_are_those_alone():
    model, x, data = case()
    cafe = CAFE(model, background=data)
    every = cafe.explain(x, target="all", c=[0.0, 1.0], refine=6)
    for c in (0.0, 1.0):
        for target in range(3):
            alone = cafe.explain(x, target=target, c=c, refine=6)
            torch.testing.assert_close(every[c, target].refined, alone.refined)
            torch.testing.assert_close(every[c, target].refined_error, alone.refinement.refined_error)


@pytest.mark.parametrize("end", [nn.Softmax(1), nn.Sigmoid()])
def test_logits_are_refined_where_the_end_is_left_out(end):
    model, x, data = case()
    with_end = nn.Sequential(*model, end)
    expected = CAFE(model, background=data).explain(x, target=1, refine=6).correction
    torch.testing.assert_close(CAFE(with_end, background=data).explain(x, target=1, refine=6).correction, expected)


def test_groups_are_single_features():
    model, x, data = case()
    cafe = CAFE(model, background=data)
    e = cafe.explain(x, feature_groups={"both": [0, 1]}, refine=12)
    assert e.refinement.correction.shape == e.combined.shape == (6, 4)
    assert (e.refinement.correction.sum(1).abs() < 1e-12).all()
    torch.testing.assert_close(
        cafe.explain(x, feature_groups=torch.arange(5), refine=12).correction, cafe.explain(x, refine=12).correction
    )


def test_superpixels_and_hidden_units():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)).eval()
    cafe = CAFE(model, background=rows(20, 1, 6, 6, seed=4))
    x, mask = rows(3, 1, 6, 6), torch.arange(36).view(1, 6, 6) // 12
    e = cafe.explain(x, feature_groups=mask, refine=30, target=0)
    assert e.refined.shape == (3, 3)
    assert (e.refinement.correction.sum(1).abs() < 1e-12).all()
    assert cafe.explain(x, refine=6, target=0).refined.shape == x.shape
    unit = cafe.explain(x, refine=6, target=(1, 2, 2), target_layer="0")
    assert unit.correction.abs().max() < 1e-12  # a unit in front of the ReLU is linear


class Shop(nn.Module):
    def __init__(self):
        super().__init__()
        self.city = nn.Embedding(6, 3)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, numbers, city, scale=1.0):
        return self.net(torch.cat([numbers, self.city(city)], 1)) * scale


def test_codes_are_resampled_and_several_inputs_are_tuples():
    torch.manual_seed(0)
    model, numbers, city = Shop().double().eval(), rows(7, 2), torch.arange(7) % 6
    data = rows(20, 2, seed=5), torch.randint(0, 6, (20,))
    e = CAFE(model, background=data).explain((numbers, city), refine=10)
    assert [part.shape for part in e.refinement.correction] == [(7, 2), (7,)]
    assert (sum(part.reshape(7, -1).sum(1) for part in e.refinement.correction).abs() < 1e-12).all()
    assert e.refinement.correction[1].any()
    scale = torch.linspace(1, 2, 7, dtype=torch.float64)[:, None]  # further arguments belong to the rows
    scaled = CAFE(model, background=data).explain((numbers, city), additional_forward_args=scale, refine=10)
    torch.testing.assert_close(scaled.correction[0], e.refinement.correction[0] * scale)

    def swap(given, generator):
        return given[0] + 1, torch.randint(0, 6, given[1].shape, generator=generator)

    assert CAFE(model).explain((numbers, city), refine=Refine(6, swap)).refined[1].shape == (7,)
    with pytest.raises(ValueError, match="several inputs"):
        CAFE(model).explain((numbers, city), refine=Refine(6, DataNoise(data[0])))


def test_the_noise_of_the_data():
    data = torch.stack([torch.arange(10.0), torch.arange(10) % 2.0, 1 - torch.arange(10) % 2.0], 1)
    x = torch.tensor([[5.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    found = DataNoise(data, torch.tensor([0, 1, 1])).versions(x, 40, torch.Generator().manual_seed(0))
    first, last = (
        DataNoise(data, torch.tensor([0, 1, 1]), std=std).versions(x, 40, torch.Generator().manual_seed(0)) - x[:, None]
        for std in (1.0, 3.0)
    )
    torch.testing.assert_close(found[:, 0, 0] - x[:, 0], first[:, 0, 0])  # from the smallest size
    torch.testing.assert_close(found[:, -1, 0] - x[:, 0], last[:, -1, 0])  # to the largest
    assert found.shape == (2, 40, 3)
    torch.testing.assert_close(found[:, ::2, 0] - x[:, :1], x[:, :1] - found[:, 1::2, 0])  # mirrored
    assert set(found[..., 1].flatten().tolist()) == {0.0, 1.0}
    assert (found[..., 1] + found[..., 2] == 1).all()  # columns of one group move together
    assert (found[..., 1] != x[:, None, 1]).any()
    with pytest.raises(ValueError, match="at least two rows"):
        DataNoise(data[:1])
    with pytest.raises(ValueError, match="ndarray"):
        DataNoise(data.numpy())
    for std in (-1.0, (1.0, 2.0, 3.0), (), "2", (1.0, float("inf"))):
        with pytest.raises(ValueError, match="smallest and the largest"):
            DataNoise(data, std=std)


def test_mistakes_are_named():
    model, x, data = case()
    cafe = CAFE(model, background=data)
    with pytest.raises(ValueError, match=r"background=x_train"):
        CAFE(model).explain(x, refine=20)
    for wrong in (0, True, 2.5, float("nan"), "20", 7):
        with pytest.raises(ValueError, match=r"refine\(\.\.\., "):
            cafe.explain(x, refine=wrong)
    for ridge in (0, -1.0, float("nan"), True):
        with pytest.raises(ValueError, match="positive number"):
            Refine(4, ridge=ridge)
    with pytest.raises(ValueError, match="seed"):
        Refine(4, seed=-1)
    with pytest.raises(ValueError, match="function"):
        Refine(4, perturb=3)
    for broken in (lambda v, g: v[:1], lambda v, g: v * torch.nan, lambda v, g: 3):
        with pytest.raises(ValueError, match="copies of one row"):
            cafe.explain(x, refine=Refine(4, broken))
    with pytest.raises(ValueError, match="shape"):
        CAFE(model, background=rows(9, 4)).explain(x, refine=4)
    with pytest.raises(ValueError, match="perturbed at the inputs"):
        cafe.explain(x, refine=4, layer="0")
    with pytest.raises(ValueError, match="NaN or infinite"):
        CAFE(torch.log).explain(torch.full((1, 1), 2.0), baselines=1.0, refine=Refine(4, lambda v, g: v * 0))


def test_files_tables_and_slices_keep_it(tmp_path):
    pytest.importorskip("safetensors")
    model, x, data = case()
    e = CAFE(model, background=data).explain(x, refine=6)
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert torch.equal(again.refined, e.refined)
    assert again.meta.settings["refine"] == {"samples": 6, "ridge": 1.0, "seed": 0, "slopes": True}
    assert torch.equal(again[2].refinement.refined_error, e.refinement.refined_error[2:3])
    assert "refined" in e.ledger(0).splitlines()[1]
    assert "refined" not in CAFE(model).explain(x).ledger(0)
    assert "refined" in e.to_frame()
    wrong = e.replace(correction=e.refinement.correction + 1)
    wrong.save(tmp_path / "wrong.safetensors")
    with pytest.raises(ValueError, match="correction changes the sum"):
        Explanation.load(tmp_path / "wrong.safetensors")


def test_a_single_feature_and_several_explanations_are_saved(tmp_path):
    pytest.importorskip("safetensors")
    cafe = CAFE(models.mlp(1, 4, 2), background=rows(9, 1))
    every = cafe.explain(rows(3, 1, seed=1), target="all", refine=4)
    every[0].save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors").correction.abs().max() < 1e-12  # nothing can move
    every.save(tmp_path / "every.safetensors")
    assert torch.equal(Explanations.load(tmp_path / "every.safetensors")[1].refined, every[1].refined)


def test_the_method_is_refined_and_absent():
    model, x, data = case()
    way = {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open"}
    e = CAFE(model, background=data, variant="published", **way).explain(x, target=1, refine=10)
    torch.testing.assert_close(
        METHODS["cafe_refined"](model, x, target=1, refine=10, background=data), e.refined + e.refinement.absent
    )


def test_masks_put_every_feature_away_equally_often():
    x = rows(1, 3, 4)[0]
    groups = torch.tensor([-1, 0, 1, 1]).expand(3, 4)
    found = Masks(7.0, groups, share=0.25)(x.expand(20, 3, 4).clone(), torch.Generator().manual_seed(0))
    assert torch.equal(found[..., 0], x[:, 0].expand(20, 3))  # never
    for columns in ([1], [2, 3]):
        away = (found[..., columns] == 7).flatten(1)
        assert away.all(1).sum() == 5
        assert torch.equal(away.all(1), away.any(1))  # together
        assert torch.equal(found[~away.all(1)][..., columns], x[:, columns].expand(15, 3, -1))
    single = Masks(x + 1)(x.expand(10, 3, 4).clone(), torch.Generator().manual_seed(0))
    assert ((single == x + 1).sum(0) == 1).all()
    for share in (0, 1, -0.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            Masks(share=share)
    with pytest.raises(ValueError, match="shaped like a row"):
        CAFE(case()[0]).explain(rows(2, 5), refine=Refine(4, Masks(0.0, torch.arange(4))))


def test_masks_correct_what_masking_does():
    """A product of words: no share of it is right for masking one of them; refined scores come nearer."""

    def model(x):
        return (x[:, 0] * x[:, 1] + x[:, 2]).unsqueeze(1)

    x = torch.tensor([[2.0, 3.0, 1.0]], dtype=torch.float64)
    e = CAFE(model).explain(x, refine=Refine(200, Masks(0.0), ridge=1e-3), target=0)
    true = torch.tensor([6.0, 6.0, 1.0], dtype=torch.float64)
    assert torch.corrcoef(torch.stack([e.refined[0], true]))[0, 1] > 0.99
    assert e.refinement.refined_error < e.refinement.combined_error
