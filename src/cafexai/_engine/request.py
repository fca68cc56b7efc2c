"""The request: what one call asks for. It is the only list of the options of ``explain``.

``CAFE.explain`` and its sisters take the fields of ``Request`` as their parameters (``takes_request``); batch, command line,
server and explorer pass a request on. A new option is one more field here.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..explanation.conflict import MEASURED, NET

P = ParamSpec("P")
R = TypeVar("R")
CONFLICTS = (MEASURED, NET)  # how it is computed
MARK = "(the options of a request)"  # where the docstring of a method gets the options


@dataclass(frozen=True)
class Request:
    """What is asked of each row.

    Args:
        baselines: What rows are compared with. None is zero (for codes a zero embedding, for texts the mask token of the
            tokenizer). Else a number, a tensor or data frame shaped like the inputs or like one row, a stack of these (the
            scores are averaged), a function of the inputs, "mean", "median" or "mode" of the background, or "zero". A tuple
            for several inputs. "background", or ``cafexai.Background(rows, k=50)``, explains against each of k background
            rows and averages the scores; it is what None means for frames of pipelines and schemas with a background.
        target: The output to explain: an index or the name of a class, one per row, or tuples for outputs of more
            dimensions. None is the only output, or the predicted class of each row. For causal language models also the text
            of a token (" Paris"), or -1: the predicted token after the last one.
        additional_forward_args: Further arguments of forward: a tuple, or a dictionary of keywords. With ``batch_size``,
            tensors among them with one entry per row are cut along with the rows.
        against: Explain the difference between the target and this output, given like a target; "others" is the mean of all
            other outputs. For causal language models also several tokens, whose mean is taken: a set (``{" a", " the"}``), or
            for a single row a list.
        output: Which part of the model's output is meant: a key, an index, a function, or a path such as
            ``"logits[:, -1]"``.
        feature_groups: One score per group: ``{"sex": [3, 4]}``, or an integer mask shaped like one row, or one per row;
            for images also (rows, height, width). A group that a row lacks has score 0 there.
        pairs: Also compute which feature cancels which (``variant="feature"``): ``e.conflict_pairs``.
        conflict: How ``e.conflict`` is computed: "measured", by two or three more evaluations of the model per row and
            baseline, or "net", from the net scores. None is "measured" for ``explain`` and ``explain_neuron``, "net" for
            the others.
        display: The features in the units of the user, if the inputs are scaled.
        batch_size: Rows per chunk. None chooses a size that fits the memory of the processor.
        show_progress: Show a progress bar. None shows it for long work only.
    """

    baselines: Any = None
    target: Any = None
    additional_forward_args: Any = None
    _: KW_ONLY
    against: Any = None
    output: Any = None
    feature_groups: Any = None
    pairs: bool = False
    conflict: str | None = None
    display: Any = None
    batch_size: int | None = None
    show_progress: bool | None = None

    def replace(self, **options: Any) -> Request:
        """This request with some options changed."""
        return dataclasses.replace(self, **options)


OPTIONS = tuple(field.name for field in dataclasses.fields(Request))
ELSEWHERE = {  # parameters of Captum and SHAP
    "feature_mask": "It is feature_groups= here. ",
    "internal_batch_size": "It is batch_size= here. ",
    "perturbations_per_eval": "It is batch_size= here. ",
    "n_steps": "There are no steps: one forward and one backward pass are exact. ",
    "nsamples": "There are no samples: one forward and one backward pass are exact. ",
    "check_additivity": "Every call checks the sum. ",
}


def unknown_parameter(call: str, name: str, known: Iterable[str], title: str = "Parameters") -> TypeError:
    """The error for a keyword that a call does not have."""
    return TypeError(f"{call}(..., {name}=...): unknown parameter. {ELSEWHERE.get(name, '')}{title}: {', '.join(known)}.")


def without_background(request: Request, background: Any, tokenizer: Any) -> Request:
    """The request with zero where frames would take rows of the background as baselines unasked, at fifty times the price."""
    unasked = request.baselines is None and background is not None and tokenizer is None
    return request.replace(baselines="zero") if unasked else request


def make_request(call: str, request: Request | None, options: Mapping[str, Any]) -> Request:
    """A request from one that is given and single options; ``call`` is named in the error."""
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise unknown_parameter(call, unknown[0], OPTIONS, "Options of explain")
    return (request or Request()).replace(**options)


@dataclass(frozen=True)
class Question:
    """Which question a request asks: about the output, every class, a layer, a neuron, or several c."""

    every_class: bool = False
    layer: str | None = None  # scores are those of this module
    start: bool = True  # its output is the input to be explained; else scores flow from the inputs and are read there
    target_layer: str | None = None  # the target is a neuron of this module
    several_c: tuple[Any, ...] | None = None  # explain once for each
    check_each: bool = False  # compare every operation with torch's own result
    shown_names: Any = None  # names of features for this call only (a form of version 0.1)

    @property
    def latent(self) -> bool:
        """The explanation starts at a hidden layer."""
        return self.layer is not None and self.start


def conflict_kind(conflict: str | None, question: Question) -> str:
    """The kind of conflict that a request asks for: by default measured, for layers, classes and several c from nets."""
    if conflict is not None and conflict not in CONFLICTS:
        raise ValueError(
            f"explain(..., conflict={conflict!r}): unknown value. Allowed values: {', '.join(map(repr, CONFLICTS))}."
        )
    if conflict == MEASURED and question.layer is not None:
        raise ValueError(
            'explain_layer(..., conflict="measured"): the units of a layer are not inputs that could be set to a baseline. '
            'Allowed values: "net".'
        )
    several = question.every_class or question.several_c is not None or question.layer is not None
    return conflict or (NET if several else MEASURED)


def takes_request(
    make: Callable[P, Request],
) -> Callable[[Callable[[Any, Any, Request], R]], Callable[Concatenate[Any, Any, P], R]]:
    """Give a method (self, inputs, request) the fields of the request as its parameters, with their documentation.

    Unknown keywords go to ``self._old_form``, which knows the forms of earlier versions.
    """

    def decorate(method: Callable[[Any, Any, Request], R]) -> Callable[Concatenate[Any, Any, P], R]:
        @functools.wraps(method)
        def call(self: Any, inputs: Any, *args: Any, **options: Any) -> R:
            old = {name: options.pop(name) for name in list(options) if name not in OPTIONS} if options else {}
            request = make(*args, **options)
            if old or (isinstance(request.target, str) and request.target == "all"):
                return self._old_form(method, inputs, request, old)
            return method(self, inputs, request)

        _describe(call, method)
        return call  # type: ignore[return-value]

    return decorate


def takes_request_and(make: Callable[..., Request]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """The same for a method (self, inputs, perhaps one more, request, *, ...) with parameters of its own."""

    def decorate(method: Callable[..., R]) -> Callable[..., R]:
        own = {one.name: one for one in inspect.signature(method).parameters.values()}
        own = {name: one for name, one in own.items() if name not in ("self", "inputs", "request")}
        needed = [name for name, one in own.items() if one.kind is not one.KEYWORD_ONLY]

        @functools.wraps(method)
        def call(self: Any, inputs: Any, *args: Any, **options: Any) -> R:
            if missing := [name for name in needed[len(args) :] if name not in options]:
                raise TypeError(f"{method.__name__}(inputs, {missing[0]}, ...): give {missing[0]}.")
            first, args = args[: len(needed)], args[len(needed) :]
            first += tuple(options.pop(name) for name in needed[len(first) :])
            more = {name: options.pop(name) for name in own if name in options}
            if unknown := [name for name in options if name not in OPTIONS]:
                raise unknown_parameter(method.__name__, unknown[0], [*own, *OPTIONS])
            return method(self, inputs, *first, make(*args, **options), **more)

        _describe(call, method)
        return call

    return decorate


def _describe(call: Any, method: Callable[..., Any]) -> None:
    """The signature and the documentation of a call with the options of a request."""
    own = [one for one in inspect.signature(method).parameters.values() if one.name != "request"]
    more = list(inspect.signature(Request).parameters.values())
    call.__signature__ = inspect.Signature(sorted([*own, *more], key=lambda one: one.kind))
    lines = textwrap.dedent((Request.__doc__ or "").partition("Args:\n")[2]).rstrip()
    call.__doc__ = (method.__doc__ or "").replace(MARK, textwrap.indent(lines, " " * 12).lstrip())
