"""A small GPT learns to write Python, character by character, from the sources of the
standard library. Which of its layers hold the memory at the peak?

    memprof run examples/char_transformer.py --steps 60
"""

import argparse
import random
import sysconfig
from pathlib import Path

import torch
from torch import nn

VOCABULARY = 128  # ASCII


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    def __init__(self, context: int, width: int = 96, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.letters = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, VOCABULARY)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.letters(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.predict(self.norm(x))


def read_library(least_characters: int = 1_000_000) -> torch.Tensor:
    parts, total = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        part = path.read_bytes()
        parts.append(bytes(byte for byte in part if byte < VOCABULARY))
        total += len(part)
        if total >= least_characters:
            break
    return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)


def sample_batch(
    text: torch.Tensor, batch: int, context: int
) -> tuple[torch.Tensor, torch.Tensor]:
    starts = [random.randrange(len(text) - context - 1) for _ in range(batch)]
    rows = torch.stack([text[at : at + context + 1] for at in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    options = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    text = read_library()
    model = CharTransformer(options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    recent: list[float] = []
    for step in range(options.steps):
        letters, following = sample_batch(text, options.batch, options.context)
        logits = model(letters)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {sum(recent) / len(recent):.3f}")
            recent.clear()


if __name__ == "__main__":
    main()
