"""What a type checker and an editor know of the public interface."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

CODE = """
import torch
from cafexai import CAFE, Explanation, compare, rule, supported

cafe = CAFE(torch.nn.Linear(2, 2), c={"*": 0.5})
x = torch.ones(3, 2)
reveal_type(cafe.explain(x))
reveal_type(cafe.explain(x, None, 1, batch_size=2))
reveal_type(cafe.explain(x, target=[0, 1, 0], c=0.3))
reveal_type(cafe.explain(x, target="all"))
reveal_type(cafe.explain(x, None, "all"))
reveal_type(cafe.explain(x, target="all", additional_forward_args=(x,)))
reveal_type(cafe.explain(x, c=[0.0, 1.0], layer="0"))
reveal_type(cafe.explain(x).conflict)
cafe.explain(x, lager="0")
"""
SHORT = ["Explanation", "Explanation", "Explanation", "Explanations", "Explanations", "Explanations", "Explanations", "Tensor"]


@pytest.mark.slow
def test_explain_is_known_by_what_it_is_asked_for(tmp_path):
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "use.py"
    file.write_text(CODE)
    settings = Path(__file__).parents[2] / "pyproject.toml"
    said, errors, _ = api.run(["--config-file", str(settings), "--python-executable", sys.executable, str(file)])
    kinds = [line.split('"')[1].rsplit(".", 1)[-1] for line in said.splitlines() if "Revealed type" in line]
    assert kinds == SHORT, said + errors
    assert "lager" in said
