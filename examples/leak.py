"""Why does memory climb with every step? A loop that keeps the features of each batch "for
later". The summary names the line whose memory is kept:

    memprof run examples/leak.py
"""

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    torch.manual_seed(0)
    encode = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
    classify = nn.Linear(128, 10)
    optimizer = torch.optim.SGD([*encode.parameters(), *classify.parameters()], lr=0.1)
    features = []

    for _ in range(options.steps):
        images, labels = torch.randn(512, 64), torch.randint(10, (512,))
        feat = encode(images)
        loss = nn.functional.cross_entropy(classify(feat), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        features.append(feat)  # and with it the graph that made it

    kept = sum(tensor.nbytes for tensor in features)
    print(f"kept {len(features)} tensors, {kept / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
