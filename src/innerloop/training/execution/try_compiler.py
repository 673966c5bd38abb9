"""Started as a process of its own: whether a C++ compiler makes a library that can be loaded and run here."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = """
#include <Python.h>
#include <cmath>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif
extern "C" double total(int n) {
    std::vector<float> x(n);
    double sum = 0;
    #pragma omp parallel for
    for (int i = 0; i < n; i++) x[i] = std::sqrt(float(i)) * std::sqrt(float(i));
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}
"""
TERMS = 1000


def flags() -> list[str]:
    """The ones that decide whether it works."""
    common = ["-shared", "-fPIC", "-O3", "-std=c++17"]
    if sys.platform == "darwin":
        return [*common, "-undefined", "dynamic_lookup"]
    native = "-mcpu=native" if platform.machine() in ("ppc64le", "s390x") else "-march=native"
    return [*common, native, "-fopenmp"]


def main(compiler: str) -> None:
    """Leaves with the compiler's first error, or a wrong sum; dies where the library kills its process."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "trial.cpp"), Path(folder, "trial.so")
        source.write_text(SOURCE, encoding="utf-8")
        headers = f"-I{sysconfig.get_paths()['include']}"
        command = [compiler, *flags(), headers, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            raise SystemExit((lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0])
        if not library.is_file():
            raise SystemExit("it made no library")
        total = ctypes.CDLL(str(library)).total
        total.restype, total.argtypes = ctypes.c_double, [ctypes.c_int]
        if abs(total(TERMS) - TERMS * (TERMS - 1) / 2) > 1:
            raise SystemExit("what it compiled computes a wrong sum")


if __name__ == "__main__":
    main(sys.argv[1])
