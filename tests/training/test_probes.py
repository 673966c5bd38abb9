"""What may kill the process is tried in another one: machines that fail are simulated, and always named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import innerloop
from innerloop.cli.main import main
from innerloop.core.child_processes import python_command, safe_path
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.learners import erm
from innerloop.learners.objectives import mixed_precision
from innerloop.nets import resnet12
from innerloop.training.execution import auto, probes
from innerloop.training.execution.probes import (
    Outcome,
    bfloat16_works,
    check_compiler,
    compiler_works,
    kept_in,
    remember,
    try_out,
)
from oracles.patience import PATIENCE

SUICIDE = "import os, signal; os.kill(os.getpid(), signal.SIGILL)\n"
SIGILL = "a bfloat16 product ends the process with SIGILL"
posix = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing else is remembered for this machine, and nothing is measured before."""
    here = bfloat16_works()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remember(
        *kept_in(probes.BFLOAT16_PROBE), here._replace(reason=here.reason.removeprefix("a bfloat16 product "))
    )
    mixed_precision.bfloat16_pays.cache_clear()
    yield
    mixed_precision.bfloat16_pays.cache_clear()


@pytest.fixture
def dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose bfloat16 products end the process: the child of the trial really dies by SIGILL."""
    script = tmp_path / "dies.py"
    script.write_text(SUICIDE)
    monkeypatch.setattr(probes, "BFLOAT16_PROBE", script)
    return script


@pytest.fixture
def known_to_die() -> None:
    """The same machine as later processes find it: the real trial's outcome is on the disk."""
    remember(*kept_in(probes.BFLOAT16_PROBE), Outcome(False, "ends the process with SIGILL"))


def objective() -> Any:
    return erm(resnet12(3, 32, 4, widths=(2, 2, 2, 2)), get_loss("cross-entropy"))


def script_of(tmp_path: Path, text: str, name: str = "trial.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


# ---- the trial itself ----


@posix
def test_a_child_that_dies_is_told_by_its_signal(dies: Path) -> None:
    assert bfloat16_works() == Outcome(False, SIGILL)
    assert bfloat16_works("cuda:0").works  # other devices raise, and kill nobody


COUNTED = "from pathlib import Path\nwith Path({!r}).open('a') as file: file.write('x')\n{}"


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
def test_once_per_machine(tmp_path: Path, end: str) -> None:
    """One child in this process, none in the next, another one when something changes."""
    count = tmp_path / "count"
    script = script_of(tmp_path, COUNTED.format(str(count), end))
    outcomes = []
    for _ in range(3):
        outcomes.append(try_out(script))
        assert count.read_text() == "x"
        probes._try_once.cache_clear()  # as in another process
    assert len(set(outcomes)) == 1
    try_out(script, "another")
    assert count.read_text() == "xx"
    script.write_text(script.read_text() + "\n")
    try_out(script)
    assert count.read_text() == "xxx"


def test_instruction_sets_chosen_by_hand_are_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = script_of(tmp_path, "")
    plain = kept_in(script)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert kept_in(script) != plain
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    monkeypatch.setattr(probes, "_processor", lambda: {"model name": "another"})
    assert kept_in(script) != plain


@pytest.mark.parametrize(
    "end", ["raise SystemExit('no header')", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_what_may_be_mended_is_tried_again(tmp_path: Path, end: str) -> None:
    """A failure with a message, and a child that somebody else killed, say nothing about the machine."""
    count = tmp_path / "count"
    script = script_of(tmp_path, COUNTED.format(str(count), end))
    outcome = try_out(script)
    assert not outcome.works
    assert outcome.reason in ("fails (no header)", "ends the process with SIGKILL")
    probes._try_once.cache_clear()
    assert try_out(script) == outcome
    assert count.read_text() == "xx"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"works": 1}', '{"works": true, "reason": ""}', "\0\1"])
def test_damaged_memories_are_no_memories(tmp_path: Path, content: str) -> None:
    script = script_of(tmp_path, "raise SystemExit('no')")
    file, key = kept_in(script)
    assert file is not None
    remember(file, key, Outcome(True))
    assert probes._remembered(file, key) == Outcome(True)
    file.write_text(content)
    assert not try_out(script).works


@posix
def test_a_pipe_in_place_of_a_memory_is_not_waited_for(tmp_path: Path) -> None:
    script = script_of(tmp_path, "")
    file, _ = kept_in(script)
    assert file is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)
    assert try_out(script).works
    assert file.is_file()


def test_nowhere_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(script_of(tmp_path, "", "file")))
    assert try_out(script_of(tmp_path, "")).works
    monkeypatch.setattr(probes, "user_cache", lambda: (_ for _ in ()).throw(UserError("no home")))
    assert kept_in(script_of(tmp_path, ""))[0] is None
    assert try_out(script_of(tmp_path, "")).works


def test_many_at_once(tmp_path: Path) -> None:
    script = script_of(tmp_path, "")
    file, key = kept_in(script)
    assert file is not None
    threads = [threading.Thread(target=remember, args=(file, key, Outcome(True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not list(file.parent.glob("*.tmp"))
    assert probes._remembered(file, key) == Outcome(True)


def test_a_trial_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.1)
    outcome = try_out(script_of(tmp_path, "import time\ntime.sleep(3600)"))
    assert not outcome.works
    assert not outcome.lasting
    assert "did not end" in outcome.reason


# ---- a machine without bfloat16 ----


@posix
def test_training_in_bfloat16_is_refused(
    dies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sine-maml", "run.bfloat16=true", "outer.steps=1"]) == 2
    error = capsys.readouterr().err
    assert SIGILL in error
    assert "set run.bfloat16=false" in error
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == 1
    assert not Path("runs").exists()
    with pytest.raises(UserError, match="ends the process with SIGILL"):
        mixed_precision.in_bfloat16(objective())
    with pytest.raises(UserError, match="cannot be used on this machine"):
        mixed_precision.at_precision(objective(), "bfloat16")


@pytest.mark.slow
def test_the_command_itself_is_refused(known_to_die: None, tmp_path: Path) -> None:
    """In a process of its own, which would have died."""
    home = str(Path(innerloop.__file__).parents[1])
    command = [sys.executable, "-P", "-m", "innerloop", "train", "sine-maml", "run.bfloat16=true"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": home},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert SIGILL in done.stderr


@pytest.mark.bfloat16
def test_a_run_of_another_machine_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluating takes no training step, so it needs no bfloat16."""
    monkeypatch.chdir(tmp_path)
    tiny = ["outer.steps=1", "eval.episodes=2", "eval.validation_episodes=1", "run.execution=loop"]
    assert main(["train", "sine-maml", *tiny, "model.hidden=[4]", "run.bfloat16=true", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    probes._try_once.cache_clear()  # as in another process, on another machine
    remember(*kept_in(probes.BFLOAT16_PROBE), Outcome(False, "ends the process with SIGILL"))
    assert not bfloat16_works().works
    assert main(["eval", run, "--json"]) == 0


@posix
def test_auto_never_chooses_it(dies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_precision, "_ratio", lambda run: pytest.fail("it was measured"))
    choice = mixed_precision.at_precision(objective(), "auto")
    assert choice.precision == "float32"
    assert SIGILL in choice.reason
    assert "left out" in choice.reason


@posix
def test_doctor_says_so(dies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["trials"]["bfloat16"] == {"works": False, "reason": SIGILL}
    assert any(tip.startswith(SIGILL) and "run.bfloat16=true is refused" in tip for tip in printed["tips"])
    assert main(["doctor"]) == 0
    assert f"does not work: {SIGILL}" in capsys.readouterr().out


@posix
def test_tests_skip_with_the_reason(dies: Path, request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(request.config.rootpath / "conftest.py"))
    request.node.add_marker(pytest.mark.bfloat16)
    with pytest.raises(pytest.skip.Exception, match="ends the process with SIGILL on this machine"):
        conftest.pytest_runtest_setup(request.node)


@pytest.mark.bfloat16
def test_where_the_trial_passes_the_product_of_the_report_does() -> None:
    assert bfloat16_works() == Outcome(True)
    assert torch.isfinite(torch.ones(64, 64).bfloat16() @ torch.ones(64, 64).bfloat16()).all()


# ---- a machine whose compiler does not work ----


COMPILERS = {
    "fails": ("echo 'x.cpp:1: error: Python.h is missing' >&2; exit 1", "Python.h is missing"),
    "makes nothing": ("exit 0", "it made no library"),
    "dies": ("kill -SEGV $$", "fails"),
}


@posix
@pytest.mark.parametrize("how", COMPILERS)
def test_a_compiler_that_does_not_work(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, words = COMPILERS[how]
    compiler = script_of(tmp_path, f"#!/bin/sh\n{body}\n", "c++")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    outcome = compiler_works()
    assert not outcome.works
    assert words in outcome.reason
    with pytest.raises(
        UserError, match=r"needs a C\+\+ compiler that works, and here the compiler .* set compile=auto"
    ):
        check_compiler("full")
    check_compiler("auto")
    how_compiled, remark = auto._choose_compile("auto", 10**9, 1.0, images=False)
    assert how_compiled == "trace"
    assert words in remark
    assert main(["doctor", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert any(words in tip and "run.compile=full is refused" in tip for tip in printed["tips"])


@posix
def test_a_compiler_whose_libraries_kill_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As code for instructions would that a hypervisor does not let through."""
    real = probes.cpp_compiler()
    if not compiler_works().works:
        pytest.skip("needs a compiler that works")
    source = '#include <csignal>\nextern "C" double total(int n) { raise(SIGILL); return n; }\n'
    bad = script_of(tmp_path, source, "bad.cpp")
    body = f"for last; do :; done\n{real} -shared -fPIC {bad} -o $last\n"
    compiler = script_of(tmp_path, f"#!/bin/sh\n{body}", "c++")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert "ends the process with SIGILL" in compiler_works().reason


@pytest.mark.compiler
def test_the_real_compiler_passes() -> None:
    assert compiler_works() == Outcome(True)


# ---- children import nothing from the current folder ----

HOSTILE = (
    "from pathlib import Path\nPath('escaped').write_text('')\nraise SystemExit('a file here was imported')\n"
)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with files named like modules."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("torch", "numpy", "json", "innerloop"):
        (folder / f"{name}.py").write_text(HOSTILE)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_a_sweep_imports_nothing_from_here(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["outer.steps=1", "eval.episodes=2", "eval.validation_episodes=1", "run.execution=loop"]
    code = main(["sweep", "sine-maml", "seed=[0]", *tiny, "model.hidden=[4]", "--jobs", "1", "--json"])
    assert code == 0, capsys.readouterr().err
    assert not (hostile / "escaped").exists()


@pytest.mark.slow
def test_trials_import_nothing_from_here(hostile: Path, tmp_path: Path) -> None:
    assert try_out(script_of(tmp_path, "import json, numpy")).works
    assert not (hostile / "escaped").exists()


def test_no_child_is_started_in_another_way() -> None:
    """Whoever starts a Python asks for the command, so that none forgets."""
    home = Path(innerloop.__file__).parent
    named = {path.name for path in home.rglob("*.py") if "sys.executable" in path.read_text(encoding="utf-8")}
    assert named == {"child_processes.py", "doctor.py", "manifest.py"}  # the last two only tell it
    assert python_command("-c", "pass")[1] == "-P"


def test_processes_of_libraries_are_safe_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    with safe_path():
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ["PYTHONSAFEPATH"] == ""
    monkeypatch.delenv("PYTHONSAFEPATH")
    with safe_path():
        pass
    assert "PYTHONSAFEPATH" not in os.environ
