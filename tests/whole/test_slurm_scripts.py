"""The scripts for Slurm, with stand-ins for Slurm's commands: what is started, and when a job queues again.

Slurm itself is not here; ``scripts/slurm_here.sh`` runs them on the real one.
"""

import json
import os
import shutil
import subprocess

import pytest

from support.places import ROOT

SCRIPTS = sorted((ROOT / "examples" / "slurm").glob("*.sbatch"))
BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None or os.name == "nt", reason="there is no bash")

SRUN = """#!/bin/sh
echo "srun $*" >> "$TOLD"
[ "$1" = dask ] && exec sleep 60
if [ -n "$MAKES" ]; then
  mkdir -p "$(dirname "$MAKES")"; printf '%s' "$MANIFEST" > "$MAKES"; touch "$(dirname "$MAKES")/recipe.toml"
fi
[ -n "$SIGNAL" ] && kill -TERM "$PPID"
exit "$CODE"
"""
DASK = """#!/bin/sh
echo "dask $*" >> "$TOLD"
[ "$1" = scheduler ] && echo "{}" > "$3"
exec sleep 60
"""
INNERLOOP = """#!/bin/sh
echo "innerloop $*" >> "$TOLD"
trap 'exit "$CODE"' TERM
until grep -q "^srun" "$TOLD"; do sleep 0.05; done
[ -n "$TIME_UP" ] && kill -USR1 "$PPID" && sleep 1
[ -n "$SIGNAL" ] && kill -TERM "$PPID" && sleep 1
exit "$CODE"
"""
SCONTROL = """#!/bin/sh
echo "scontrol $*" >> "$TOLD"
[ "$1" = show ] && printf 'first\\nsecond\\n'
exit 0
"""


@pytest.fixture
def job(tmp_path):
    """Runs a script as a job: its exit code, and what it told Slurm."""
    commands = {"srun": SRUN, "scontrol": SCONTROL, "dask": DASK, "innerloop": INNERLOOP}
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def submit(script, *arguments, code=0, status="finished", run=True, **variables):
        told = tmp_path / "told"
        told.write_text("")
        made = tmp_path / "runs" / "job-7" / "sine-maml" / "now-s0" / "manifest.json"
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "TOLD": str(told),
            "CODE": str(code),
            "MAKES": str(made) if run else "",
            "MANIFEST": json.dumps({"status": status}),
            "SIGNAL": "",
            "TIME_UP": "",
            "INNERLOOP_RUNS": str(tmp_path / "runs"),
            "SLURM_JOB_ID": "7",
            "SLURM_NTASKS": "2",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_CPUS_PER_TASK": "8",
            **variables,
        }
        command = [BASH, ROOT / "examples" / "slurm" / script, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, told.read_text().splitlines()

    return submit


SIGNALS = {"train.sbatch": "--signal=TERM@180", "sweep.sbatch": "--signal=B:USR1@180"}
"""Before the end of the time: to all ranks, or to the script, which tells the leader of the sweep."""


def requeued(told):
    return "scontrol requeue 7" in told


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_scripts_are_whole_and_shown(script):
    subprocess.run([BASH, "-n", script], check=True)
    lines = script.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    # sbatch reads its options up to the first command
    assert not any(line.startswith("#SBATCH") for line in lines[first:])
    options = {line.split()[1] for line in lines if line.startswith("#SBATCH")}
    assert {"--requeue", SIGNALS[script.name]} <= options
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert f'--8<-- "examples/slurm/{script.name}"' in page
    assert script.name in (ROOT / "scripts" / "slurm_here.sh").read_text(encoding="utf-8")


def test_a_job_trains_on_all_machines_and_meets_at_the_first(job, tmp_path):
    code, told = job("train.sbatch", "sine-maml", "outer.steps=10", RANKS_PER_NODE="4")
    assert code == 0
    (started,) = (line for line in told if line.startswith("srun"))
    assert started.endswith(f"-m innerloop train sine-maml outer.steps=10 run.folder={tmp_path}/runs/job-7")
    for option in ("--nnodes=2", "--nproc-per-node=4", "--max-restarts=3", "--rdzv-endpoint=first:20007"):
        assert option in started.split()
    assert not requeued(told)


def test_a_job_whose_time_is_up_queues_again_and_resumes(job, tmp_path):
    code, told = job("train.sbatch", "sine-maml", code=1, status="interrupted")
    assert (code, requeued(told)) == (1, True)
    code, told = job("train.sbatch", "sine-maml", status="finished", SLURM_RESTART_COUNT="1")
    assert code == 0
    run = tmp_path / "runs" / "job-7" / "sine-maml" / "now-s0"
    assert any(line.endswith(f"-m innerloop resume {run}") for line in told)
    assert not requeued(told)


@pytest.mark.parametrize(
    "options",
    [
        {"status": "failed", "code": 2},  # a mistake stays one
        {"run": False, "code": 2},
        {"status": "interrupted", "code": 1, "SIGNAL": "yes"},  # scancel
        {"status": "interrupted", "code": 1, "SLURM_RESTART_COUNT": "50"},
        {"status": "finished", "code": 0},
    ],
)
def test_no_other_end_brings_a_job_back(job, options):
    code, told = job("train.sbatch", "sine-maml", **options)
    assert (code, requeued(told)) == (options["code"], False)


def test_a_sweep_has_a_worker_for_every_task(job, tmp_path):
    given = ("sine-maml", "inner.lr=[0.1, 0.4]")
    code, told = job("sweep.sbatch", *given, run=False)
    assert code == 0
    runs = tmp_path / "runs"
    file = runs / "scheduler-7-0.json"
    assert sorted(told) == [
        f"dask scheduler --scheduler-file {file} --no-dashboard",
        f"innerloop sweep sine-maml inner.lr=[0.1, 0.4] run.folder={runs} --cluster {file}",
        f"srun dask worker --scheduler-file {file} --nthreads 1 --no-nanny --no-dashboard",
    ]
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ({"code": 130, "TIME_UP": "yes"}, True),
        ({"code": 2}, False),  # a mistake stays one
        ({"code": 130, "SIGNAL": "yes"}, False),  # scancel
        ({"code": 130, "TIME_UP": "yes", "SLURM_RESTART_COUNT": "50"}, False),
        ({"code": 0, "TIME_UP": "yes"}, False),  # it was finished in time
    ],
)
def test_a_sweep_whose_time_is_up_queues_again(job, options, again):
    code, told = job("sweep.sbatch", "sine-maml", "seed=[0,1]", run=False, **options)
    assert (code, requeued(told)) == (options["code"], again)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_a_job_without_a_recipe_says_how(job, script):
    code, told = job(script.name)
    assert (code, told) == (2, [])
