"""GPU activity on a real device, beside torch.profiler on the same steps."""

import collections

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

STEPS = 5


@pytest.fixture(scope="module")
def step():
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    inputs = torch.randn(512, 256)

    def one():
        loss = net(inputs.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        one()
    torch.cuda.synchronize()
    return one


def ours(step):
    import memprof

    with memprof.profile() as prof:
        for _ in range(STEPS):
            step()
            prof.step()
        torch.cuda.synchronize()
    return prof.recording


def theirs(step):
    from torch.profiler import DeviceType, ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    return collections.Counter(
        e.name()
        for e in prof.profiler.kineto_results.events()
        if e.device_type() == DeviceType.CUDA and "#" not in e.name()
    )


def device_work(recording):
    from memprof import _core

    rows = recording.activities
    kinds = [_core.activity_kinds[kind] for kind in rows["kind"]]
    return rows[[kind in ("kernel", "memcpy", "memset") for kind in kinds]]


def names(recording, rows):
    return collections.Counter(recording.strings[int(i)] for i in rows["name_id"])


def test_same_kernels_as_torch_profiler_before_and_after(step):
    before = theirs(step)
    recording = ours(step)
    assert recording.coverage["sources"]["gpu activity"]["on"]
    assert names(recording, device_work(recording)) == before == theirs(step)


def test_every_kernel_has_its_operator_and_time(step):
    recording = ours(step)
    rows = device_work(recording)
    assert (rows["operator_id"] > 0).all()
    assert (rows["end_ns"] > rows["start_ns"]).all()
    assert (rows["start_ns"] >= recording.start_ns).all()
    assert (rows["end_ns"] <= recording.stop_ns).all()
    operators = recording.operators[rows["operator_id"] - 1]
    assert (operators["start_ns"] <= rows["start_ns"]).all()


def test_sessions_repeat_the_same_counts(step):
    counts = {len(device_work(ours(step))) for _ in range(10)}
    assert len(counts) == 1


def test_gives_way_to_a_running_torch_profiler(step):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as outer:
        with pytest.warns(UserWarning, match=r"torch\.profiler"):
            recording = ours(step)
    source = recording.coverage["sources"]["gpu activity"]
    assert not source["on"] and "torch.profiler" in source["reason"]
    assert len(recording.allocations) > 0 and len(outer.events()) > 0


def test_light_mode_leaves_cupti_alone(step):
    import memprof

    with memprof.profile(operators=False) as prof:
        step()
    assert len(prof.recording.activities) == 0
