"""MONAI: networks for medical pictures and volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from monai.networks import nets
from specimen import ROWS, Specimen, pictures
from torch import nn

SMALL_VIT = {"hidden_size": 32, "mlp_dim": 64, "num_heads": 4, "spatial_dims": 2}
DECODER = {"decoder_hidden_size": 32, "decoder_mlp_dim": 64, "decoder_num_layers": 1, "decoder_num_heads": 4}
CODEBOOK = {
    "channels": (8, 8), "num_res_channels": (8, 8), "num_res_layers": 1, "num_embeddings": 8, "embedding_dim": 4,
    "downsample_parameters": ((2, 4, 1, 1),) * 2, "upsample_parameters": ((2, 4, 1, 1, 0),) * 2,
}  # fmt: skip
LATENT = {"num_res_blocks": 1, "attention_levels": (False, True), "norm_num_groups": 4, "latent_channels": 2}
DYNAMIC = {"kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "filters": [4, 8, 8]}
BLOCKS = {"blocks_down": (1, 1, 1, 1), "blocks_up": (1, 1, 1, 1), "blocks_bottleneck": 1}
RESTORED = {"dim": 8, "num_blocks": (1, 1, 1, 1), "heads": (1, 1, 2, 2), "num_refinement_blocks": 1}
SWIN = {"depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2), "feature_size": 12, "spatial_dims": 2}
FLAT = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
STEPS = {"channels": (4, 8, 16), "strides": (2, 2)}
Made = tuple[nn.Module, tuple[int, ...]]
MODELS: dict[str, Callable[[], Made]] = {
    "AHNet": lambda: (nets.AHNet(layers=(1, 1, 1, 1), spatial_dims=2, in_channels=1, out_channels=2), (1, 128, 128)),
    "AttentionUnet": lambda: (nets.AttentionUnet(**FLAT, **STEPS), (1, 32, 32)),
    "AutoEncoder": lambda: (nets.AutoEncoder(**FLAT, channels=(4, 8), strides=(2, 2)), (1, 32, 32)),
    "AutoencoderKL": lambda: (
        nets.AutoencoderKL(**FLAT, channels=(8, 8), **LATENT),
        (1, 16, 16),
    ),
    "BasicUNet": lambda: (nets.BasicUNet(**FLAT, features=(4, 4, 8, 8, 8, 4)), (1, 32, 32)),
    "BasicUNetPlusPlus": lambda: (nets.BasicUNetPlusPlus(**FLAT, features=(4, 4, 8, 8, 8, 4)), (1, 32, 32)),
    "Classifier": lambda: (nets.Classifier((1, 32, 32), 3, **STEPS), (1, 32, 32)),
    "Critic": lambda: (nets.Critic((1, 32, 32), **STEPS), (1, 32, 32)),
    "DenseNet121": lambda: (nets.DenseNet121(spatial_dims=2, in_channels=1, out_channels=3), (1, 32, 32)),
    "Discriminator": lambda: (nets.Discriminator((1, 32, 32), **STEPS), (1, 32, 32)),
    "DynUNet": lambda: (nets.DynUNet(**FLAT, **DYNAMIC), (1, 32, 32)),
    "EfficientNetBN": lambda: (nets.EfficientNetBN("efficientnet-b0", pretrained=False, num_classes=3), (3, 64, 64)),
    "FlexibleUNet": lambda: (nets.FlexibleUNet(3, 2, "efficientnet-b0", pretrained=False), (3, 64, 64)),
    "FullyConnectedNet": lambda: (nets.FullyConnectedNet(10, 3, [16, 16]), (10,)),
    "Generator": lambda: (nets.Generator((8,), (4, 8, 8), channels=(8, 4, 1), strides=(2, 2, 1)), (8,)),
    "GlobalNet": lambda: (nets.GlobalNet([32, 32], 2, 2, 4, 2), (2, 32, 32)),
    "HighResNet": lambda: (nets.HighResNet(**FLAT), (1, 32, 32)),
    "HoVerNet": lambda: (nets.HoVerNet(mode="fast", in_channels=3, decoder_padding=True), (3, 256, 256)),
    "LocalNet": lambda: (nets.LocalNet(2, 2, 4, extract_levels=(0, 1, 2)), (2, 32, 32)),
    "MaskedAutoEncoderViT": lambda: (
        nets.MaskedAutoEncoderViT(1, 32, 8, num_layers=2, **SMALL_VIT, **DECODER),
        (1, 32, 32),
    ),
    "MedNeXt": lambda: (nets.MedNeXt(spatial_dims=2, init_filters=8, in_channels=1, out_channels=2, **BLOCKS), (1, 32, 32)),
    "PatchDiscriminator": lambda: (nets.PatchDiscriminator(2, 4, 1, num_layers_d=2), (1, 32, 32)),
    "Quicknat": lambda: (nets.Quicknat(num_classes=2, num_channels=1, num_filters=8), (1, 32, 32)),
    "Regressor": lambda: (nets.Regressor((1, 32, 32), (2,), **STEPS), (1, 32, 32)),
    "RegUNet": lambda: (nets.RegUNet(2, 2, 4, 2), (2, 32, 32)),
    "resnet10": lambda: (nets.resnet10(spatial_dims=2, n_input_channels=1, num_classes=3), (1, 32, 32)),
    "Restormer": lambda: (nets.restormer.Restormer(spatial_dims=2, in_channels=1, out_channels=1, **RESTORED), (1, 32, 32)),
    "SegResNet": lambda: (nets.SegResNet(spatial_dims=2), (1, 32, 32)),
    "SegResNetDS": lambda: (nets.SegResNetDS(spatial_dims=2, init_filters=8), (1, 32, 32)),
    "SEResNet50": lambda: (nets.SEResNet50(spatial_dims=2, in_channels=3, num_classes=3), (3, 64, 64)),
    "SwinUNETR": lambda: (nets.SwinUNETR(1, 2, **SWIN), (1, 64, 64)),
    "UNet": lambda: (nets.UNet(**FLAT, **STEPS, num_res_units=1), (1, 32, 32)),
    "UNETR": lambda: (nets.UNETR(1, 2, (32, 32), feature_size=4, **SMALL_VIT), (1, 32, 32)),
    "VarAutoEncoder": lambda: (nets.VarAutoEncoder(2, (1, 32, 32), 1, 4, channels=(4, 8), strides=(2, 2)), (1, 32, 32)),
    "ViT": lambda: (nets.ViT(1, 32, 8, num_layers=2, classification=True, num_classes=3, **SMALL_VIT), (1, 32, 32)),
    "ViTAutoEnc": lambda: (nets.ViTAutoEnc(1, (32, 32), (4, 4), num_layers=2, **SMALL_VIT), (1, 32, 32)),
    "VNet": lambda: (nets.VNet(spatial_dims=2), (1, 32, 32)),
    "VoxelMorphUNet": lambda: (nets.VoxelMorphUNet(2, 2, 8, (4, 8, 8, 8, 8, 8), (4, 4)), (2, 32, 32)),
    "VQVAE": lambda: (nets.VQVAE(2, 1, 1, **CODEBOOK), (1, 16, 16)),
}  # fmt: skip


def names() -> Iterator[str]:
    for name in MODELS:
        yield f"monai/{name}"


def build(name: str) -> Specimen:
    model, shape = MODELS[name.split("/")[1]]()
    return Specimen(model, {0: torch.randn(ROWS, *shape) if len(shape) != 3 else pictures(shape[0], shape[1])})
