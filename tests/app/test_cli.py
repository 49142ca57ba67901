"""The command line: flags reach the commands, bad input gets one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import app.__main__ as cli
from app.commands import errors, parsing, train, window
from app.commands.parsing import UsageError
from app.config import TrainConfig
from app.data.scene import SceneError
from app.records.place import Place
from render.config import RasterConfig, setting

ROOT = Path(__file__).resolve().parents[2]


def process(*words: str, **kw: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *words], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, **kw
    )


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls that would have opened a window."""
    calls: list[dict[str, Any]] = []

    def launch(path: str | None, **kw: Any) -> int:
        calls.append({"path": path, **kw})
        return 0

    monkeypatch.setattr(window, "display_problem", lambda: None)
    monkeypatch.setattr(window, "require_recognised", lambda path: None)
    monkeypatch.setitem(sys.modules, "app.launch", types.SimpleNamespace(launch=launch))
    return calls


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[train.TrainArgs]:
    calls: list[train.TrainArgs] = []
    monkeypatch.setattr(train, "run", lambda args, again: calls.append(args) or 0)
    return calls


@dataclass(frozen=True)
class Inner:
    radius: float = setting(0.5, "How far it reaches.", unit="px", lo=0.0, hi=2.0)


@dataclass(frozen=True)
class Outer:
    count: int = setting(7, "How many.", lo=1, hi=1_000_000)
    inner: Inner = field(default_factory=Inner)


# ---------------------------------------------------------------- flags arrive
def test_without_arguments_the_demo_opens_and_plays(launched: list[dict[str, Any]]) -> None:
    assert cli.main([]) == 0
    assert Path(launched[0]["path"]) == window.demo_path()
    assert launched[0]["play"] is True
    assert launched[0]["config"] == TrainConfig(iterations=3000)


def test_the_demo_has_a_short_schedule_unless_a_flag_says_otherwise(launched: list[dict[str, Any]]) -> None:
    assert cli.main(["--iterations", "5000", "--densify.cap", "9000"]) == 0
    assert launched[0]["config"].iterations == 5000 and launched[0]["config"].densify.cap == 9000
    assert cli.main(["some/scene"]) == 0
    assert launched[1]["config"] == TrainConfig()


def test_a_path_opens_the_window_on_it_with_the_flags(launched: list[dict[str, Any]]) -> None:
    assert cli.main(["some/scene", "--backend", "reference", "--trace", "t.jsonl", "--paused", "--iterations", "700"]) == 0
    call = launched[0]
    assert (call["path"], call["backend"], call["trace"], call["play"]) == ("some/scene", "reference", "t.jsonl", False)
    assert call["config"].iterations == 700


def test_runs_in_the_window_are_recorded_where_the_flags_and_the_preferences_say(
    launched: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preferences = tmp_path / "window.json"
    monkeypatch.setattr("app.gui.preferences.default_path", lambda: preferences)
    out = tmp_path / "out ä"
    for words in ([], ["-m", str(out)], ["--no_record"]):
        assert cli.main(["some/scene", *words]) == 0
    assert [call["record"] for call in launched] == [Place(), Place(out), None] and out.is_dir()
    preferences.write_text('{"record": false}')
    assert cli.main(["some/scene"]) == 0 and cli.main(["some/scene", "-m", str(out)]) == 0
    assert [call["record"] for call in launched[3:]] == [None, Place(out)]


@pytest.mark.parametrize("words", [["--no_record", "-m", "out"], ["--no_record", "--tensorboard"], ["-m", "file"]])
def test_a_record_that_cannot_be_is_refused_before_a_window_opens(
    launched: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert cli.main(["some/scene", *words]) == 2
    told = capsys.readouterr().err
    assert launched == [] and len(told.splitlines()) == 1 and words[-2 if "-m" in words else -1].lstrip("-") in told


@pytest.mark.parametrize("words", [["train", "scene", "-m", "out"], ["."]])
def test_tensorboard_that_is_not_installed_is_said_before_any_work(
    launched: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [name for name in sys.modules if name.startswith("tensorboard.")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main([*words, "--tensorboard"]) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1 and "pip install 'splatscope[tensorboard]'" in told
    assert launched == [] and list(tmp_path.iterdir()) == []


def test_view_opens_without_training(launched: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "x.ply").write_bytes(b"ply")
    assert cli.main(["view", str(tmp_path / "x.ply")]) == 0
    assert launched[0]["play"] is False


@pytest.mark.parametrize(
    "spelling",
    [
        ["-s", "scene", "-m", "out"],
        ["-m", "out", "--source_path", "scene"],
        ["scene", "-m", "out"],
        ["-m", "out", "-s=scene"],
    ],
)
def test_the_scene_may_be_given_as_graphdeco_does(trained: list[train.TrainArgs], spelling: list[str]) -> None:
    assert (
        cli.main(
            [
                "train",
                *spelling,
                "--iterations",
                "2000",
                "--eval",
                "-r",
                "2",
                "--test_iterations",
                "500",
                "2000",
                "--save_iterations",
                "1000",
                "--sh_degree",
                "2",
                "--white_background",
            ]
        )
        == 0
    )
    args = trained[0]
    assert (args.source, args.model_path, args.iterations, args.eval, args.resolution) == (
        "scene",
        "out",
        2000,
        True,
        2,
    )
    assert args.test_iterations == (500, 2000) and args.save_iterations == (1000,)
    assert args.sh_degree == 2 and args.white_background


def test_every_setting_has_a_flag_and_keeps_its_default(trained: list[train.TrainArgs]) -> None:
    assert cli.main(["train", "a", "-m", "b", "--densify.absgrad", "--raster.alpha-gradient", "straight_through"]) == 0
    config = train.config_of(trained[0])
    assert config.densify.absgrad and config.raster.alpha_gradient == "straight_through"
    assert config.raster == RasterConfig(alpha_gradient="straight_through")
    assert config.means_lr == TrainConfig().means_lr and config.densify.grad_threshold == TrainConfig().densify.grad_threshold


def test_the_help_of_a_flag_is_the_metadata_of_its_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parsing.parse(Outer, ["--help"], prog="p", description="d")
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "How many. [1 to 1,000,000]" in printed and "How far it reaches. [0 to 2 px]" in printed
    assert parsing.parse(Outer, ["--inner.radius", "1.5"], prog="p", description="d") == Outer(inner=Inner(1.5))


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["view", "-h"], ["info", "--help"], ["doctor", "--help"],
                                   ["compare", "--help"]])
def test_help_names_the_program_and_ends_well(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "splatscope" in printed
    if len(words) == 1:
        assert all(command in printed for command in cli.COMMANDS)


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("splatscope 0.")


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bogus"], "--bogus"),
        (["train", "a", "-m", "b", "--itterations", "5"], "--itterations"),
        (["train", "a", "-m", "b", "--iterations", "many"], "many"),
        (["train", "a", "-m", "b", "--backend", "opencl"], "opencl"),
        (["train", "a", "-m", "b", "--raster.alpha_max", "2"], "alpha_max is 2"),
        (["train", "a", "-m", "b", "--lambda_dssim", "5"], "lambda_dssim is 5.0; it must be between 0 and 1"),
        (["train", "a", "-m", "b", "--lambda_dssim", "nan"], "lambda_dssim is nan"),
        (["train", "a", "-m", "b", "--densify.reset_opacity", "1"], "reset_opacity is 1.0"),
        (["train", "-m", "b"], "needs a scene"),
        (["train", "a"], "-m OUT"),
        (["train", "-m", "out", "-s"], "-s needs"),
        (["nowhere"], "nowhere does not exist"),
        (["trian", "scene", "-m", "out"], "trian is none of the commands " + ", ".join(c for c in cli.COMMANDS if c)),
        (["--densify.cap", "-5"], "densify.cap"),
        (["--threads", "-1"], "--threads is -1"),
        (["--threads", "999"], "--threads is 999; it must be a number of threads up to 256"),
        (["gradcheck", "a", "--threads", "257"], "--threads is 257"),
        (["train", "a", "-m", "b", "--autosave.seconds", "inf"], "--autosave.seconds is inf; it must be a finite number"),
        (["train", "a", "-m", "b", "--autosave.gigabytes", "1e300"], "--autosave.gigabytes is 1e+300; it must be greater"),
        (["train", "a", "-m", "b", "--micro_batch", "100000"], "--micro_batch is 100000; it must be at most 1,024"),
        (["train", "a", "-m", "b", "--seed", "9" * 40], "it must be at most 9,223,372,036,854,775,807"),
        (["--timeline_megabytes", "-1"], "--timeline_megabytes is -1; it must be between 0 and"),
        (["render", "a", "-o", "b", "--turntable", "--above", "inf"], "--above is inf; it must be a finite number"),
        (["render", "a", "-o", "b", "--turntable", "--radius", "nan"], "--radius is nan"),
        (["compare", "a", "--png", "x.xyz"], "--png x.xyz ends in .xyz; name a picture that ends in .png"),
        (["compare", "nowhere"], "nowhere does not exist"),
        (["train", "-m", "b", "--start_checkpoint", "nope"], "nope does not exist"),
        (["view"], "needs a Gaussian PLY"),
        (["view", "nowhere.ply"], "nowhere.ply does not exist"),
        (["info"], "needs a path"),
        (["info", "nowhere"], "nowhere"),
        (["doctor", "again"], "again"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.startswith("splatscope: ") and printed.err.count("\n") == 1
    assert "Traceback" not in printed.err and "│" not in printed.err


def test_a_scene_that_is_not_there_leaves_no_output_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["train", str(tmp_path / "nowhere"), "-m", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (SceneError("the scene is empty; add images"), 2, "the scene is empty; add images"),
        (UsageError("flag?"), 2, "flag?"),
        (PermissionError(13, "Permission denied", "out"), 2, "'out': permission denied"),
        (OSError(28, "No space left on device"), 2, "no space left"),
        (MemoryError(), 2, "memory of this machine is exhausted"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."), 2, "-r 2"),
        (RuntimeError("shapes differ"), 1, "internal error"),
        (KeyError("x"), 1, "--debug"),
    ],
)
def test_an_exception_becomes_its_exit_code_and_sentence(
    error: Exception, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert errors.guarded(fail, debug=False) == code
    printed = capsys.readouterr().err
    assert says in printed and printed.count("\n") == 1 and "Traceback" not in printed
    assert errors.guarded(fail, debug=True) == code
    assert "Traceback" in capsys.readouterr().err


def test_too_many_tile_intersections_are_one_sentence_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    from render.reference.binning import check_intersections

    def fail() -> int:
        check_intersections(1000, torch.ones(3, 2), RasterConfig(max_intersection_bytes=64))
        return 0

    assert errors.guarded(fail, debug=False) == 2
    said = capsys.readouterr().err
    assert "1000 tile intersections" in said and "--densify.cap" in said and "internal" not in said and said.count("\n") == 1


def test_a_torch_tensor_that_does_not_fit_is_no_internal_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert errors.guarded(lambda: len(torch.empty(2**58)), debug=False) == 2
    assert "memory of this machine is exhausted" in capsys.readouterr().err


def test_debug_is_understood_anywhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SPLATSCOPE_DEBUG", raising=False)
    assert cli.main(["info", "nowhere", "--debug"]) == 2
    assert os.environ.pop("SPLATSCOPE_DEBUG") == "1"
    assert "nowhere" in capsys.readouterr().err


# ---------------------------------------------------------------- as a process
def test_the_module_answers_as_the_script_does() -> None:
    result = process("--nonsense")
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("splatscope: ") and result.stderr.count("\n") == 1


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    code = (
        "import app.__main__ as cli, app.commands.doctor as d, sys, time\n"
        "def wait(args): print('ready', flush=True); time.sleep(60)\n"
        "d.run = wait\n"
        "sys.exit(cli.main(['doctor']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert said == "splatscope: stopped by Ctrl-C\n"


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import app.__main__ as cli, app.commands.doctor as d, sys\n"
        "def shout(args):\n    for _ in range(100000): print('x' * 80)\n    return 0\n"
        "d.run = shout\n"
        "sys.exit(cli.main(['doctor']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stderr
        child.stdout.readline()
        child.stdout.close()
        said = child.stderr.read()
        child.wait(timeout=30)
    assert child.returncode == 0 and said == ""


def test_G15_a_missing_display_is_one_sentence_naming_what_to_install() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux can lack a window server")
    bare = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    result = process(env=bare)
    assert result.returncode == 2, result.stderr
    assert "xvfb" in result.stderr and result.stderr.count("\n") == 1
