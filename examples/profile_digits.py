"""Which parts of a training step need memory? The loop of train_digits.py with
memprof.profile in it, as one would use torch.profiler. Then look at the files with

    tensorboard --logdir ./log
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from train_digits import DigitNet, load_data

import memprof


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", default="./log", help="TensorBoard's folder")
    options = parser.parse_args()

    torch.manual_seed(0)
    train, _ = load_data()
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = DigitNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    with memprof.profile(
        schedule=memprof.schedule(wait=1, warmup=1, active=3, repeat=2),
        on_trace_ready=memprof.tensorboard_trace_handler(options.log),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as prof:
        for step, (images, labels) in enumerate(loader):
            if step == 10:  # two cycles of 1 + 1 + 3 steps
                break
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            prof.step()

    print(prof.summary())


if __name__ == "__main__":
    main()
