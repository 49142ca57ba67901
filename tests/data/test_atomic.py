"""C10: a file is the old one or the whole new one."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys

import pytest

from app.data.atomic import write_atomic
from app.data.gaussians import read_gaussians, write_gaussians
from app.data.scene import SceneError
from tests.data.test_gaussians import some

KILLED = """
import os, signal, sys
from app.data.atomic import write_atomic

def half(stream):
    stream.write(b"ply\\nhalf a file")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)

write_atomic(sys.argv[1], half)
"""


def test_it_writes_and_replaces(tmp_path):
    path = tmp_path / "new folder" / "a.bin"
    for content in (b"one", b"two"):
        write_atomic(path, lambda stream, content=content: stream.write(content))
        assert path.read_bytes() == content and list(path.parent.iterdir()) == [path]


def test_c10_kill_9_during_a_save_leaves_the_old_file(tmp_path):
    if sys.platform == "win32":
        pytest.skip("SIGKILL does not exist on Windows")
    path = tmp_path / "a.ply"
    write_gaussians(path, some(3))
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert len(read_gaussians(path).gaussians) == 3


def test_c10_a_full_disk_keeps_the_old_file_and_leaves_no_rest(tmp_path):
    path = tmp_path / "a.ply"
    write_gaussians(path, some(3))

    def full(stream):
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SceneError, match=r"a\.ply cannot be written \(No space left on device\).*free some space"):
        write_atomic(path, full)
    assert len(read_gaussians(path).gaussians) == 3 and list(tmp_path.iterdir()) == [path]


def test_c10_any_other_failure_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_atomic(path, lambda stream: 1 // 0)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SceneError, match="cannot be written"):
        write_atomic(tmp_path / "file" / "a.txt", lambda stream: None)
