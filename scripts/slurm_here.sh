#!/usr/bin/env bash
# Runs the Slurm scripts of examples/slurm on a cluster of one machine: this one. For Debian, as root; not in CI.
#
#   bash scripts/slurm_here.sh .venv/bin      # where innerloop and torchrun are
#
# Installs slurm-wlm and munge, starts their daemons with a configuration in a temporary folder, submits every
# script with small settings, interrupts and kills on the way, and looks at what came of it. Ends what it started.
set -euo pipefail
bin=$(realpath -s "${1:-.venv/bin}")
root=$(cd "$(dirname "$0")/.." && pwd)
scripts=$root/examples/slurm
work=$(mktemp -d)
me=$(hostname -s)
daemons=()

say() { echo "slurm_here: $*"; }
fail() { say "FAILED: $*"; tail -n 40 "$work"/*.log >&2 2>/dev/null || true; exit 1; }
tidy() {
    scancel --user=root >/dev/null 2>&1 || true
    sleep 2
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait  # or they would still write what is removed next
    [ -n "${KEEP:-}" ] && say "kept $work" || rm -rf "$work"
}

install() {
    command -v slurmctld >/dev/null && command -v munged >/dev/null && return
    [ "$(id -u)" = 0 ] || { say "needs root to install slurm-wlm"; exit 2; }
    apt-get update -q >"$work/apt.log" 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends slurm-wlm munge >>"$work/apt.log" 2>&1 ||
        { tail "$work/apt.log" >&2; exit 1; }
}

configure() {
    cat >"$work/slurm.conf" <<CONF
ClusterName=here
SlurmctldHost=$me(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=30
MinJobAge=600
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=1
NodeName=$me NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(free -m | awk '/^Mem:/ {print $2}') State=UNKNOWN
PartitionName=all Nodes=$me Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
    echo "CgroupAutomount=no" >"$work/cgroup.conf"
    export SLURM_CONF=$work/slurm.conf
    mkdir -p "$work/state" "$work/spool"
}

start() {
    if ! munge -n >/dev/null 2>&1; then
        [ -s /etc/munge/munge.key ] || mungekey --create
        mkdir -p /run/munge && chown munge: /run/munge /etc/munge/munge.key
        # setpriv becomes munged, so that ending it ends munged
        setpriv --reuid=munge --regid=munge --init-groups munged --foreground >"$work/munged.log" 2>&1 & daemons+=($!)
    fi
    slurmctld -D >"$work/slurmctld.out" 2>&1 & daemons+=($!)
    slurmd -D -N "$me" >"$work/slurmd.out" 2>&1 & daemons+=($!)
    for _ in $(seq 60); do
        [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && return
        sleep 1
    done
    cat "$work"/slurm*.out "$work"/slurm*.log >&2 || true
    fail "the node did not come up"
}

submit() { sbatch --parsable --chdir="$work" "$@" | cut -d';' -f1; }
state() { scontrol show job "$1" -o 2>/dev/null | grep -o 'JobState=[A-Z_]*' | head -n 1 | cut -d= -f2; }
wait_for() { # what, seconds, test...
    local what=$1 seconds=$2; shift 2
    for _ in $(seq "$seconds"); do "$@" && return; sleep 1; done
    fail "$what did not happen within $seconds seconds"
}
ended() { case "$(state "$1")" in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) return 1 ;; esac; }
running() { [ "$(state "$1")" = RUNNING ]; }
pending() { [ "$(state "$1")" = PENDING ]; }
metrics() { cat "$1"/*/*/metrics.jsonl 2>/dev/null | wc -l; }
far() { [ "$(metrics "$1")" -ge "$2" ]; }
status_of() { grep -ho '"status": *"[a-z]*"' "$1"/*/*/manifest.json; }
parameters() { "$bin/python" -c '
import sys
from pathlib import Path
from safetensors.numpy import load_file
(run,) = {p.parent for p in Path(sys.argv[1]).glob("*/*/recipe.toml")}
files = sorted(run.glob("checkpoints/**/*.safetensors"), key=lambda p: p.stat().st_mtime)
import hashlib
tensors = load_file(files[-1])
print(hashlib.sha256(b"".join(k.encode() + tensors[k].tobytes() for k in sorted(tensors))).hexdigest())
' "$1"; }

SMALL=(sine-maml 'model.hidden=[8]' outer.batch=4 inner.steps=2 run.execution=loop run.compile=off run.dtype=float64
    run.threads=1 run.log_every=10 run.save_every=100 eval.every=1000 eval.episodes=20 eval.validation_episodes=4 eval.weights=last)
TWO_HERE=(--nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=1)  # two torchruns on one machine, as if on two
STEPS=${STEPS:-3000}

train() { # name: submits a run on two ranks into a folder of its own; prints the number of the job
    INNERLOOP_RUNS=$work/$1 submit "${TWO_HERE[@]}" --output="$work/$1.log" \
        "$scripts/train.sbatch" "${SMALL[@]}" "outer.steps=$STEPS"
}
finished() { # name, job: the run is whole, and as the undisturbed one
    wait_for "the end of $1" 600 ended "$2"
    [ "$(state "$2")" = COMPLETED ] || fail "$1 ended as $(state "$2")"
    [ "$(status_of "$work/$1/job-$2")" = '"status": "finished"' ] || fail "$1: $(status_of "$work/$1/job-$2")"
    grep -q '"ranks": 2' "$work/$1/job-$2"/*/*/manifest.json || fail "$1 was not trained on two ranks"
    local found; found=$(parameters "$work/$1/job-$2")
    whole=${whole:-$found}
    [ "$found" = "$whole" ] || fail "$1 has other parameters than the undisturbed run"
    say "$1: finished, parameters ${found:0:12}"
}

undisturbed() { finished undisturbed "$(train undisturbed)"; }

interrupted() { # what --signal does when the time is nearly up: a signal to the steps, not to the script
    local job; job=$(train interrupted)
    wait_for "the first steps" 120 far "$work/interrupted/job-$job" 20
    scancel --signal=TERM "$job"
    wait_for "the requeue" 120 pending_again "$job"
    [ "$(status_of "$work/interrupted/job-$job")" = '"status": "interrupted"' ] || fail "no checkpoint was saved"
    say "interrupted: a checkpoint, and the job is queued again"
    start_again "$job"
    finished interrupted "$job"
}

time_up() { # the same by Slurm's own clock, which counts minutes
    local job
    job=$(INNERLOOP_RUNS=$work/time_up submit "${TWO_HERE[@]}" --time=2 --signal=TERM@60 --output="$work/time_up.log" \
        "$scripts/train.sbatch" "${SMALL[@]}" outer.steps=1000000)
    wait_for "the end of the time" 240 pending_again "$job"
    [ "$(status_of "$work/time_up/job-$job")" = '"status": "interrupted"' ] || fail "no checkpoint was saved"
    scancel "$job"
    say "time_up: a checkpoint before the end of the time, and the job is queued again"
}
start_again() { # Slurm waits for minutes; within a second it takes the new start for the one that was ended
    sleep 3
    scontrol update "JobId=$1" StartTime=now
}
pending_again() { pending "$1" && scontrol show job "$1" -o | grep -q 'Restarts=1'; }

killed() {
    local job; job=$(train killed)
    wait_for "the first steps" 120 far "$work/killed/job-$job" 20
    local leader; leader=$(grep -ho '"pid": *[0-9]*' "$work/killed/job-$job"/*/*/manifest.json | grep -o '[0-9]*')
    local other; other=$(pgrep -f "innerloop train .*run.folder=$work/killed/" | while read -r pid; do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'RANK=1' && [ "$pid" != "$leader" ] && ! pgrep -P "$pid" -f innerloop >/dev/null && echo "$pid"
    done | head -n 1)
    [ -n "$other" ] || fail "rank 1 was not found"
    kill -9 "$other"
    finished killed "$job"
    grep -q "rank 1" "$work/killed.log" || fail "nobody named the rank that was killed"
}

cancelled() {
    local job; job=$(train cancelled)
    wait_for "the first steps" 120 far "$work/cancelled/job-$job" 20
    scancel "$job"
    wait_for "the end" 120 ended "$job"
    [ "$(state "$job")" = CANCELLED ] || fail "a cancelled job ended as $(state "$job")"
    [ "$(status_of "$work/cancelled/job-$job")" = '"status": "interrupted"' ] || fail "no checkpoint was saved"
    say "cancelled: a checkpoint, and the job does not come back"
}

sweep() { # name, steps: submits a sweep of four runs on two workers; prints the number of the job
    INNERLOOP_RUNS=$work/$1 submit --ntasks=2 --cpus-per-task=1 --output="$work/$1.log" \
        "$scripts/sweep.sbatch" "${SMALL[@]}" "outer.steps=$2" 'inner.lr=[0.003,0.01]' 'seed=[0,1]'
}
four_finished() { # name
    local done; done=$(find "$work/$1" -name manifest.json -exec grep -l '"status": "finished"' {} + | wc -l)
    [ "$done" = 4 ] || fail "$1 has $done finished runs, not 4"
    [ "$(find "$work/$1" -name manifest.json | wc -l)" = 4 ] || fail "$1 has begun runs twice"
}
swept() {
    local job; job=$(sweep swept 200)
    wait_for "the end of swept" 600 ended "$job"
    [ "$(state "$job")" = COMPLETED ] || fail "swept ended as $(state "$job")"
    four_finished swept
    say "swept: two workers shared four runs"
}
swept_interrupted() {
    local job; job=$(sweep swept_interrupted "$STEPS")
    wait_for "the first steps" 180 under_way "$work/swept_interrupted"
    scancel --batch --signal=USR1 "$job"
    wait_for "the requeue" 120 pending_again "$job"
    grep -q '"status": "interrupted"' "$work"/swept_interrupted/*/*/*/manifest.json || fail "no checkpoint was saved"
    say "swept_interrupted: checkpoints, and the job is queued again"
    start_again "$job"
    wait_for "the end of swept_interrupted" 600 ended "$job"
    [ "$(state "$job")" = COMPLETED ] || fail "swept_interrupted ended as $(state "$job")"
    four_finished swept_interrupted
    say "swept_interrupted: finished"
}
swept_killed() { # kill -9 of a worker: the other finishes its run
    local job; job=$(sweep swept_killed "$STEPS")
    wait_for "the first steps" 180 under_way "$work/swept_killed"
    kill -9 "$(pgrep -f "dask worker --scheduler-file $work/swept_killed/" | while read -r pid; do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'SLURM_PROCID=1' && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^[^ ]*python' && echo "$pid"
    done | head -n 1)"
    wait_for "the end of swept_killed" 600 ended "$job"
    four_finished swept_killed
    say "swept_killed: the other worker finished what the killed one had begun"
}
jobqueue() { # the leader here, its workers as Slurm jobs that it submits
    (cd "$work" && innerloop sweep "${SMALL[@]}" outer.steps=200 'inner.lr=[0.003,0.01]' 'seed=[0,1]' \
        "run.folder=$work/jobqueue" --cluster slurm --jobs 2) >"$work/jobqueue.log" 2>&1 || fail "the sweep failed"
    four_finished jobqueue
    say "jobqueue: two Slurm jobs shared four runs"
}
under_way() { [ "$(find "$1" -name metrics.jsonl -size +2k 2>/dev/null | wc -l)" -ge 2 ]; }

trap tidy EXIT
install
configure
start
say "$(slurmctld -V), node $me is idle"
export PATH=$bin:$PATH
for case in ${CASES:-undisturbed interrupted time_up killed cancelled swept swept_interrupted swept_killed jobqueue}; do "$case"; done
say "done"
