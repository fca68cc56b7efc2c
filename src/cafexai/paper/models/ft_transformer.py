"""The FT-Transformer of the paper: tables as sequences of feature tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FTTransformer(nn.Module):
    """Feature tokens, transformer blocks, and a head on one token, for tables.

    Args:
        layout: The columns of each feature in the order of the input: 1 is a number, more is a one-hot block (or, in
            ``forward(numbers, codes)``, a category code).
        outputs: The number of outputs.
        width: The width of a token.
        heads: Heads of attention.
        blocks: The number of blocks.
        expansion: The width of the hidden layer of a block, in widths of a token.
        attention_dropout: Dropout of attention weights.
        feedforward_dropout: Dropout of the hidden layer.
        head: Which token is read: "cls", the first, or "last", as the authors of the paper do.
        lookup: How a one-hot block meets its embeddings: "product", which has gradients, or "argmax", which finds its
            category first, as the authors do.
        category_bias: Give tokens of one-hot blocks a bias; the authors do not.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> from cafexai.models import FTTransformer
        >>> FTTransformer([1, 1, 3], 2, width=8, heads=2)(torch.rand(4, 5)).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        layout: Sequence[int],
        outputs: int,
        *,
        width: int = 128,
        heads: int = 8,
        blocks: int = 2,
        expansion: float = 4 / 3,
        attention_dropout: float = 0.2,
        feedforward_dropout: float = 0.1,
        head: str = "cls",
        lookup: str = "product",
        category_bias: bool = True,
    ) -> None:
        super().__init__()
        if head not in ("cls", "last") or lookup not in ("product", "argmax"):
            raise ValueError(
                f"FTTransformer(head={head!r}, lookup={lookup!r}): unknown value. "
                'Allowed values: head "cls", "last"; lookup "product", "argmax".'
            )
        if width % heads:
            raise ValueError(f"FTTransformer(width={width}, heads={heads}): the width must be a multiple of the heads.")
        self.layout = tuple(layout)
        self.head_token = head
        self.lookup = lookup
        self.category_bias = category_bias
        self.numbers = nn.Parameter(torch.empty(sum(size == 1 for size in layout), width))
        self.categories = nn.ParameterList([torch.empty(size, width) for size in layout if size > 1])
        self.biased = [place for place, size in enumerate(layout) if size == 1 or category_bias]
        self.bias = nn.Parameter(torch.empty(len(self.biased), width))
        self.cls = nn.Parameter(torch.empty(width))
        for parameter in (self.numbers, *self.categories, self.bias, self.cls):
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)
        hidden = int(width * expansion)
        self.blocks = nn.ModuleList(
            Block(width, heads, hidden, attention_dropout, feedforward_dropout, first=i == 0) for i in range(blocks)
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor, codes: Tensor | None = None) -> Tensor:
        """The outputs of rows.

        Args:
            x: (rows, columns), or with ``codes`` the numbers alone, (rows, n).
            codes: Category codes, (rows, blocks).

        Returns:
            (rows, outputs).
        """
        tokens = torch.stack(self._tokens(x, codes), 1) + self._biases()
        cls = self.cls.expand(tokens.shape[0], 1, -1)  # len would be a constant of exported models
        tokens = torch.cat([cls, tokens], 1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(F.gelu(tokens[:, 0 if self.head_token == "cls" else -1]))

    def extra_repr(self) -> str:
        """What the parameters do not show: checkpoints are known by it."""
        without = "" if self.category_bias else ", category_bias=False"
        return f"layout={self.layout}, head={self.head_token!r}, lookup={self.lookup!r}{without}"

    def _biases(self) -> Tensor:
        """One per token; 0 for a token that has none."""
        if len(self.biased) == len(self.layout):
            return self.bias
        places = torch.tensor(self.biased, device=self.bias.device)
        return self.bias.new_zeros(len(self.layout), self.bias.shape[1]).index_copy(0, places, self.bias)

    def _tokens(self, x: Tensor, codes: Tensor | None) -> list[Tensor]:
        """One token per feature, in the order of the layout."""
        tokens = []
        column = number = block = 0
        for size in self.layout:
            if size == 1:
                tokens.append(x[:, column : column + 1] * self.numbers[number])
                number += 1
            elif codes is not None:
                tokens.append(F.embedding(codes[:, block], self.categories[block]))
            elif self.lookup == "argmax":
                part = x[:, column : column + size]
                found = F.embedding(part.argmax(1), self.categories[block])
                tokens.append(found * part.any(1, keepdim=True))  # a block of zeros is no category, not the first one
            else:
                tokens.append(x[:, column : column + size] @ self.categories[block])
            column += 1 if size == 1 else size * (codes is None)
            block += size > 1
        return tokens


class Block(nn.Module):
    """x + feed-forward(norm(attention(norm(x)))): one residual spans the block; the first block has no first norm.

    Args:
        width: The width of a token.
        heads: Heads of attention.
        hidden: The width of the hidden layer.
        p_attention: Dropout of attention weights.
        p_hidden: Dropout of the hidden layer.
        first: Leave out the first norm.
    """

    def __init__(self, width: int, heads: int, hidden: int, p_attention: float, p_hidden: float, first: bool) -> None:
        super().__init__()
        self.heads = heads
        self.p_attention = p_attention
        self.norm1 = nn.Identity() if first else nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(p_hidden), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, tokens, width) to the same.

        Args:
            x: (rows, tokens, width).

        Returns:
            The same shape.
        """
        return x + self.feedforward(self.norm2(self.attention(self.norm1(x))))

    def extra_repr(self) -> str:
        """What the parameters do not show."""
        return f"heads={self.heads}, attention_dropout={self.p_attention}"

    def attention(self, x: Tensor) -> Tensor:
        """Every token looks at every other.

        Args:
            x: (rows, tokens, width).

        Returns:
            The same shape.
        """
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p_attention if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).flatten(2))
