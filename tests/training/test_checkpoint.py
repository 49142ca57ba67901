"""C10, C12: checkpoint files are whole or not there, versioned, checked, and kept within a budget."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from app.data.checkpoints import FORMAT, CheckpointError, describe, find, place, thin_out
from app.data.ring import NEWEST, surplus
from app.data.scene import SceneError
from app.training import checkpoint
from app.training.autosave import Autosave, AutosaveConfig
from app.training.checkpoint import newest, read, write
from app.training.state import RunState


def some(iteration: int, rows: int = 5) -> RunState:
    rng = np.random.default_rng(iteration)
    return RunState({"rows.uids": np.arange(rows), "rows.means": rng.standard_normal((rows, 3), np.float32),
                     "rows.shN": np.zeros((rows, 0, 3), np.float32), "rows.mark.frozen": rng.random(rows) > 0.5,
                     "lineage.born": np.zeros(rows, np.int32)}, {"iteration": iteration, "rng": {"state": 2**127 - 1}})


def same(a: RunState, b: RunState) -> bool:
    return dict(a.meta) == dict(b.meta) and a.arrays.keys() == b.arrays.keys() and all(
        array.dtype == b.arrays[name].dtype and np.array_equal(array, b.arrays[name]) for name, array in a.arrays.items())


def test_what_is_written_is_read_back_to_the_bit(tmp_path):
    path = place(tmp_path / "データ ä é", 12)
    saved = write(path, some(12), {"seconds": 1.5, "loss": float("nan"), "curve": [1.0, float("inf")]}, reason="close")
    found = read(path)
    assert same(found.state, some(12)) and found.notices == () and found.path == path
    assert found.extra == {"seconds": 1.5, "loss": None, "curve": [1.0, None]}
    assert describe(path) == saved and (saved.iteration, saved.gaussians, saved.reason) == (12, 5, "close")
    assert saved.nbytes == path.stat().st_size
    found.state.arrays["rows.means"][0] = 1.0   # belongs to the reader


@pytest.mark.parametrize("seed", range(60))
def test_damage_anywhere_is_found_out(tmp_path, seed):
    path = place(tmp_path, 3)
    write(path, some(3, rows=200))
    data = bytearray(path.read_bytes())
    rng = random.Random(seed)
    if seed % 3 == 0:
        data = data[:rng.randrange(len(data))]
    elif seed % 3 == 1:
        data[rng.randrange(8, len(data))] ^= 1 << rng.randrange(8)
    else:
        data = bytearray(rng.randbytes(rng.randrange(4000)))
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=str(path)):
        read(path)


@pytest.mark.parametrize("meta, says", [
    ({}, "no checkpoint of a training run"), ({"format": FORMAT, "version": "999"}, "newer version"),
    ({"format": FORMAT, "version": "1"}, "damaged")])
def test_C12_foreign_and_future_files_are_refused_by_one_sentence(tmp_path, meta, says):
    path = place(tmp_path, 3)
    path.parent.mkdir(parents=True)
    path.write_bytes(save({"a": np.zeros(2, np.float32)}, meta))
    with pytest.raises(CheckpointError, match=says) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_the_newest_whole_one_is_taken_and_damaged_ones_are_named(tmp_path):
    for iteration in (1, 2, 3):
        write(place(tmp_path, iteration), some(iteration))
    place(tmp_path, 3).write_bytes(b"half")
    damaged = bytearray(place(tmp_path, 2).read_bytes())
    damaged[-1] ^= 1
    place(tmp_path, 2).write_bytes(damaged)
    (place(tmp_path, 4).with_name(".iteration_4.safetensors.99.tmp")).write_bytes(b"rest of a killed process")
    found = newest(tmp_path)
    assert found.state.iteration == 1 and len(found.notices) == 2
    assert [saved.iteration for saved in find(tmp_path)[0]] == [2, 1]   # a header alone does not tell of the arrays
    place(tmp_path, 1).unlink()
    os.utime(place(tmp_path, 2), (1e9, 1e9))
    with pytest.raises(CheckpointError) as caught:
        newest(tmp_path)
    assert re.fullmatch(r"all 2 checkpoints in \S+ are damaged \(newest: \S+iteration_3\S+ is no checkpoint or is damaged "
                        r".*\); choose another run", str(caught.value))
    place(tmp_path, 2).unlink()
    with pytest.raises(CheckpointError, match=f"^{place(tmp_path, 3)} is no checkpoint or is damaged"):
        newest(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        newest(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="nope does not exist; name a checkpoint or the folder of a run"):
        newest(tmp_path / "nope")


@pytest.mark.parametrize("name", some(3).arrays)
def test_an_array_that_was_taken_out_or_put_in_is_found_out(tmp_path, name):
    path = place(tmp_path, 3)
    write(path, some(3))
    with safe_open(path, framework="np") as file:
        meta, arrays = file.metadata(), {n: file.get_tensor(n) for n in file.keys()}   # noqa: SIM118
    path.write_bytes(save({n: array for n, array in arrays.items() if n != name}, meta))
    with pytest.raises(CheckpointError, match=f"^{path} is damaged: {name} is missing; choose another$"):
        read(path)
    path.write_bytes(save({**arrays, f"{name}.more": arrays[name].copy()}, meta))
    with pytest.raises(CheckpointError, match=f"^{path} is damaged: {name}.more was added; choose another$"):
        read(path)


def test_C10_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = place(tmp_path, 3)
    write(path, some(3))

    def full(stream: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    original = checkpoint.write_atomic
    monkeypatch.setattr(checkpoint, "write_atomic", lambda path, _: original(path, full))
    with pytest.raises(SceneError, match="free some space"):
        write(path, some(9))
    assert same(read(path).state, some(3)) and list(path.parent.iterdir()) == [path]


def test_a_run_keeps_within_its_budget_and_branches_do_not_push_each_other_out(tmp_path):
    for branch in ("main", "try"):
        for iteration in range(10, 210, 10):
            write(place(tmp_path, iteration, branch), some(iteration))
    each = place(tmp_path, 10).stat().st_size
    gone = thin_out(tmp_path, 10 * each)
    left = find(tmp_path)[0]
    assert len(gone) + len(left) == 40 and sum(saved.nbytes for saved in left) <= 10 * each
    for branch in ("main", "try"):
        iterations = sorted(saved.iteration for saved in left if saved.branch == branch)
        assert iterations[0] == 10 and iterations[-2:] == [190, 200] and len(iterations) >= 4


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 50)), max_size=40), st.integers(0, 800))
def test_what_is_dropped_is_as_little_as_the_budget_asks(steps, budget):
    iterations = np.cumsum([step for step, _ in steps]).tolist()
    entries = [(iteration, size) for iteration, (_, size) in zip(iterations, steps, strict=True)]
    dropped = surplus(entries, budget)
    kept = [entry for index, entry in enumerate(entries) if index not in dropped]
    assert kept[-NEWEST:] == entries[-NEWEST:]
    total = sum(size for _, size in kept)
    assert total <= budget or len(kept) <= NEWEST
    if dropped:
        assert total + max(entries[index][1] for index in dropped) > budget


def test_a_ring_thins_out_towards_the_past():
    kept: list[tuple[int, int]] = []
    for iteration in range(100, 30_100, 100):
        kept.append((iteration, 1))
        for index in reversed(surplus(kept, 12)):
            del kept[index]
    iterations = [iteration for iteration, _ in kept]
    gaps = np.diff(iterations)
    assert len(kept) == 12 and iterations[0] == 100 and iterations[-1] == 30_000
    assert gaps[-1] == 100 and (gaps[:4] >= gaps[-4:]).all() and gaps.max() < 15_000


def test_autosave_is_due_by_time_or_by_iteration_and_never_for_nothing():
    both = Autosave(AutosaveConfig(seconds=60, iterations=100), now=0.0)
    assert [both.due(t, i) for t, i in ((59, 99), (60, 99), (1, 100), (1, 250), (99, 0))] == [
        "", "time", "iterations", "iterations", ""]
    both.saved(61, 250)
    assert [both.due(t, i) for t, i in ((100, 299), (100, 300), (121, 251), (999, 250))] == ["", "iterations", "time", ""]
    for wrong in ({"seconds": -5.0}, {"iterations": -1}, {"gigabytes": 0.0}, {"seconds": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            AutosaveConfig(**wrong)
    never = Autosave(AutosaveConfig(seconds=0, iterations=0), now=0.0)
    assert never.due(1e9, 10**6) == ""


def test_json_in_the_header_is_plain(tmp_path):
    path = place(tmp_path, 1)
    write(path, some(1))
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    assert json.loads(header["__metadata__"]["head"])["gaussians"] == 5 and b"pickle" not in raw
    assert Path(path).suffix == ".safetensors"
