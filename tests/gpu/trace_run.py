"""A short training run on the GPU under memprof.profile: leaves a TensorBoard directory, a
Perfetto trace and a recording in the given folder and prints the summary."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import memprof


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024))
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def main(folder):
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, batch_size=512)
    with memprof.profile(
        schedule=memprof.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=memprof.tensorboard_trace_handler(folder + "/tb", "gpu_0", use_gzip=True),
        record_shapes=True,
    ) as prof:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            prof.step()
    recording = prof.recording
    recording.export_chrome_trace(folder + "/trace.json.gz")
    recording.save(folder + "/run.memprof")
    print(recording.summary())
    for balance in recording.balance():
        print(balance)
    print(recording.coverage["sources"], recording.coverage["self_checks"])


if __name__ == "__main__":
    main(sys.argv[1])
