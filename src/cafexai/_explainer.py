"""What an explainer is made of: a model, c, a variant and what is known of the model. It never changes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from ._core.run import C, Sensitivity
from ._core.variant import ALLOWED, Variant, VariantOptions
from ._engine.model import Subject
from ._engine.model_options import ModelInfo
from ._engine.prepare_job import Explainer
from ._old_forms import resolve_variant
from .schema import Schema

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Unpack

_INFO = frozenset(field.name for field in dataclasses.fields(ModelInfo))
_PARAMETERS = ("c", "variant", *sorted(_INFO), *ALLOWED)


class ImmutableExplainer:
    """The parameters of ``CAFE``, which documents them, and copies with some of them changed."""

    c: C
    variant: Variant
    _subject: Subject
    _info: ModelInfo

    def __init__(
        self,
        model: Any,
        c: C = 0.5,
        variant: str | Variant | None = None,
        *,
        background: Any = None,
        feature_names: Sequence[str] | None = None,
        class_names: Sequence[Any] | None = None,
        schema: Schema | None = None,
        probability: str | None = None,
        tokenizer: Any = None,
        words: bool = True,
        preprocess: Callable[[Any], Any] | None = None,
        per_row: Sequence[int | str] | None = None,
        allow_nan: bool = False,
        **options: Unpack[VariantOptions],
    ) -> None:
        if unknown := sorted(set(options) - set(ALLOWED)):
            raise TypeError(f"CAFE(..., {unknown[0]}=...): unknown parameter. Parameters: model, {', '.join(_PARAMETERS)}.")
        subject = Subject(model)
        Sensitivity(c, subject.names.values())  # checks c
        info = ModelInfo().replace(
            subject,
            background=background,
            feature_names=feature_names,
            class_names=class_names,
            schema=schema,
            probability=probability,
            tokenizer=tokenizer,
            words=words,
            preprocess=preprocess,
            per_row=per_row,
            allow_nan=allow_nan,
        )
        chosen = resolve_variant(variant, cast(dict[str, Any], options))
        self.__dict__.update(c=c, variant=chosen, _subject=subject, _info=info)

    def replace(self, **changes: Any) -> Self:
        """Another explainer of the same model, with some parameters changed.

        Args:
            **changes: Parameters of ``CAFE`` (all but the model). Options of the variant change only what they name.

        Returns:
            The changed explainer.

        Raises:
            ValueError: A parameter is unknown, or its value is not allowed.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> CAFE(torch.nn.Linear(2, 1)).replace(c=1).c
            1
        """
        if unknown := sorted(set(changes) - set(_PARAMETERS)):
            raise ValueError(f"cafe.replace({unknown[0]}=...): unknown parameter. Parameters: {', '.join(_PARAMETERS)}.")
        made = copy.copy(self)
        info = {name: changes.pop(name) for name in list(changes) if name in _INFO}
        c, variant = changes.pop("c", self.c), changes.pop("variant", None)
        Sensitivity(c, self._subject.names.values())
        base = self.variant if variant is None else variant
        chosen = (base if isinstance(base, Variant) else Variant.preset(base)).replace(**changes)
        known = self._info.replace(self._subject, **info) if info else self._info
        made.__dict__.update(c=c, variant=chosen, _info=known)
        return made

    @contextlib.contextmanager
    def session(self) -> Iterator[Self]:
        """A block in which the model does not change, so that results of its weights alone are kept between calls.

        Kept are absolute weights and what layers give at the baseline, as long as the baseline is the same. Scores are the
        same bits as outside, and every check is made. Nothing is kept after the block. It pays for many calls with few rows.
        It takes memory: a copy of the weights, and the activations of one baseline. Copies by ``replace`` and other
        threads that use this explainer share the session. A model that is a function has no weights of its own to keep.

        Returns:
            A context manager that gives this explainer.

        Raises:
            ModelChanged: A parameter or buffer was changed inside the block. Versions are compared at each call, contents
                (by a checksum) at the end of the block.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> with CAFE(torch.nn.Linear(2, 1)).session() as cafe:
            ...     shapes = [cafe.explain(torch.ones(1, 2)).combined.shape for _ in range(2)]
            >>> shapes
            [torch.Size([1, 2]), torch.Size([1, 2])]
        """
        with self._subject.keep_results():
            yield self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"CAFE.{name}: explainers are immutable. Use cafe.replace({name}=...), which gives another one.")

    def __repr__(self) -> str:
        model = type(self.model).__name__ if not hasattr(self.model, "__name__") else self.model.__name__
        return f"CAFE({model}, c={self.c}, variant={self.variant})"

    @property
    def model(self) -> Any:
        """The model, unwrapped."""
        return self._subject.model

    @property
    def background(self) -> Any:
        """Data for the baselines "mean", "median" and "mode"."""
        return self._info.background

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The columns the model was trained on."""
        return self._info.feature_names

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self._info.class_names

    @property
    def schema(self) -> Schema | None:
        """The columns of the table."""
        return self._info.schema

    @property
    def probability(self) -> str | None:
        """What makes probabilities of the outputs: "softmax", "sigmoid" or None."""
        return self._info.probability

    @property
    def tokenizer(self) -> Any:
        """Turns texts into token ids."""
        return self._info.tokenizer

    @property
    def allow_nan(self) -> bool:
        """Missing values (NaN) are accepted."""
        return self._info.allow_nan

    @property
    def preprocess(self) -> Callable[[Any], Any] | None:
        """A function from one picture to the tensor that the model takes."""
        return self._info.preprocess

    @property
    def _explainer(self) -> Explainer:
        return Explainer(self._subject, self.c, self.variant, self._info)

    # Captum's helpers ask these of an explainer.
    def has_convergence_delta(self) -> bool:
        """``attribute`` can return its convergence delta.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> CAFE(torch.nn.Linear(2, 1)).has_convergence_delta()
            True
        """
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Scores are contributions, not sensitivities."""
        return True
