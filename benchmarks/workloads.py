"""Training steps of real shape. Each function returns step() for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[], Any]


def _training_step(net: nn.Module, optimizer: Any, inputs: torch.Tensor) -> Step:
    def step() -> None:
        loss = net(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def launch_bound(device: str) -> Step:
    """Six small layers: the time goes into dispatching some hundred tiny operators."""
    layers = [
        layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.ReLU(), nn.LayerNorm(32))
    ]
    net = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    return _training_step(net, optimizer, torch.ones(4, 32, device=device))


def residual(device: str) -> Step:
    """Convolutions with skip connections, as in image models."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.body(x)

    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(6))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    return _training_step(net, optimizer, torch.ones(8, 3, 32, 32, device=device))


def transformer_block(device: str) -> Step:
    """One wide encoder layer: on a GPU its kernels take all the time."""
    wide = device != "cpu"
    width, length, batch = (2048, 1024, 8) if wide else (256, 64, 4)
    net = nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0)
    net = net.to(device, torch.bfloat16 if wide else torch.float32)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    inputs = torch.ones(
        batch, length, width, device=device, dtype=torch.bfloat16 if wide else torch.float32
    )
    return _training_step(net, optimizer, inputs)


WORKLOADS = {
    "launch-bound": launch_bound,
    "residual net": residual,
    "transformer block": transformer_block,
}
