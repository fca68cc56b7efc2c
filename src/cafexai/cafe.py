"""CAFE: conflict-aware feature-wise explanations of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from ._core.run import C
from ._engine.explain_job import attribute_job, explain_job
from ._engine.hidden_conflicts import find_hidden
from ._engine.model import with_gradients
from ._engine.prepare_job import prepare_job
from ._engine.request import Question, Request, takes_request, takes_request_and
from ._explainer import ImmutableExplainer
from ._inputs.background import draw_rows
from ._inputs.baselines import typical_row
from ._old_forms import old_form
from .blocks import explain_in_blocks
from .changed_rows.cafe_mixin import ChangeMethods
from .explanation import ConflictScale, Explanation, Explanations, HiddenConflicts
from .explanation.conflict_scale import describe_settings
from .generation.cafe_mixin import GenerationMethods
from .refinement.refine import Refine, refine_explanation


class CAFE(ImmutableExplainer, ChangeMethods, GenerationMethods):
    """Explains a PyTorch module, or any function of tensors. The model is never changed.

    Explainers are immutable: ``cafe.replace(c=1)`` gives another one. ``repr(cafe)`` says which variant is used.

    Args:
        model: A module, or a function of tensors.
        c: The conflict sensitivity, a number in [0, 1], or one per pattern of module names
            (``{"encoder.*": 0.0, "head": 1.0}``; 0.5 for all other modules).
        variant: How influence is propagated: "default"; "published", the paper to the letter; "feature", which keeps
            features apart; or a ``cafexai.Variant``.
        background: Data for the baselines "mean", "median" and "mode", and for the noise of ``refine``.
        feature_names: The columns the model was trained on, in their order. Data frames are put in this order by name and
            must have these columns; other inputs must have as many.
        class_names: Names of the outputs.
        schema: A ``cafexai.Schema``: categories, one-hot blocks, several inputs, classes. It replaces ``feature_names``.
        probability: What makes probabilities of the outputs, if the model ends in logits: "softmax" or "sigmoid".
        tokenizer: Turns texts into token ids, and token ids into words.
        words: Sum the scores of the tokens of a word. False gives one score per token.
        preprocess: A function from one picture to the tensor that the model takes.
        per_row: Which further arguments of forward have one entry per row, by position or keyword. None tries tensors that
            are as long as there are rows on the first two chunks.
        allow_nan: Accept missing values (NaN), for a model that handles or ignores them. A value that is missing is missing
            in the baseline, too, so its score is 0.
        **options: ``netting``, ``flows``, ``biases``, ``norms``, ``norm_mean``, ``attention``: single options of the variant.
            An option changes only what it names (docs/default.md).

    Raises:
        ValueError: An argument is not allowed; the message says what is.

    Example:
        >>> cafe = CAFE(torch.nn.Linear(2, 1))
        >>> cafe.explain(torch.ones(1, 2)).combined.shape
        torch.Size([1, 2])
    """

    @classmethod
    def published(cls, model: Any, c: C = 0.5, **options: Any) -> CAFE:
        """The paper to the letter, for models of any depth: the same as ``variant="published"``.

        Args:
            model: See ``CAFE``.
            c: The conflict sensitivity.
            **options: Further parameters of ``CAFE``, all but ``variant``.

        Returns:
            The explainer.

        Raises:
            TypeError: A variant is given: this one is "published".

        Example:
            >>> CAFE.published(torch.nn.Linear(2, 1)).variant.netting
            'path'
        """
        if "variant" in options:
            raise TypeError(f'CAFE.published(..., variant={options["variant"]!r}): its variant is "published". Use CAFE(...).')
        return cls(model, c, "published", **options)

    @takes_request(Request)
    @with_gradients
    def explain(self, inputs: Any, request: Request) -> Explanation:
        """Positive and negative scores of every feature for one output of each row.

        Args:
            inputs: Numbers in floating point; integer codes (categories, token ids), which are explained at their
                embedding; a data frame; a tuple for several inputs; texts, or what a tokenizer makes of them; pictures.
            (the options of a request)

        Returns:
            The explanation: ``baseline_output + bias + sum of combined = output`` in every row.

        Raises:
            ValueError: The inputs or options are not what the model takes.
            UnsupportedOperation: The model calls something that has no rule.

        Example:
            >>> e = CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2))
            >>> len(e)
            3
        """
        return cast(Explanation, self._explain(inputs, request, Question()))

    @takes_request(Request)
    @with_gradients
    def explain_classes(self, inputs: Any, request: Request) -> Explanations:
        """Explain every class from one forward pass.

        Args:
            inputs: See ``explain``.
            (the options of a request)

        Returns:
            One explanation per class: ``explanations[2]``, or by its name, ``explanations["cat"]``.

        Raises:
            ValueError: A target is given, or the inputs or options are not what the model takes.

        Example:
            >>> list(CAFE(torch.nn.Linear(2, 3)).explain_classes(torch.ones(1, 2)))
            [0, 1, 2]
        """
        if request.target is not None or request.against is not None:
            word = "against" if request.target is None else "target"
            raise ValueError(f"explain_classes(..., {word}=...): it explains all outputs. Drop {word}=, or use explain.")
        return cast(Explanations, self._explain(inputs, request, Question(every_class=True)))

    @takes_request_and(Request)
    @with_gradients
    def explain_layer(self, inputs: Any, layer: str, request: Request, *, from_inputs: bool = False) -> Explanation:
        """Scores of the units of a layer.

        Args:
            inputs: See ``explain``.
            layer: The name of a module.
            from_inputs: False: the output of the layer is the input to be explained; baselines are in its shape, and what
                passes around the layer counts as bias. True: scores flow from the inputs and are read at the layer.
            (the options of a request)

        Returns:
            The explanation, shaped like the output of the layer.

        Raises:
            ValueError: There is no such module, or it was not called.

        Example:
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
            >>> CAFE(net).explain_layer(torch.ones(1, 2), "1").positive.shape
            torch.Size([1, 4])
        """
        return cast(Explanation, self._explain(inputs, request, Question(layer=layer, start=not from_inputs)))

    @takes_request_and(Request)
    @with_gradients
    def explain_neuron(self, inputs: Any, layer: str, request: Request) -> Explanation:
        """Scores of the features for a neuron of a hidden layer; ``target`` says which.

        Args:
            inputs: See ``explain``.
            layer: The name of a module.
            (the options of a request)

        Returns:
            The explanation of that neuron.

        Raises:
            ValueError: There is no such module, it was not called, or it has several units and ``target`` names none.

        Example:
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
            >>> CAFE(net).explain_neuron(torch.ones(1, 2), "0", target=3).target_name()
            "unit 3 of layer '0'"
        """
        return cast(Explanation, self._explain(inputs, request, Question(target_layer=layer)))

    @takes_request_and(Request)
    @with_gradients
    def sweep(self, inputs: Any, c: Sequence[C], request: Request) -> Explanations:
        """The same explanation for several values of c, which share the plain pass.

        Args:
            inputs: See ``explain``.
            c: The values.
            (the options of a request)

        Returns:
            One explanation per value: ``explanations[0.5]``. A dictionary of values has its position as its key.

        Raises:
            ValueError: There are no values, or one is not allowed.

        Example:
            >>> list(CAFE(torch.nn.Linear(2, 1)).sweep(torch.ones(1, 2), c=[0, 1]))
            [0, 1]
        """
        if not isinstance(c, Sequence) or not c:
            raise ValueError(f"sweep(..., c={c!r}): give a list of at least one value, such as c=[0, 0.5, 1].")
        return cast(Explanations, self._explain(inputs, request, Question(several_c=tuple(c))))

    @takes_request_and(Request)
    @with_gradients
    def explain_blocks(self, inputs: Any, request: Request, *, blocks: Any = None) -> Explanation:
        """Scores close to Shapley values, and what the output would lose without each feature.

        The features are cut into two blocks. ``combined``, ``positive`` and ``negative`` are the Shapley value of the blocks,
        shared out inside them. ``if_missing`` compares each row with itself without one block. This takes four explanations.
        The scores depend on which features share a block, hence on the order of the features.

        Args:
            inputs: See ``explain``.
            blocks: The features of the first block: names or indices, or a mask with true or false for each feature. None takes
                every second feature (word, column, group, position of a sequence), of images the black cells of a checkerboard.
            (the options of a request)

        Returns:
            The explanation: ``combined`` sums to ``output - baseline_output``. ``if_missing`` sums, in each block, to what the
            model loses without that block (``e.checks.lost``). ``e.blocks`` is true in the first block.

        Raises:
            ValueError: Biases have scores of their own in this variant, codes have no baseline, or ``blocks`` fits no feature.

        Example:
            >>> e = CAFE(torch.nn.Linear(4, 1)).explain_blocks(torch.ones(3, 4))
            >>> e.if_missing.shape, e.blocks[0].tolist()
            (torch.Size([3, 4]), [True, False, True, False])
        """
        job = prepare_job(self._explainer, inputs, request, Question(), "explain_blocks")
        return explain_in_blocks(job, self._meta(Question()), blocks)

    def refine(self, explanation: Explanation, refine: int | Refine = 20) -> Explanation:
        """Correct the net scores by evaluating the model at perturbed versions of every row.

        Args:
            explanation: What ``explain`` gave in this process; explanations read from files cannot be refined.
            refine: The price, in evaluations per row, or ``Refine(20, perturb=...)`` for more options.

        Returns:
            The explanation with ``e.refinement`` (correction, errors) and ``e.refined``.

        Raises:
            ValueError: The explanation is of a layer or was read from a file, or numbers have no background to take the noise
                from.

        Example:
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(50, 2))
            >>> cafe.refine(cafe.explain(torch.ones(3, 2)), 20).refined.shape
            torch.Size([3, 2])
        """
        how = refine if isinstance(refine, Refine) else Refine(refine)
        return refine_explanation(self._subject, explanation, how, self.background)

    def baseline_row(self, baselines: str = "median") -> Any:
        """The typical row that a word of ``baselines`` stands for, in the units and the form of the background.

        Numbers and dates have their mean, median or mode. Categories, also integers that an encoder of a pipeline takes, have
        their most frequent value; missing is one of them.

        Args:
            baselines: "mean", "median" or "mode".

        Returns:
            One row: a data frame for tables with named columns, else a tensor. ``explain(x, baselines=row)`` takes it.

        Raises:
            ValueError: There is no background, or no such word.

        Example:
            >>> CAFE(torch.nn.Linear(2, 1), background=torch.tensor([[1.0, 2.0], [3.0, 4.0]])).baseline_row("mean")
            tensor([[2., 3.]])
        """
        return typical_row(baselines, self.background, self.model, self.schema, self.feature_names, "baseline_row")

    @with_gradients
    def hidden_conflicts(
        self, explanation: Explanation, rows: Any = None, *, features: int | None = None, baseline: int | None = None
    ) -> HiddenConflicts:
        """Pairs of features that cancel each other although removing either alone does not show it.

        The price is 1 + n + n (n - 1) / 2 evaluations per row for n compared features: 277 for 23. The logger ``cafexai``
        states it (level info) before they run.

        Args:
            explanation: What ``explain`` gave in this process; not one that was read from a file.
            rows: Which rows, as in ``explanation[rows]``. None: all.
            features: How many features are compared. None: all, or 8 if there are more than 24. If not all are compared, those
                that cancel most inside the model are.
            baseline: Which of several baselines the rows are held against. None: the one whose output is in the middle.

        Returns:
            The exact map of conflicts between pairs of features and its hidden part: ``found.fights(0)``, ``found.top(0)``,
            ``found.plot(0)``, ``print(found)``.

        Raises:
            ValueError: The explanation is of a layer or was read from a file.

        Example:
            >>> cafe = CAFE(lambda x: torch.relu(x[:, 0] - x[:, 1]))
            >>> found = cafe.hidden_conflicts(cafe.explain(torch.tensor([[1.0, 2.0]])))
            >>> found.top()[0][:3]
            ('x0', 'x1', 1.0)
        """
        part = explanation if rows is None else explanation[rows]
        return find_hidden(self._explainer, part, features, baseline)

    def conflict_scale(self, target: Any = None, *, rows: int = 200, seed: int = 0, **options: Any) -> ConflictScale:
        """How much conflict is usual: that of background rows, explained with the settings of this explainer.

        Args:
            target: See ``explain``: an output, or None for the predicted class of each row.
            rows: How many background rows are explained at most.
            seed: Of the draw.
            **options: Further options of ``explain``, as for the rows that are to be ranked.

        Returns:
            The scale: ``e.rank_conflict(scale)`` adds the rank of each row to an explanation.

        Raises:
            ValueError: There is no background.

        Example:
            >>> cafe = CAFE(torch.nn.Linear(2, 1), background=torch.randn(50, 2))
            >>> e = cafe.explain(torch.ones(3, 2))
            >>> e.rank_conflict(cafe.conflict_scale()).conflict_rank.shape
            torch.Size([3])
        """
        if self.background is None:
            raise ValueError("conflict_scale(): of which rows? Give them: CAFE(model, background=x_train).")
        e = self.explain(draw_rows(self.background, rows, seed), target=target, **options)
        about = e.target_name() if target is not None else ""
        return ConflictScale(tuple(e.conflict_share.tolist()), e.conflict_kind, about, describe_settings(e))

    def _explain(self, inputs: Any, request: Request, question: Question) -> Explanation | Explanations:
        job = prepare_job(self._explainer, inputs, request, question, "explain")
        return explain_job(job, self._meta(question))

    def _meta(self, question: Question) -> dict[str, Any]:
        """How an explanation was made."""
        from . import __version__

        return {
            "c": self.c,
            **dataclasses.asdict(self.variant),
            "variant": self.variant.name,
            "layer": question.layer,
            "start": question.start,
            "target_layer": question.target_layer,
            "probability": self.probability,
            "version": __version__,
            "torch": str(torch.__version__),
        }

    def _old_form(self, method: Callable[..., Any], inputs: Any, request: Request, old: Mapping[str, Any], *own: Any) -> Any:
        return old_form(self, method, inputs, request, dict(old), *own)

    @with_gradients
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """The net scores in the form of Captum: one backward pass instead of two.

        Args:
            inputs: See ``explain``.
            baselines: See ``explain``.
            target: See ``explain``.
            additional_forward_args: See ``explain``.
            return_convergence_delta: Also return the sum of all scores minus (output - baseline output), one number per row.

        Returns:
            The net scores, shaped like the inputs; a tuple for a tuple. With the delta, a pair.

        Raises:
            ValueError: The inputs or options are not what the model takes.

        Example:
            >>> CAFE(torch.nn.Linear(2, 1)).attribute(torch.ones(3, 2)).shape
            torch.Size([3, 2])
        """
        if isinstance(target, str) and target == "all":
            raise ValueError(f"attribute(..., target={target!r}): give one class, or use explain_classes.")
        request = Request(baselines, target, additional_forward_args)
        job = prepare_job(self._explainer, inputs, request, Question(), "attribute")
        combined, delta = attribute_job(job)
        result = combined if job.given.is_tuple else combined[0]
        return (result, delta) if return_convergence_delta else result
