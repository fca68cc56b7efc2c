"""What the outputs of a model are as probabilities."""

from __future__ import annotations

from torch import Tensor

from .job import Job

PROBABILITY = ("softmax", "sigmoid")  # what makes probabilities of logits


def probabilities(job: Job, logits: Tensor, found: Tensor | None) -> Tensor | None:
    """The model's own probabilities, ``found``, or those by the function that is known."""
    if job.question.target_layer is not None:
        return None
    outputs = logits.shape[1:].numel()
    known = implied_probability(job.probability, len(job.class_names), outputs, job.subject.takes_raw)
    if found is not None or known is None:
        return found
    if known == PROBABILITY[1]:
        return logits.sigmoid()
    if logits.ndim != 2 or logits.shape[1] == 1:
        raise ValueError(
            f'CAFE(..., probability="softmax"): the output of the model has shape {tuple(logits.shape)}; a softmax is over '
            'several classes, (rows, classes). A single logit has a probability by "sigmoid".'
        )
    return logits.softmax(1)


def implied_probability(given: str | None, classes: int, outputs: int, own_columns: bool) -> str | None:
    """What the user has named; else a single output with two class names is the logit of the second.

    Models with their own columns (``from_raw``) know themselves whether their output is a logit.
    """
    single = outputs == 1 and classes == 2 and not own_columns
    return given if given is not None or not single else PROBABILITY[1]
