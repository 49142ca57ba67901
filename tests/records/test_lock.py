"""Two processes never train into one run folder; the system's lock goes with the process that has it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.__main__ import main
from app.commands import window
from app.data.scene import SceneError
from app.records import lock

ROOT = Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "assets" / "demo")
TRY = "import sys\nfrom pathlib import Path\nfrom app.records.lock import take\nheld = take(Path(sys.argv[1]))\n"
HOLD = TRY + ("print('held', flush=True)\nsys.stdin.readline()\nheld.release()\nprint('released', flush=True)\n"
              "sys.stdin.readline()\n")


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen]:
    """A process that has the lock of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], cwd=ROOT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def sentence(folder: Path, pid: int) -> str:
    return (f"{folder} is in use by another Splatscope (process {pid}); close it or choose another folder with -m")


def locked(folder: Path) -> bool:
    """Whether any process has the lock of a folder: this one cannot tell, for it may take its own again."""
    tried = subprocess.run([sys.executable, "-c", TRY, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert tried.returncode == 0 or "in use by another" in tried.stderr
    return tried.returncode != 0


def test_a_second_process_is_refused_until_the_first_lets_go(tmp_path):
    with another(tmp_path) as process:
        for attempt in (lock.take, lock.require_free):
            with pytest.raises(SceneError) as caught:
                attempt(tmp_path)
            assert str(caught.value) == sentence(tmp_path, process.pid)
        print("", file=process.stdin, flush=True)
        assert process.stdout.readline() == "released\n"
        with lock.take(tmp_path):
            assert (tmp_path / lock.FILE).read_text() == f"{os.getpid()}\n"


def test_a_process_that_is_killed_leaves_no_lock(tmp_path):
    with another(tmp_path) as process:
        process.kill()
        process.wait()
        assert (tmp_path / lock.FILE).read_text().strip() == str(process.pid)
        lock.require_free(tmp_path)
        lock.take(tmp_path).release()


def test_one_process_may_take_a_lock_again_and_each_is_given_back_once(tmp_path):
    first, second = lock.take(tmp_path), lock.take(tmp_path / "." / "")
    first.release()
    first.release()
    assert locked(tmp_path)
    second.release()
    assert not locked(tmp_path)


def test_looking_whether_a_folder_is_free_makes_nothing(tmp_path):
    lock.require_free(tmp_path)
    lock.require_free(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_said_and_a_folder_that_cannot_be_written_refused(tmp_path, monkeypatch):
    def none(file: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock, "_lock", none)
    with lock.take(tmp_path) as held:
        assert held.problem.startswith(f"{tmp_path} is on a file system without locks (") and held.problem.endswith(".")
    with pytest.raises(SceneError, match="cannot be written .*choose another folder with -m"):
        lock.take(tmp_path / "nothing")


def test_a_run_that_another_process_trains_is_refused_with_2_and_nothing_is_written(tmp_path, capsys):
    run, quick = tmp_path / "run", ["--iterations", "2", "--long_side", "32", "--quiet"]
    assert main(["train", DEMO, "-m", str(run), *quick]) == 0
    assert list(run.glob(".lock")) and not list(run.glob("*.tmp"))
    with another(run) as process:
        capsys.readouterr()
        before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in run.rglob("*")}
        for words in ([DEMO, "-m", str(run), *quick], ["-m", str(run), "--resume", "--iterations", "4"]):
            assert main(["train", *words]) == 2
            assert capsys.readouterr().err == f"splatscope: {sentence(run, process.pid)}\n"
        assert {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in run.rglob("*")} == before
        assert main(["info", str(run)]) == main(["compare", str(run)]) == 0   # readers may


def test_a_window_on_a_run_in_use_is_refused_before_it_opens(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    assert main(["train", DEMO, "-m", str(run), "--iterations", "1", "--long_side", "32", "--quiet"]) == 0
    monkeypatch.setattr(window, "require_display", lambda: None)
    monkeypatch.setattr("app.launch.launch", lambda *args, **named: pytest.fail("a window opened"))
    newest = next(run.glob("checkpoints/main/*"))
    with another(run) as process:
        capsys.readouterr()
        for words in ([str(run)], [str(newest)], ["-m", str(run), "--resume"], [DEMO, "-m", str(run)]):
            assert main(words) == 2
            assert capsys.readouterr().err == f"splatscope: {sentence(run, process.pid)}\n"
