"""A small vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .ft_transformer import Block


class PreNormBlock(Block):
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """(rows, tokens, width) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class ViT(nn.Module):
    """Square patches as tokens, positions, transformer blocks, a norm, the mean over the tokens, and a linear map.

    Args:
        channels: Channels of the images.
        size: Side of the square images, a multiple of ``patch``.
        outputs: Number of outputs.
        width: Width of the tokens, a multiple of ``heads``.
        heads: Heads of each attention.
        blocks: Number of transformer blocks.
        patch: Side of the square patches.

    Raises:
        ValueError: ``size`` is no multiple of ``patch``, or ``width`` none of ``heads``.

    Example:
        >>> ViT(3, 32, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, channels: int, size: int, outputs: int, *, width: int = 48, heads: int = 4, blocks: int = 3, patch: int = 4
    ) -> None:
        super().__init__()
        if size % patch or width % heads:
            raise ValueError(
                f"ViT(size={size}, patch={patch}, width={width}, heads={heads}): size must be a multiple of patch and width a "
                "multiple of heads."
            )
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads, 2 * width, 0.0, 0.0, first=False) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of images.

        Args:
            x: Images, (rows, channels, size, size).

        Returns:
            Outputs, (rows, outputs).
        """
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(tokens)).mean(1))
