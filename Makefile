# make demo: train a small net, explain one prediction.   make test: the tests.   Both set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all mutants lint benchmark architectures conflicts claims layers picture clean

demo: .venv/demo
	$(BIN)/python examples/demo.py

test: .venv/dev
	$(BIN)/python -m pytest -n auto

test-all: .venv/dev
	$(BIN)/python -m pytest -n auto -m ""

mutants: .venv/mutants
	$(BIN)/python tests/mutants.py $(MUTANTS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: .venv/dev
	$(BIN)/python benchmarks/run.py $(BENCHMARK)
	$(BIN)/python benchmarks/group_training.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/netting.py

architectures: .venv/dev
	$(BIN)/python tests/test_architectures.py

conflicts: .venv/dev
	$(BIN)/python examples/conflicts.py

claims: .venv/dev
	$(BIN)/python examples/claims.py

layers: .venv/dev
	$(BIN)/python examples/layers.py

picture: .venv/dev
	$(BIN)/python examples/picture.py docs/explanation.png

# A mark per set of requirements: pip runs again only when they change.
.venv/demo .venv/dev .venv/mutants: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(@F)]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
