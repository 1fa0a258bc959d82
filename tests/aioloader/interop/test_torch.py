"""Tests of torch's loader over ours, and of ours with a state: every sample once, also after a stop and resume."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aioloader import DataLoader, SampleError
from tests.aioloader.loader.samples import Numbers

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
]
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def bridge(torch):
    from aioloader.interop import torch as module

    return module


def run_example(name, *arguments, **variables):
    """Start a program of the examples."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def printed(process):
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return out


def numbers(batches):
    return [labels.tolist() for _, labels in batches]


# --- tensors ---


def test_tensors_share_the_batch_and_other_things_stay(torch, bridge):
    images = np.arange(6, dtype=np.uint8).reshape(2, 3)
    batch = {"images": images, "names": ["a", "b"], "when": np.array(["2024-01-01"], "datetime64[D]")}
    made = bridge.as_tensors(batch)
    assert made["images"].dtype == torch.uint8
    assert made["images"].data_ptr() == images.ctypes.data
    assert made["names"] == ["a", "b"]
    assert made["when"] is batch["when"]


def test_an_array_that_cannot_be_written_to_is_copied(torch, bridge):
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    made = bridge.as_tensors((frozen, frozen.astype(">f8")))
    assert all(torch.equal(each, torch.arange(3, dtype=torch.float64)) for each in made)


# --- the dataset ---


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_torchs_workers_share_an_epoch(torch, bridge, workers):
    batches = bridge.LoaderDataset(Numbers(50), 4, shuffle=True, seed=2, num_workers=0)
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=workers)
    epochs = []
    for epoch in (5, 6):
        batches.set_epoch(epoch)
        epochs.append(numbers(loader))
        assert sorted({number for each in epochs[-1] for number in each}) == list(range(50))
        # No sample twice except padding of the last batches.
        assert sum(map(len, epochs[-1])) < 50 + 4 * max(1, workers)
    assert epochs[0] != epochs[1]
    shards = [(worker, max(1, workers)) for worker in range(max(1, workers))]
    for epoch, found in zip((5, 6), epochs, strict=True):
        expected = []
        for shard in shards:
            with DataLoader(Numbers(50), 4, shuffle=True, seed=2, shard=shard, num_workers=0) as own:
                own.set_epoch(epoch)
                expected.append(numbers(own))
        # Torch takes batches from the workers alternately.
        assert found == [batch for together in zip(*expected, strict=True) for batch in together]


def test_persistent_workers_receive_the_epoch(torch, bridge):
    batches = bridge.LoaderDataset(Numbers(30), 5, shuffle=True)
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=2, persistent_workers=True)
    found = []
    for epoch in (3, 1, 3):
        batches.set_epoch(epoch)
        found.append(numbers(loader))
    assert found[0] == found[2] != found[1]
    found.append(numbers(loader))  # without it they continue with the next epoch
    assert found[3] not in found[:3]
    del loader


def test_a_shard_of_ones_own_is_refused(bridge):
    with pytest.raises(TypeError, match="determines its shard"):
        bridge.LoaderDataset(Numbers(10), 5, shard=(0, 2))
    with pytest.raises(ValueError, match="epoch"):
        bridge.LoaderDataset(Numbers(10), 5).set_epoch(-1)


def test_the_dataset_goes_on_from_its_state(bridge):
    options = {"shuffle": True, "seed": 9, "num_workers": 0}
    whole = bridge.LoaderDataset(Numbers(50), 4, **options)
    expected = numbers(whole) + numbers(whole)
    first = bridge.LoaderDataset(Numbers(50), 4, **options)
    got = []
    for _, labels in first:
        got.append(labels.tolist())
        if len(got) == 5:
            break
    state = json.loads(json.dumps(first.state_dict()))
    second = bridge.LoaderDataset(Numbers(50), 4, **options)
    second.load_state_dict(state)
    assert second.state_dict() == state
    assert got + numbers(second) + numbers(second) == expected


def test_worker_processes_take_a_state_up_in_its_own_epoch_only(torch, bridge):
    first = bridge.LoaderDataset(Numbers(30), 5, shuffle=True, num_workers=0)
    next(iter(first))
    second = bridge.LoaderDataset(Numbers(30), 5, shuffle=True)
    second.load_state_dict(first.state_dict())
    loader = torch.utils.data.DataLoader(second, batch_size=None, num_workers=1)
    found = []
    for epoch in range(2):
        second.set_epoch(epoch)
        found.append(numbers(loader))
    expected = bridge.LoaderDataset(Numbers(30), 5, shuffle=True, num_workers=0)
    assert found == [numbers(expected)[1:], numbers(expected)]


def test_worker_processes_share_a_drawn_seed(torch, bridge):
    batches = bridge.LoaderDataset(Numbers(30), 5, shuffle=True, seed=None)
    loader = torch.utils.data.DataLoader(batches, batch_size=None, num_workers=2)
    assert sorted(sum(numbers(loader), [])) == list(range(30))
    assert numbers(batches) != numbers(bridge.LoaderDataset(Numbers(30), 5, shuffle=True, seed=None))


# --- the loader with a state ---


@pytest.mark.parametrize("ahead", [0, 1, 3, 100])
def test_the_state_counts_what_was_handed_out_here(bridge, ahead):
    options = {"shuffle": True, "seed": 9, "num_workers": 0}
    expected = numbers([*DataLoader(Numbers(50), 4, **options)])
    for stop in range(len(expected) + 1):
        loader = DataLoader(Numbers(50), 4, **options)
        batches = bridge.StatefulLoader(loader, ahead=ahead)
        passing = iter(batches)
        got = [next(passing)[1].tolist() for _ in range(stop)]
        state = json.loads(json.dumps(batches.state_dict()))
        other = bridge.StatefulLoader(DataLoader(Numbers(50), 4, **options), ahead=ahead)
        other.load_state_dict(state)
        assert len(other) == len(expected) - stop
        assert got + numbers(other) == expected


def test_after_an_epoch_the_state_is_the_next_one(bridge):
    loader = DataLoader(Numbers(20), 5, shuffle=True, num_workers=0)
    batches = bridge.StatefulLoader(loader)
    first = numbers(batches)
    state = batches.state_dict()
    second = numbers(batches)
    assert first != second
    batches.load_state_dict(state)
    assert numbers(batches) == second
    batches.set_epoch(0)
    assert numbers(batches) == first


def test_what_was_made_before_an_error_comes_first(bridge):
    loader = DataLoader(Numbers(50, fail=(22,)), 4, num_workers=0)
    got = []
    with pytest.raises(SampleError):
        for _, labels in bridge.StatefulLoader(loader, ahead=3):
            got.append(labels.tolist())
    assert got == [list(range(start, start + 4)) for start in range(0, 20, 4)]


def test_a_pass_that_was_left_counts_no_more(bridge):
    batches = bridge.StatefulLoader(DataLoader(Numbers(20), 5, num_workers=0))
    old = iter(batches)
    next(old)
    new = iter(batches)
    state = batches.state_dict()
    next(old)
    assert batches.state_dict() == state
    next(new)
    assert batches.state_dict() != state


@pytest.mark.filterwarnings(
    "ignore:.*is deprecated, please do not call"
)  # torchdata's loader instead of torch's
def test_torchdata_resumes_the_dataset(torch, bridge):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    options = {"shuffle": True, "seed": 9}

    def loader():
        batches = bridge.LoaderDataset(Numbers(50), 4, **options)
        return stateful.StatefulDataLoader(batches, batch_size=None, num_workers=2)

    expected = numbers(loader())
    first = loader()
    passing = iter(first)
    got = [next(passing)[1].tolist() for _ in range(5)]
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    assert got + numbers(second) == expected


# --- the examples ---


@pytest.mark.slow
def test_steps_that_are_stopped_three_times_end_with_the_same_weights(torch, tmp_path):
    """An epoch has 126 steps: a run ends within one, with one, and a step before the end of all."""
    whole = run_example("torch_resume.py", _folder(tmp_path / "whole"), "--until", 2_000, "--workers", 2)
    folder = tmp_path / "parts"  # the program makes it
    for number, stop in enumerate([203, 756, 1_999, 2_000]):
        # Another number of workers each time, which must not matter.
        line = printed(run_example("torch_resume.py", folder, "--until", stop, "--workers", number % 3))
        assert line.startswith(f"step {stop},")
    assert line == printed(whole)
    assert "weights" in line


@pytest.mark.parametrize("name", ["torch_distributed.py", "torch_end_to_end.py"])
def test_a_program_of_several_ranks_says_how_to_start_it(torch, name, monkeypatch, capsys):
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "argv", [name, *(["photos", "a.pt"] if "end" in name else [])])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert f"start it with torchrun: torchrun --nproc-per-node 2 examples/{name}" in capsys.readouterr().err


def _folder(path):
    path.mkdir()
    return path


def test_two_ranks_see_every_sample_once(torch, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    common = {"WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    arguments = ("--samples", 101, "--epochs", 2, "--init", f"file://{tmp_path}/meeting")
    ranks = [run_example("torch_distributed.py", *arguments, RANK=str(rank), **common) for rank in range(2)]
    lines = [printed(process).strip() for process in ranks]
    rank, other = (line.partition(": ")[2] for line in lines)
    assert rank == other  # also the weights
    assert "all seen: True" in rank
