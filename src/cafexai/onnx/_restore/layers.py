"""Linear layers and embeddings, with the weights that belong to them."""

from __future__ import annotations

from .._graph import OURS, Graph, Node
from .._read import DTYPES

MOST = 1 << 16  # codes of a one-hot encoding


def restore_layers(graph: Graph) -> None:
    """Products with a constant matrix, with the bias that follows; tables that are looked up."""
    for node in list(graph.nodes):
        if node.domain:
            continue
        if node.op == "MatMul":
            _product(graph, node)
        elif node.op == "Gemm":
            _gemm(graph, node)
        elif node.op == "Gather":
            _table(graph, node)
        elif node.op == "Equal":
            _one_hot(graph, node)


def _product(graph: Graph, node: Node) -> None:
    weight = graph.constants.get(node.inputs[1])
    if weight is None or weight.ndim != 2 or node.inputs[0] in graph.constants or (graph.rank(node.inputs[0]) or 2) < 2:
        return
    inputs = [node.inputs[0], graph.constant(f"{node.inputs[1]}/transposed", weight.t().contiguous())]
    nodes, end = [node], node
    added = graph.only_user(node.outputs[0], "Add")
    if added is not None:
        other = added.inputs[1] if added.inputs[0] == node.outputs[0] else added.inputs[0]
        bias = graph.constants.get(other)
        fits = bias is not None and 0 < bias.ndim <= (graph.rank(node.inputs[0]) or 1)
        if bias is not None and fits and bias.numel() == bias.shape[-1] == weight.shape[1]:
            inputs.append(other if bias.ndim == 1 else graph.constant(f"{other}/flat", bias.reshape(-1)))
            nodes, end = [node, added], added
    graph.replace(nodes, Node("Linear", inputs, list(end.outputs), {}, node.name, node.scope, node.version, OURS))


def _gemm(graph: Graph, node: Node) -> None:
    weight = graph.constants.get(node.inputs[1])
    bias = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weight is None or node.get("transA", 0) or (len(node.inputs) > 2 and node.inputs[2] and bias is None):
        return
    if node.get("alpha", 1.0) != 1 or node.get("beta", 1.0) != 1 or node.inputs[0] in graph.constants:
        return
    outputs = weight.shape[0] if node.get("transB", 0) else weight.shape[1]
    if bias is not None and (bias.ndim == 0 or not bias.numel() == bias.shape[-1] == outputs):
        return
    inputs = list(node.inputs)
    if not node.get("transB", 0):
        inputs[1] = graph.constant(f"{node.inputs[1]}/transposed", weight.t().contiguous())
    if bias is not None and bias.ndim > 1:
        inputs[2] = graph.constant(f"{node.inputs[2]}/flat", bias.reshape(-1))
    graph.replace([node], Node("Linear", inputs, list(node.outputs), {}, node.name, node.scope, node.version, OURS))


def _table(graph: Graph, node: Node) -> None:
    table = graph.constants.get(node.inputs[0])
    if table is None or table.ndim != 2 or not table.is_floating_point() or node.get("axis", 0) % 2:
        return
    if node.inputs[1] not in graph.constants:
        graph.replace([node], Node("Embedding", node.inputs, node.outputs, {}, node.name, node.scope, node.version, OURS))


def _one_hot(graph: Graph, node: Node) -> None:
    """Codes compared with a row of integers, as numbers: one-hot, as TensorFlow exports it."""
    cast = graph.only_user(node.outputs[0], "Cast")
    if cast is None or not getattr(DTYPES.get(cast.get("to")), "is_floating_point", False):
        return
    codes, values = node.inputs if node.inputs[1] in graph.constants else node.inputs[::-1]
    known = graph.constants.get(values)
    if known is None or codes in graph.constants or known.is_floating_point() or known.ndim == 0:
        return
    row = known.reshape(-1)
    if len(row) != known.shape[-1] or len(row) < 2 or len(row.unique()) < len(row):
        return
    if not 0 <= int(row.min()) <= int(row.max()) < MOST:
        return
    if graph.rank(codes) is not None and known.ndim > (graph.rank(codes) or 0):
        return
    kept = {"to": cast.get("to")}
    new = Node("OneHotOf", [codes, values], cast.outputs, kept, node.name, node.scope, node.version, OURS)
    graph.replace([node, cast], new, "one-hot")


def note_folded(graph: Graph) -> None:
    """Tell where an exporter has multiplied a batch norm into the layer before it, whose bias may have been another."""
    found = [node for node in graph.nodes if len(node.inputs) > 2 and _holds_a_batch_norm(node)]
    if found:
        some = ", ".join(node.scope or node.name for node in found[:3])
        graph.notes.append(
            f"The exporter has multiplied batch norms into the layers before them ({some}"
            f"{f' and {len(found) - 3} more' if len(found) > 3 else ''}). Where such a layer had a bias of its own, the two "
            "biases are now one, and with biases as scores (CAFE.published) the scores may differ from those of the model "
            "before its export. torch.onnx.export(..., do_constant_folding=False), or optimize=False with dynamo=True, leaves "
            "them as they are."
        )


def _holds_a_batch_norm(node: Node) -> bool:
    """A convolution or linear layer that says so, or whose weights have lost their names; it may have had a bias before."""
    if node.op not in ("Conv", "ConvTranspose", "Linear") or node.inputs[2] == f"{node.inputs[1]}_bias":  # a bias made anew
        return False
    return "batch_norm" in node.origin or (node.op != "Linear" and node.inputs[1].startswith("onnx::Conv_"))
