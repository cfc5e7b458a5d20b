"""Owners in real training: gradients belong to the module whose parameter they are of, and
light mode says the same lines as full mode."""

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from memprof import _core
from memprof._collection import Collection


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return x + self.down(y)


class Net(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.blocks = nn.Sequential(Block(32), Block(32))
        self.head = nn.Linear(32, 7)
        self.checkpointed = checkpointed

    def forward(self, x):
        for block in self.blocks:
            if self.checkpointed:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x)


def train(operators, checkpointed=False):
    """The net, and the recording of six steps of which each keeps one output."""
    torch.manual_seed(0)
    net = Net(checkpointed)
    optimizer = torch.optim.AdamW(net.parameters())
    inputs = torch.randn(48, 32)
    kept = []
    collection = Collection(operators=operators)
    collection.start()
    try:
        collection.begin_window()
        for number in range(8):
            collection.mark_step(number)
            loss = net(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(loss.detach().clone())
        collection.end_step()
    except BaseException:
        collection.abandon()
        raise
    return net, collection.stop()


def path_of(recording, block):
    if block["module_id"] == 0:
        return None
    return recording.strings[int(recording.modules[block["module_id"] - 1]["path_id"])]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("operators", [False, True])
def test_gradients_belong_to_the_module_of_their_parameter(operators, checkpointed):
    net, recording = train(operators, checkpointed)
    alive = recording.live(recording.stop_ns, "cpu")
    for name, parameter in net.named_parameters():
        blocks = alive[alive["address"] == parameter.grad.data_ptr()]
        assert len(blocks) == 1, name
        path = path_of(recording, blocks[0])
        assert path is not None, name
        assert path.split(".", 1)[-1] == name.rsplit(".", 1)[0]
        assert _core.phases[blocks[0]["phase"]] == "backward"
    (balance,) = recording.balance()
    assert balance.balanced
    assert balance.notes == ()


def test_light_mode_says_what_full_mode_says():
    recordings = [train(operators)[1] for operators in (False, True)]
    for key in ("line", "module", "phase"):
        light, full = ([tuple(group) for group in r.by(key)] for r in recordings)
        assert light == full


def test_optimizer_state_and_the_kept_line_are_found():
    _, recording = train(False)
    phases = {group.name: group.bytes for group in recording.by("phase")}
    assert phases["optimizer"] >= 2 * sum(4 * p.numel() for p in Net(False).parameters())
    (row,) = recording.growth()
    assert row["bytes_per_step"] == 4
    frame = recording.user_frame(int(row["stack_id"]))
    assert (frame.file, frame.function) == (__file__, "train")
