"""What may kill a process is tried in another one first, once per machine and torch: compilers, bfloat16.

On some machines an operation ends the interpreter without a word: an instruction that the processor announces
and the hypervisor does not let through, a compiler whose output crashes. No ``try`` catches that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.child_processes import python_command
from innerloop.core.errors import UserError
from innerloop.core.paths import user_cache

PATIENCE = 600.0
"""Seconds that a trial may take: it needs a few, but the machine may be busy."""

_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU")
_CHOOSES_INSTRUCTIONS = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"),
    *("MKL_DEBUG_CPU_TYPE", "OPENBLAS_CORETYPE", "LD_PRELOAD", "GLIBC_TUNABLES"),
)

BFLOAT16_PROBE = Path(__file__).with_name("try_bfloat16.py")
COMPILER_PROBE = Path(__file__).with_name("try_compiler.py")
NATIVE_BUILD = Path(__file__).with_name("build_native.py")
NATIVE_SOURCES = Path(__file__).parents[2] / "nets" / "ops"


class Outcome(NamedTuple):
    """How a trial ended."""

    works: bool
    reason: str = ""
    lasting: bool = True


def try_out(script: Path, *arguments: str) -> Outcome:
    """Runs a script in a process of its own, or tells how it ended before on this machine.

    The script leaves with 0 if all is well, and otherwise with an error whose last line says what is wrong.
    """
    file, key = kept_in(script, *arguments)
    return _try_once(script, arguments, key, file)


def kept_in(script: Path, *arguments: str) -> tuple[Path | None, str]:
    """The file in which the outcome of a trial is kept, and the circumstances that it must be about."""
    key, folder = json.dumps(_circumstances(script, arguments)), _folder()
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    return (folder / name if folder else None), key


@functools.cache
def _try_once(script: Path, arguments: tuple[str, ...], key: str, file: Path | None) -> Outcome:
    outcome = _remembered(file, key)
    if outcome is None:
        outcome = _in_a_child([str(script), *arguments])
        if outcome.lasting:
            remember(file, key, outcome)
    return outcome


def remember(file: Path | None, key: str, outcome: Outcome) -> None:
    """Keeps an outcome for the next process; without a word where nothing can be written."""
    if file is None:
        return
    content = {"works": outcome.works, "reason": outcome.reason, "circumstances": json.loads(key)}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".tmp", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(content, stream, indent=1)
            os.replace(name, file)  # several processes may do this at once: each file is whole
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _remembered(file: Path | None, key: str) -> Outcome | None:
    """What an earlier process kept; None if there is nothing, or nothing that can be read."""
    if file is None or not file.is_file():  # opening a pipe would wait for ever
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        works, reason = content["works"], content["reason"]
        fits = content["circumstances"] == json.loads(key)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not fits or not isinstance(works, bool) or not isinstance(reason, str):
        return None
    return Outcome(works, reason)


def _in_a_child(arguments: list[str]) -> Outcome:
    try:
        done = subprocess.run(
            python_command(*arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, f"did not end within {PATIENCE:.0f} s", lasting=False)
    except OSError as error:
        return Outcome(False, f"could not be tried ({error})", lasting=False)
    if done.returncode == 0:
        return Outcome(True)
    ended = _deadly(done.returncode)
    if ended:
        return Outcome(False, f"ends the process with {ended}", lasting=ended not in _FROM_OUTSIDE)
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Outcome(False, f"fails ({last.strip()[:200]})", lasting=False)


def _deadly(code: int) -> str:
    """The name of what killed a process; empty if it left by itself.

    >>> _deadly(-4), _deadly(1), _deadly(0xC000001D)
    ('SIGILL', '', 'exception 0xC000001D')
    """
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exception 0x{code:X}" if code >= 1 << 31 else ""  # as Windows tells of crashes


def _circumstances(script: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Everything on which the outcome may depend."""
    return {
        "script": script.name,
        "script_sha256": hashlib.sha256(script.read_bytes()).hexdigest(),
        "arguments": list(arguments),
        "processor": _processor(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_version()} {platform.machine()}",
        "torch": _torch(),
        "variables": {name: os.environ[name] for name in _CHOOSES_INSTRUCTIONS if name in os.environ},
    }


@functools.cache
def _processor() -> dict[str, str]:
    """The first processor as the system describes it, with its flags."""
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "Features")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        fields = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in fields if name.strip() in wanted}
    return {"name": platform.processor() or platform.machine()}


@functools.cache
def _torch() -> str:
    """Which torch: its version and its place, without importing it."""
    try:
        version, place = metadata.version("torch"), util.find_spec("torch")
    except (metadata.PackageNotFoundError, ValueError, ImportError):
        return "none"
    return f"{version} in {place.origin if place else 'an unknown place'}"


def _folder() -> Path | None:
    """Where outcomes are kept; None for a user without a home. No data set's name begins with a dot."""
    try:
        return user_cache() / ".trials"
    except UserError:
        return None


def cpp_compiler() -> str | None:
    """The C++ compiler that ``torch.compile`` would call, or ``None``.

    Looks where torch looks: for ``$CXX`` if set, else for g++ (clang++ on a Mac) on the path.
    """
    usual = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX") or usual)


def compiler_works() -> Outcome:
    """Whether there is a C++ compiler whose output runs here; a process of its own finds out, once."""
    compiler = cpp_compiler()
    if compiler is None:
        return Outcome(False, "no C++ compiler was found", lasting=False)
    state = Path(compiler).resolve().stat()  # another compiler under the same name is tried anew
    outcome = try_out(COMPILER_PROBE, compiler, f"{state.st_size} {state.st_mtime_ns}")
    return outcome if outcome.works else outcome._replace(reason=f"the compiler {compiler} {outcome.reason}")


def native_library() -> Path | None:
    """Where native layers are when they are compiled for this machine and torch; None without a compiler."""
    compiler, folder = cpp_compiler(), _folder()
    if compiler is None or folder is None:
        return None
    key = kept_in(NATIVE_BUILD, *_native_circumstances(compiler))[1]
    return folder.with_name(".native") / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"


def _native_circumstances(compiler: str) -> tuple[str, ...]:
    state = Path(compiler).resolve().stat()
    sources = b"".join(file.read_bytes() for file in sorted(NATIVE_SOURCES.glob("*.cpp")))
    return compiler, f"{state.st_size} {state.st_mtime_ns}", hashlib.sha256(sources).hexdigest()


def native_works() -> Outcome:
    """Whether native layers can be had here; the first time a process of its own compiles and tests them."""
    library = native_library()
    if library is None:
        return Outcome(False, "no C++ compiler was found", lasting=False)
    compiler = cpp_compiler() or ""
    arguments = [compiler, _native_circumstances(compiler)[1], str(NATIVE_SOURCES), str(library)]
    outcome = try_out(NATIVE_BUILD, *arguments)
    if outcome.works and not library.is_file():  # somebody cleared the folder
        outcome = _in_a_child([str(NATIVE_BUILD), *arguments])
    return outcome if outcome.works else outcome._replace(reason=f"compiling native layers {outcome.reason}")


def bfloat16_works(device: str = "cpu") -> Outcome:
    """Whether products in bfloat16 can be had; on a processor, a process of its own finds out, once."""
    if not device.startswith("cpu"):
        return Outcome(True)  # other devices raise, and kill nobody
    outcome = try_out(BFLOAT16_PROBE)
    return outcome if outcome.works else outcome._replace(reason=f"a bfloat16 product {outcome.reason}")


def check_compiler(wanted: str) -> None:
    """Refuses ``compile="full"`` where there is no compiler, or none that works."""
    if wanted == "native" and not (outcome := native_works()).works:
        raise UserError(
            f"{{compile}}=native needs a C++ compiler that works, and here {outcome.reason}: install g++ "
            "(or name yours in $CXX), or set {compile}=off.",
            names=("compile",),
        )
    if wanted != "full":
        return
    if cpp_compiler() is None:
        raise UserError(
            "{compile}=full needs a C++ compiler: install g++ (or name yours in $CXX), "
            "or set {compile}=auto.",
            names=("compile",),
        )
    outcome = compiler_works()
    if not outcome.works:
        raise UserError(
            f"{{compile}}=full needs a C++ compiler that works, and here {outcome.reason}: "
            "name another in $CXX, or set {compile}=auto.",
            names=("compile",),
        )
