"""Networks of the paper, their training, its checkpoints, and groups trained as one."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from cafexai import CAFE, datasets, models
from cafexai.models import Diverged, FTTransformer, Recipe, train, train_group, training
from cafexai.paper.models.checkpoint import Progress, Store, config_key


def task(rows=200, inputs=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def small(seed, outputs=2, activation=nn.ReLU):
    return models.seeded(seed, lambda: models.mlp(4, 8, 8, outputs, activation=activation))


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_training_is_what_plain_torch_gives():
    x, y = task()
    ours = train(small(1), x, y, Recipe(5, batch=64, lr=1e-2))
    model = small(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        for inputs, labels in zip(x.split(64), y.split(64), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    for a, b in zip(ours.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)
    assert len(ours.losses) == 5
    assert ours.losses[-1] < ours.losses[0]
    assert not ours.model.training


def test_seeds_decide_and_the_global_generator_is_left_alone():
    x, y = task()
    state = torch.get_rng_state()
    threads = torch.get_num_threads()

    def run(seed):
        net = models.seeded(3, lambda: FTTransformer((1,) * 4, 2, width=8, heads=2))
        return train(net, x, y, Recipe(2, 64, seed=seed, shuffle=True)).model

    assert same(run(1), run(1))
    assert not same(run(1), run(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_labels_of_regression_may_be_flat():
    x, y = task()
    flat, column = (train(small(0, 1), x, labels, Recipe(2, loss="mse")) for labels in (y.double(), y.double()[:, None]))
    assert flat.losses == column.losses


def test_best_on_validation_is_kept():
    x, y = task()
    result = train(small(0), x, y, Recipe(40, 16, 3e-2, best=True), validation=task(50, seed=1))
    assert result.validation[result.epoch - 1] == min(result.validation)
    assert models.evaluate(result.model, *task(50, seed=1)) == pytest.approx(min(result.validation))


@pytest.mark.parametrize("loss", ["cross_entropy", "bce", "mse"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_group_is_its_networks_trained_alone(loss, activation, shuffle):
    sets = [task(150, seed=seed) for seed in range(3)]
    x, y = (torch.stack(part) for part in zip(*sets, strict=True))
    outputs = 2 if loss == "cross_entropy" else 1
    y = y if loss != "mse" else y.double()[..., None]
    checks = (x[:, :40] * 1.1, y[:, :40])
    recipe = Recipe(6, 32, 1e-2, loss, shuffle=shuffle, best=True)
    group = train_group([small(i, outputs, activation) for i in range(3)], x, y, recipe, validation=checks)
    for i, one in enumerate(group):
        alone = train(small(i, outputs, activation), x[i], y[i], recipe, validation=(checks[0][i], checks[1][i]))
        assert one.losses == pytest.approx(alone.losses, rel=1e-9)
        assert one.validation == pytest.approx(alone.validation, rel=1e-9)
        assert one.epoch == alone.epoch
        for a, b in zip(one.model.parameters(), alone.model.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-10)


def test_a_group_on_one_data_set():
    x, y = task()
    group = train_group([small(0), small(1)], x, y, Recipe(3, 64))
    assert group[1].losses == pytest.approx(train(small(1), x, y, Recipe(3, 64)).losses, rel=1e-9)


def test_a_group_on_synthetic_conflicts_is_much_faster():
    """The whole measurement is benchmarks/group_training.py; here the bound is loose, for busy machines."""
    data = datasets.synthetic_conflicts(rows=4000)
    recipe = Recipe(4, 64, loss="mse")
    setup = models.conflict_setup(2)

    def build(i):
        return setup.build(data.layout, 101 + i).float()

    train_group([build(0)], data.x_train, data.y_train, Recipe(1, 64, loss="mse"))
    ratios = []
    for _ in range(3):
        start = time.perf_counter()
        group = train_group([build(i) for i in range(25)], data.x_train, data.y_train, recipe)
        together = time.perf_counter() - start
        start = time.perf_counter()
        alone = train(build(7), data.x_train, data.y_train, recipe)
        ratios.append((time.perf_counter() - start) * 25 / together)
    assert group[7].losses[-1] == pytest.approx(alone.losses[-1], rel=1e-3)
    assert max(ratios) > 5


def test_what_a_group_cannot_be():
    x, y = task()
    with pytest.raises(ValueError, match="at least one network"):
        train_group([], x, y, Recipe(1))
    with pytest.raises(ValueError, match="one by one with train"):
        train_group([nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 2))], x, y, Recipe(1))
    with pytest.raises(ValueError, match="all must have one shape"):
        train_group([small(0), models.mlp(4, 9, 8, 2)], x, y, Recipe(1))
    with pytest.raises(ValueError, match=r"expected \(2, rows, 4\)"):
        train_group([small(0), small(1)], x[:, :3], y, Recipe(1))
    with pytest.raises(ValueError, match="validation"):
        train_group([small(0)], x, y, Recipe(1, best=True))


def test_errors_say_what_to_do():
    x, y = task()
    with pytest.raises(ValueError, match=r"loss='hinge'.*cross_entropy, bce, mse"):
        Recipe(1, loss="hinge")
    with pytest.raises(ValueError, match="200 rows of x and 10 of y"):
        train(small(0), x, y[:10], Recipe(1))
    with pytest.raises(ValueError, match="convert one"):
        train(small(0), x.float(), y, Recipe(1))
    with pytest.raises(ValueError, match="validation"):
        train(small(0), x, y, Recipe(1, best=True))
    with pytest.raises(ValueError, match="no such network"):
        models.setup("adult", "mlp")
    with pytest.raises(ValueError, match="dimensions 2, 3, 4, 5"):
        models.conflict_setup(6)


def test_divergence_stops_at_once():
    x, y = task()
    with pytest.raises(Diverged, match=r"the loss is nan in epoch 1.*Lower lr"):
        train(small(0), torch.where(x > 2, torch.nan, x), y, Recipe(50, 16))
    with pytest.raises(Diverged, match="it was"):
        train(small(0, 1), x, y.double()[:, None], Recipe(200, 16, 5.0, "mse"))
    stacked = torch.stack([x, torch.where(x > 2, torch.nan, x)])
    with pytest.raises(Diverged, match="of network 1"):
        train_group([small(0), small(1)], stacked, torch.stack([y, y]), Recipe(5, 16))


def test_a_second_call_loads(tmp_path):
    x, y = task()
    first = train(small(0), x, y, Recipe(3, 64), folder=tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{first.key}.safetensors"
    stamp = file.stat().st_mtime_ns
    again = train(small(0), x, y, Recipe(3, 64), folder=tmp_path)
    assert same(first.model, again.model)
    assert again.losses == first.losses
    assert file.stat().st_mtime_ns == stamp
    others = (
        train(small(1), x, y, Recipe(3, 64), folder=tmp_path),
        train(small(0), x, y, Recipe(4, 64), folder=tmp_path),
        train(small(0), x + 1, y, Recipe(3, 64), folder=tmp_path),
        train_group([small(0)], x, y, Recipe(3, 64), folder=tmp_path)[0],
    )
    assert len({first.key, *(other.key for other in others)}) == 5
    group = train_group([small(0)], x, y, Recipe(3, 64), folder=tmp_path)[0]
    assert same(group.model, others[-1].model)


def test_two_at_the_same_training_do_it_once(tmp_path):
    x, y = task()
    once = train(small(1), x, y, Recipe(2), folder=tmp_path / "one")
    file = Store(tmp_path / "one", once.key, {}).path(finished=True)
    (tmp_path / "two").mkdir()
    with ThreadPoolExecutor() as pool:
        with Store(tmp_path / "two", once.key, {}).alone():
            other = pool.submit(train, small(1), x, y, Recipe(2), folder=tmp_path / "two")
            time.sleep(1)  # far longer than this training takes
            assert not other.done()
            shutil.copy(file, tmp_path / "two")
            written = (tmp_path / "two" / file.name).stat().st_mtime_ns
        assert same(other.result(timeout=60).model, once.model)
    assert [path.name for path in (tmp_path / "two").iterdir()] == [file.name]
    assert (tmp_path / "two" / file.name).stat().st_mtime_ns == written


def test_a_full_disk_is_told(tmp_path):
    """Files of at most 1000 bytes stand for a disk without room."""
    code = f"""
        import resource, torch
        from cafexai import models
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            x, y = torch.zeros(8, 4), torch.zeros(8).long()
            models.train(models.mlp(4, 64, 2), x, y, models.Recipe(1), folder={str(tmp_path)!r})
        except OSError as problem:
            print(problem)
    """
    environment = os.environ | {"PYTHONPATH": str(Path(models.__file__).parents[2])}
    line = [sys.executable, "-B", "-c", textwrap.dedent(code)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"folder={str(tmp_path)!r}" in done.stdout
    assert "could not be written" in done.stdout
    assert not list(tmp_path.glob("*.tmp"))


def test_names_see_what_parameters_do_not_show():
    nets = [FTTransformer((1, 3), 2, width=8, heads=heads, head=head) for heads, head in ((2, "cls"), (4, "cls"), (2, "last"))]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    assert len({config_key({}, [net], []) for net in nets}) == 3


def test_checkpoints_carry_their_config(tmp_path):
    from safetensors import safe_open

    store = Store(tmp_path, "abc", {"lr": 1})
    store.save(Progress(2, [1.0, 0.5], model={"w": torch.ones(2)}, optimizer={"0.step": torch.tensor(3.0)}), finished=False)
    assert store.load(finished=True) is None
    loaded = store.load(finished=False)
    assert (loaded.epoch, loaded.losses) == (2, [1.0, 0.5])
    assert torch.equal(loaded.optimizer["0.step"], torch.tensor(3.0))
    with safe_open(store.path(False), "pt") as file:
        assert file.metadata()["config"] == '{"lr": 1}'
    store.save(loaded, finished=True)
    assert [path.name for path in tmp_path.iterdir()] == ["abc.safetensors"]


SCRIPT = """
import sys, torch
from cafexai import models
from cafexai.models import Recipe, training
training.PAUSE = 0.0  # a checkpoint after every epoch
generator = torch.Generator().manual_seed(0)
x = torch.randn(600, 4, generator=generator)
y = (x[:, 0] * x[:, 1] > 0).long()
folder, kind = sys.argv[1:]
valid = (x[:100], y[:100])
if kind == "train":  # dropout, shuffling and the best epoch: everything that has a state
    net = models.seeded(0, lambda: models.FTTransformer((1,) * 4, 2, width=16, heads=2))
    done = [models.train(net, x, y, Recipe(25, 64, shuffle=True, best=True), validation=valid, folder=folder, progress=False)]
else:
    nets = [models.seeded(i, lambda: models.mlp(4, 32, 32, 2)) for i in range(3)]
    recipe = Recipe(120, 16, best=True)
    done = models.train_group(nets, x, y, recipe, validation=valid, folder=folder, progress=False)
torch.save([(r.model.state_dict(), r.losses, r.validation, r.epoch) for r in done], folder + "/result.pt")
"""


@pytest.mark.parametrize("kind", ["train", "group"])
def test_killed_and_started_again_it_ends_the_same(kind, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    arguments = [str(script), str(tmp_path / "broken"), kind]
    environment = os.environ | {"PYTHONPATH": str(Path(models.__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *arguments], env=environment)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "broken").glob("*.part.safetensors")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken" / "result.pt").exists()

    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(training, "PAUSE", training.PAUSE)  # the script changes it
    results = []
    for name in ("whole", "broken"):
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / name), kind])
        runpy.run_path(str(script))
        results.append(torch.load(tmp_path / name / "result.pt"))
    for (a, *history), (b, *other) in zip(*results, strict=True):
        assert history == other
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert not list((tmp_path / "broken").glob("*.part.*"))


def test_procedural_network_solves_its_data_and_cafe_sees_the_rule():
    data = datasets.synthetic_conflicts(dimension=4, likelihood=0.2, rows=500).to(torch.float64)
    model = models.procedural(data.weights)
    assert [layer.out_features for layer in model if isinstance(layer, nn.Linear)] == [12, 8, 1]
    assert torch.allclose(model(data.x_test), data.y_test, atol=1e-9)
    scores = CAFE.published(model, c=1.0).explain(data.x_test, target=0).combined
    assert (scores - data.truth_test).square().mean(0).sqrt().mean() < 1e-6  # the data are made in float32


@pytest.mark.parametrize("name", models.CONCAT_WIDTHS)
def test_networks_for_stacked_digits(name):
    net = models.concat_cnn(name)
    latent = net[0](torch.randn(2, 1, 56, 28))
    assert latent.shape == (2, 28 * 14 * models.CONCAT_WIDTHS[name][-1])
    assert net(torch.randn(2, 1, 56, 28)).shape == (2, 5)
    with pytest.raises(ValueError, match="shallow, deep, narrow, wide"):
        models.concat_cnn("long")


@pytest.mark.parametrize(("channels", "size", "outputs"), [(1, 28, 10), (3, 32, 10), (3, 64, 6)])
def test_small_convolutional_network(channels, size, outputs):
    net = models.small_cnn(channels, size, outputs, widths=(4, 8, 8), hidden=8).eval()
    x = torch.randn(2, channels, size, size)
    e = CAFE(net).explain(x)
    assert e.output.shape == (2,)
    assert e.completeness_error.abs().max() < 1e-6


def test_setups_are_those_of_the_paper():
    data = datasets.synthetic_shift(rows=20)
    titanic = models.setup("titanic").build((1, 1, 1, 1, 1, 2), 42)
    assert [layer.out_features for layer in titanic if isinstance(layer, nn.Linear)] == [256, 256, 1]
    covertype = models.setup("covertype")
    assert (covertype.recipe.lr, covertype.recipe.batch, covertype.activation) == (1e-4, 256, nn.GELU)
    transformer = models.setup("german", "ft").build((1, 1, 4), 42, head="last", lookup="argmax")
    assert (len(transformer.blocks), transformer.head_token, transformer.lookup) == (2, "last", "argmax")
    for heads, width in models.SHIFT_TRANSFORMERS:
        net = models.shift_setup(width, heads).build(data.layout, 42)
        assert net.to(torch.float32)(data.shifts["missing"][0]).shape == (20, 5)


def test_a_missing_category_is_no_category():
    net = FTTransformer((1, 3), 2, width=8, heads=2).eval()
    x = torch.tensor([[0.5, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0]])
    products = net(x)
    net.lookup = "argmax"
    assert torch.allclose(net(x), products)
    assert CAFE(net).explain(x, target=0).completeness_error.abs().max() < 1e-9


def test_openxai_networks_from_their_files(tmp_path):
    from safetensors.torch import save_file

    state = {"input1.weight": torch.randn(100, 7), "input1.bias": torch.randn(100)}
    state |= {"input2.weight": torch.randn(2, 100), "input2.bias": torch.randn(2)}
    torch.save(state, tmp_path / "ann.pt")
    save_file(state, tmp_path / "ann.safetensors")
    x = torch.randn(3, 7)
    expected = models.openxai_mlp(state)(x)
    for file in tmp_path.iterdir():
        assert torch.equal(models.openxai_mlp(file)(x), expected)
    with pytest.raises(ValueError, match=r"expected input1\.weight"):
        models.openxai_mlp({"network.0.weight": torch.zeros(1)})
