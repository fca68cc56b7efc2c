"""Policies of stable-baselines3: what an agent would do, from what it sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from specimen import ROWS, Specimen
from torch import Tensor, nn

NAMES = ["ActorCritic", "ActorCritic, discrete", "ActorCritic, pictures", "DQN", "DQN, pictures", "SAC", "TD3"]


class Acting(nn.Module):
    """A policy as a function from what is seen to the numbers that decide."""

    def __init__(self, policy: nn.Module, kind: str) -> None:
        super().__init__()
        self.policy, self.kind = policy, kind

    def forward(self, seen: Tensor) -> Any:
        if self.kind.startswith("ActorCritic"):
            latent = self.policy.mlp_extractor.forward_actor(self.policy.extract_features(seen))
            return self.policy.action_net(latent)
        if self.kind.startswith("DQN"):
            return self.policy.q_net(seen)
        return self.policy.actor(seen, deterministic=True) if self.kind == "SAC" else self.policy.actor(seen)


def names() -> Iterator[str]:
    for name in NAMES:
        yield f"stable_baselines3/{name}"


def build(name: str) -> Specimen:
    from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
    from stable_baselines3.dqn.policies import CnnPolicy, DQNPolicy
    from stable_baselines3.sac.policies import SACPolicy
    from stable_baselines3.td3.policies import TD3Policy

    name = name.split("/")[1]
    pictures = name.endswith("pictures")
    low, high, kind = (0, 255, np.uint8) if pictures else (-1, 1, np.float32)
    seen = gymnasium.spaces.Box(low, high, (3, 64, 64) if pictures else (8,), kind)
    acts: Any = gymnasium.spaces.Discrete(4)
    if name in ("ActorCritic", "SAC", "TD3"):
        acts = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    kinds = {"ActorCritic": ActorCriticPolicy, "DQN": DQNPolicy, "SAC": SACPolicy, "TD3": TD3Policy}
    policy = {"ActorCritic, pictures": ActorCriticCnnPolicy, "DQN, pictures": CnnPolicy}.get(name) or kinds[name.split(",")[0]]
    model = policy(seen, acts, lambda _: 1e-3)
    return Specimen(Acting(model, name), {0: torch.rand(ROWS, *seen.shape) * (high if pictures else 1)})
