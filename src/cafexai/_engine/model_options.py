"""What an explainer knows of its model: names, columns, classes, and how raw inputs become tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._inputs import different
from ..schema import Schema
from .model import Subject
from .output_probabilities import PROBABILITY


@dataclass(frozen=True)
class ModelInfo:
    """What belongs to the model and is given to ``CAFE`` once; see there."""

    background: Any = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] = ()
    schema: Schema | None = None
    probability: str | None = None
    tokenizer: Any = None
    words: bool = True
    preprocess: Callable[[Any], Any] | None = None
    per_row: Sequence[int | str] | None = None
    allow_nan: bool = False

    def replace(self, subject: Subject, **changes: Any) -> ModelInfo:
        """This with some fields changed, checked; what is not named comes from the schema or from the model."""
        given = {**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}, **changes}
        own = subject.model if subject.takes_raw else None
        schema, names = given["schema"], given["feature_names"]
        if names is not None:
            given["feature_names"] = different(names, "CAFE(..., feature_names=...)")
        if schema is not None and not isinstance(schema, Schema):
            raise ValueError(
                f"CAFE(..., schema={type(schema).__name__}): give a cafexai.Schema, such as Schema.from_frame(frame)."
            )
        if schema is not None and (names is not None or own is not None):
            other = "feature_names=..." if own is None else "a model with its own preprocessing"
            raise ValueError(f"CAFE(..., schema=...): {other} names the columns too. Give one of the two.")
        classes: Sequence[Any] | None = given["class_names"]
        classes = classes if classes is not None else schema.classes if schema is not None else None
        classes = getattr(own, "class_names", ()) if classes is None else classes
        likely = given["probability"] or (None if schema is None else schema.probability) or getattr(own, "probability", None)
        if likely not in (None, *PROBABILITY):
            raise ValueError(
                f"CAFE(..., probability={likely!r}): unknown value. Allowed values: {', '.join(map(repr, PROBABILITY))}."
            )
        given.update(class_names=different(classes, "CAFE(..., class_names=...)"), probability=likely)
        return ModelInfo(**given)
