"""Write docs/errors.md: errors by message, with cause and remedy. A test makes every one of them happen.

python docs/scripts/errors.py
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[1] / "errors.md"
HEAD = """# Errors by message

Search this page for a part of your message. Every message also says itself what was called, what is wrong and what to do.
Wrong arguments raise a `ValueError`, `TypeError` or `KeyError`.
`UnsupportedOperation` and `CompletenessError` are names of `cafexai`.
"""
Entry = tuple[str, str, str, str]  # part of the message, class, cause, remedy
SECTIONS: dict[str, list[Entry]] = {
    "The model": [
        (
            "is in training mode",
            "ValueError",
            "Dropout or batch norm is active, so the output depends on chance or on the other rows.",
            "Call `model.eval()` first.",
        ),
        (
            "there is no rule for it",
            "UnsupportedOperation",
            "The model calls an operation without a rule. Nothing is approximated.",
            "Write it with other operations, or [add a rule](how-to/operation.md).",
        ),
        (
            "the model lets rows depend on each other",
            "RowsMixed",
            "`forward` uses statistics of the batch, or changes the order of the rows.",
            "Set `batch_size=1`. Pass a graph as one row.",
        ),
        (
            "does not depend on the input in a way that can be followed",
            "ValueError",
            "`.detach()`, `.item()` or NumPy cuts the way from the input to the output.",
            "Write `forward` with torch alone, or explain a layer before: `explain_neuron`.",
        ),
        (
            "is a TorchScript program",
            "ValueError",
            "The calls of scripted code cannot be seen.",
            "Explain the eager module it was made from.",
        ),
        (
            "is made of decision trees",
            "ValueError",
            "CAFE follows layers of networks and linear models.",
            "Use TreeSHAP or InterpretML.",
        ),
        (
            "give the name of the layer",
            "ValueError",
            "`explain_layer` or `explain_neuron` got a module, as Captum takes it.",
            "Pass its name; the message has it.",
        ),
        (
            "the model has no such module",
            "ValueError",
            "`explain_layer` or `explain_neuron` got a wrong name.",
            "Take a name of `model.named_modules()`; the message lists them.",
        ),
    ],
    "The input": [
        (
            "the input holds nan",
            "ValueError",
            "A value is missing.",
            "Fill or drop it first, or set `allow_nan=True` if the model handles missing values.",
        ),
        (
            "the model does not take inputs of shape",
            "ValueError",
            "The number of columns is not the one of the model.",
            "Pass the columns the model was trained on. The message says how many its first layer takes.",
        ),
        (
            "its columns are not the features",
            "ValueError",
            "The frame lacks or has other columns than `feature_names`.",
            "Pass exactly these columns; their order does not matter.",
        ),
        (
            "Integer inputs are codes",
            "ValueError",
            "Integers are looked up in an embedding, and this model has none for them.",
            "Pass `x.float()` if they are quantities.",
        ),
        (
            "which tokenizer?",
            "ValueError",
            "You passed texts and the explainer has no tokenizer.",
            "Write `CAFE(model, tokenizer=tokenizer)`.",
        ),
        (
            "there is no feature",
            "ValueError",
            "A group names a feature that the input does not have.",
            "Use names or positions of the features; the message lists them.",
        ),
    ],
    "Baseline, target and options": [
        (
            "of which data?",
            "ValueError",
            '`baselines="median"` and the like need data.',
            "Write `CAFE(model, background=x_train)`.",
        ),
        (
            "does not fit the input of shape",
            "ValueError",
            "The baseline has another shape than the rows.",
            "Pass one row, all rows, a number, or a stack with one more dimension in front.",
        ),
        (
            "is out of range for an output of sizes",
            "ValueError",
            "There is no such output.",
            "Count from 0.",
        ),
        (
            "there is no such class",
            "ValueError",
            "`target=` is a name, and the explainer does not know the names of the classes.",
            "Write `CAFE(model, class_names=[...])`, or pass an integer.",
        ),
        (
            "unknown variant",
            "ValueError",
            "There are three variants.",
            "Write `default`, `published`, `feature`, or pass a `Variant`.",
        ),
        (
            "needs attention=",
            "ValueError",
            "Two options contradict each other, such as path netting and open attention.",
            "Drop one of them ([options](default.md#options-and-presets)).",
        ),
        (
            "unknown parameter",
            "TypeError",
            "The call does not know this option. Settings of the model belong to `CAFE(...)`, not to `explain`.",
            "Take one of those the message lists.",
        ),
    ],
    "The result": [
        (
            "the rows have no names",
            "KeyError",
            "You asked for a row by its name.",
            "Take a position, `e[0]`, or pass a frame with an index of names.",
        ),
        (
            "pairs(): not computed",
            "ValueError",
            "Pairs cost one forward pass per feature and are computed on demand.",
            'Write `CAFE(model, variant="feature").explain(x, pairs=True)`.',
        ),
        (
            "of which rows?",
            "ValueError",
            "A scale of usual conflicts needs usual rows.",
            "Write `CAFE(model, background=x_train)`.",
        ),
    ],
}
TAIL = """## Scores that do not sum

`CompletenessError` says that scores miss the output by more than rounding. That is a fault of a rule, not of your model:
please report it with the message. `cafexai.debug.check_operations(cafe, x)` names the operation.

A `ScoreWarning` says that nearly all influence cancels on its way, so the sizes say little. Take the default
variant, or `variant="feature"` ([depth](understand/depth.md)).
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD]
    for title, entries in SECTIONS.items():
        parts.append(f"## {title}\n\n| part of the message | class | cause | remedy |\n| --- | --- | --- | --- |")
        parts += [f"| {message} | `{kind}` | {cause} | {remedy} |" for message, kind, cause, remedy in entries]
        parts.append("")
    return "\n".join([*parts, TAIL])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
