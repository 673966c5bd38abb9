"""Peers that want other packages than we do: each in an environment of its own in the user's cache."""

import atexit
import functools
import importlib
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from innerloop.core.errors import UserError
from innerloop.core.paths import user_cache

REQUIRED = {
    "jax": ["jax>=0.7", "numpy"],
    "neural-tangents": ["neural-tangents==0.6.5", "jax==0.4.30", "jaxlib==0.4.30", "numpy<2", "scipy<1.13"],
    "openvino": ["openvino>=2025", "numpy", "pillow"],
}
"""What each needs. neural-tangents works with the JAX of its last release, and no later one."""


class Environment(NamedTuple):
    """Who runs a side, and what its process is told by variables."""

    python: str
    variables: dict[str, str]


def jax_devices(found: Environment, devices: int, dtype: str = "float32") -> Environment:
    """JAX's environment, with so many host devices and this precision."""
    count = f"--xla_force_host_platform_device_count={devices}"
    flags = {"XLA_FLAGS": count, "JAX_ENABLE_X64": str(int(dtype == "float64"))}
    return found._replace(variables={**found.variables, **flags})


def find(name: str, say: Callable[[str], None]) -> Environment | None:
    """The environment of a peer; without it, a word that it is left out."""
    python = _place(name) / "bin" / "python"
    if (_place(name) / "installed").is_file() and python.is_file():
        return Environment(str(python), {"PYTHONPATH": _our_packages()})
    say(f"{name} is not installed and left out: --install-peers brings it, in an environment of its own")
    return None


def install(name: str, say: Callable[[str], None]) -> None:
    """Makes the environment of a peer anew."""
    place, required = _place(name), REQUIRED[name]
    say(f"installing {', '.join(required)} into {place}")
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *required], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise UserError(f"{name} could not be installed ({last}): without --install-peers it is left out.")
    (place / "installed").write_text("\n".join(required) + "\n", encoding="utf-8")


def _place(name: str) -> Path:
    version = ".".join(map(str, sys.version_info[:2]))
    return user_cache() / ".peers" / f"{name}-{version}"


@functools.cache
def _our_packages() -> str:
    """A folder in which only our packages lie: a peer's interpreter sees its own libraries beside them."""
    folder = tempfile.mkdtemp(prefix="innerloop-peers-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("innerloop", "innerloop_studies"):
        package = importlib.import_module(name).__file__
        assert package is not None
        Path(folder, name).symlink_to(Path(package).parent, target_is_directory=True)
    return folder
