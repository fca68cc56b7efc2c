"""Normalisations that are spelled out in means, squares and roots."""

from __future__ import annotations

from typing import NamedTuple

from .._graph import OURS, Graph, Node


class _Statistic(NamedTuple):
    """A value that was made of x along its last dimensions."""

    x: str
    dims: int
    nodes: list[Node]


def restore_norms(graph: Graph) -> None:
    """Layer, RMS and group norms, vectors of length 1; a note where a root of a mean still divides."""
    for node in list(graph.nodes):
        if any(node is one for one in graph.nodes):
            _group_norm(graph, node) or _by_root(graph, node) or _match_normalize(graph, node)
    left = [node for node in graph.nodes if _divides_by_root_of_mean(graph, node)]
    if left:
        graph.notes.append(
            f"The ONNX file has a normalisation that is written out in parts ({left[0].name or left[0].op}"
            f"{f' and {len(left) - 1} more' if len(left) > 1 else ''}) and is none that is known: its mean counts as a map of "
            "the features, and scores may differ from those of the model before its export."
        )


def _mean(graph: Graph, value: str) -> _Statistic | None:
    """The mean over the last dimensions."""
    node = graph.maker(value, "ReduceMean")
    if node is None or not node.get("keepdims", 1):
        return None
    axes = node.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        given = graph.constants.get(node.inputs[1])
        axes = None if given is None else given.reshape(-1).tolist()
    if not axes:
        return None
    rank = graph.rank(node.inputs[0])
    if rank is None and any(axis >= 0 for axis in axes):
        return None
    from_end = sorted(axis - rank if axis >= 0 and rank is not None else axis for axis in axes)
    count = len(from_end)
    return _Statistic(node.inputs[0], count, [node]) if from_end == list(range(-count, 0)) else None


def _match_centred(graph: Graph, value: str) -> _Statistic | None:
    """x minus its mean."""
    node = graph.maker(value, "Sub")
    mean = None if node is None else _mean(graph, node.inputs[1])
    return None if node is None or mean is None or mean.x != node.inputs[0] else mean._replace(nodes=[*mean.nodes, node])


def _mean_of_squares(graph: Graph, value: str) -> _Statistic | None:
    mean = _mean(graph, value)
    square = None if mean is None else graph.maker(mean.x, "Pow", "Mul")
    if mean is None or square is None:
        return None
    a, b = square.inputs
    if (square.op == "Mul" and a == b) or (square.op == "Pow" and graph.number(b) == 2):
        return _Statistic(a, mean.dims, [*mean.nodes, square])
    return None


def _scale(graph: Graph, node: Node) -> tuple[str, str, list[Node]] | None:
    """Of a value divided by a root, however that is written: the value, what is under the root, and the nodes."""
    if node.op == "Div" and not node.domain:
        root = graph.maker(node.inputs[1], "Sqrt") or _power(graph, node.inputs[1], 0.5)
        return None if root is None else (node.inputs[0], root.inputs[0], [root])
    if node.op != "Mul" or node.domain:
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        inverse = graph.maker(other, "Reciprocal", "Div") or _power(graph, other, -0.5)
        if inverse is None:
            continue
        if inverse.op == "Pow":
            return value, inverse.inputs[0], [inverse]
        if inverse.op == "Div" and graph.number(inverse.inputs[0]) != 1:
            continue
        root = graph.maker(inverse.inputs[-1], "Sqrt")
        if root is not None:
            return value, root.inputs[0], [inverse, root]
    return None


def _power(graph: Graph, value: str, exponent: float) -> Node | None:
    node = graph.maker(value, "Pow")
    return node if node is not None and graph.number(node.inputs[1]) == exponent else None


def _by_root(graph: Graph, node: Node) -> bool:
    """A layer norm or an RMS norm that ends here, or further on in its weight and bias."""
    scale = _scale(graph, node)
    shifted = None if scale is None else graph.maker(scale[1], "Add")
    if scale is None or shifted is None:
        return False
    value, _, nodes = scale
    for squares_of, eps_of in (shifted.inputs, shifted.inputs[::-1]):
        squares, eps = _mean_of_squares(graph, squares_of), graph.number(eps_of)
        if squares is None or eps is None:
            continue
        whole = [node, shifted, *nodes, *squares.nodes]
        centred, also = _match_centred(graph, value), _match_centred(graph, squares.x)
        if centred is not None and also is not None and centred.x == also.x and centred.dims == also.dims == squares.dims:
            return _replace_norm(
                graph, "LayerNormalization", centred.x, squares.dims, eps, node, [*whole, *centred.nodes, *also.nodes]
            )
        if value == squares.x:
            return _replace_norm(graph, "RMSNormalization", value, squares.dims, eps, node, whole)
    return False


def _replace_norm(graph: Graph, op: str, x: str, count: int, eps: float, last: Node, nodes: list[Node]) -> bool:
    """The norm in place of its parts, with weight and bias where these follow."""
    inputs, end = [x], last
    scaled = graph.only_user(end.outputs[0], "Mul")
    weight = None if scaled is None else _parameter(graph, scaled, end.outputs[0], count)
    if scaled is not None and weight is not None:
        inputs, nodes, end = [x, weight], [*nodes, scaled], scaled
    added = graph.only_user(end.outputs[0], "Add") if op == "LayerNormalization" else None
    bias = None if added is None else _parameter(graph, added, end.outputs[0], count)
    if added is not None and bias is not None:
        inputs, nodes, end = [x, weight or "", bias], [*nodes, added], added
    gone = _only_inside(graph, {id(one): one for one in nodes}, end)
    settings = {"axis": -count, "epsilon": eps}
    new = Node(op, inputs, list(end.outputs), settings, end.name, end.scope, max(end.version, 17))
    graph.replace(gone, new, "layer norm" if op == "LayerNormalization" else "RMS norm")
    return True


def _parameter(graph: Graph, node: Node, value: str, count: int) -> str | None:
    """The other input of a node, if it is a constant of the last dimensions."""
    other = node.inputs[1] if node.inputs[0] == value else node.inputs[0]
    constant = graph.constants.get(other)
    if constant is None or constant.numel() == 1 or any(size != 1 for size in constant.shape[: max(0, constant.ndim - count)]):
        return None
    return other if count <= constant.ndim <= (graph.rank(value) or count) else None


def _only_inside(graph: Graph, nodes: dict[int, Node], end: Node) -> list[Node]:
    """Those whose values no other node needs; the others stay."""
    gone, changed = dict(nodes), True
    while changed:
        changed = False
        for one in list(gone.values()):
            used = one is not end and (
                one.outputs[0] in graph.outputs or any(id(user) not in gone for user in graph.users(one.outputs[0]))
            )
            if used:
                del gone[id(one)]
                changed = True
    return list(gone.values())


def _match_normalize(graph: Graph, node: Node) -> bool:
    """x / max(|x|, eps), as F.normalize is exported."""
    if node.op != "Div" or node.domain:
        return False
    nodes, value = [node], node.inputs[1]
    spread = graph.maker(value, "Expand")
    if spread is not None:
        nodes, value = [*nodes, spread], spread.inputs[0]
    bound = graph.maker(value, "Clip", "Max")
    norm = None if bound is None else graph.maker(bound.inputs[0], "ReduceL2")
    if bound is None or norm is None or norm.inputs[0] != node.inputs[0] or not norm.get("keepdims", 1):
        return False
    eps = bound.get("min") if len(bound.inputs) < 2 else graph.number(bound.inputs[1])
    axes = norm.get("axes")
    if len(norm.inputs) > 1:
        axes = graph.constants[norm.inputs[1]].tolist() if norm.inputs[1] in graph.constants else None
    if eps is None or axes is None or len(axes) != 1 or len([name for name in bound.inputs if name]) > 2:
        return False
    gone = _only_inside(graph, {id(one): one for one in (*nodes, bound, norm)}, node)
    settings = {"axis": int(axes[0]), "epsilon": float(eps)}
    new = Node("Normalize", [node.inputs[0]], list(node.outputs), settings, node.name, node.scope, node.version, OURS)
    graph.replace(gone, new, "normalize")
    return True


def _group_norm(graph: Graph, node: Node) -> bool:
    """An instance norm between two reshapes, with weight and bias by channel behind."""
    if node.op != "InstanceNormalization" or node.domain:
        return False
    before, behind = graph.maker(node.inputs[0], "Reshape"), graph.only_user(node.outputs[0], "Reshape")
    plain = [graph.constants.get(name) for name in node.inputs[1:3]]
    if before is None or behind is None or any(one is None for one in plain):
        return False
    sizes, (weight, bias) = graph.constants.get(before.inputs[1]), plain
    if sizes is None or weight is None or bias is None or sizes.numel() != 3 or bool((weight != 1).any() or (bias != 0).any()):
        return False
    groups, x = int(sizes[1]), before.inputs[0]
    rank, shape = graph.rank(x), graph.maker(behind.inputs[1], "Shape")
    if (
        groups != weight.numel()
        or int(sizes[2]) != -1
        or rank is None
        or not ((shape is not None and shape.inputs[0] == x) or _same_shape(graph, x, behind.outputs[0]))
    ):
        return False
    inputs, nodes, end = [x], [node, before, behind], behind
    for op in ("Mul", "Add"):
        user = graph.only_user(end.outputs[0], op)
        other = None if user is None else user.inputs[1] if user.inputs[0] == end.outputs[0] else user.inputs[0]
        constant = None if other is None else graph.constants.get(other)
        if user is None or constant is None:
            break
        if constant.numel() == 1 and float(constant) == (op == "Mul"):
            inputs.append("")  # a norm without weight and bias
        elif constant.ndim >= rank - 1 and constant.numel() == constant.shape[1 - rank] > 1:
            inputs.append(graph.constant(f"{other}/channels", constant.reshape(-1)))
        else:
            break
        nodes, end = [*nodes, user], user
    gone = _only_inside(graph, {id(one): one for one in nodes}, end)
    settings = {"num_groups": groups, "epsilon": node.get("epsilon", 1e-5)}
    graph.replace(gone, Node("GroupNorm", inputs, list(end.outputs), settings, end.name, end.scope, 0, OURS), "group norm")
    return True


def _same_shape(graph: Graph, a: str, b: str) -> bool:
    known = [graph.declared[name].shape if name in graph.declared else None for name in (a, b)]
    first, second = known
    if first is None or second is None or len(first) != len(second):
        return False
    return all(one is None or two is None or one == two for one, two in zip(first[1:], second[1:], strict=True))


def _divides_by_root_of_mean(graph: Graph, node: Node) -> bool:
    scale = _scale(graph, node)
    if scale is None or scale[0] in graph.constants:
        return False
    inner = scale[1]
    added = graph.maker(inner, "Add")
    return any(_is_mean(graph, name) for name in (inner, *(added.inputs if added is not None else ())))


def _is_mean(graph: Graph, value: str) -> bool:
    return graph.maker(value, "ReduceMean") is not None
