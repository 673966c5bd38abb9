"""The fixtures of the library's tests, loaded by path: both files are called ``conftest``."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location(
    "library_conftest", Path(__file__).parents[2] / "tests" / "conftest.py"
)
library = importlib.util.module_from_spec(spec)
spec.loader.exec_module(library)
globals().update({name: value for name, value in vars(library).items() if not name.startswith("__")})
