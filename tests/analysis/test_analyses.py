"""Every kind of analysis is a named tuple, has its words, and answers mistakes before torch is there."""

from __future__ import annotations

import subprocess
import sys

from innerloop.analysis import ANALYSES, Analysis, find
from innerloop.cli.analyses import WORDS
from innerloop.recipes.flat import FlatSettings


def test_every_kind_has_its_parts_and_its_words() -> None:
    assert set(WORDS) == set(ANALYSES)
    for kind in ANALYSES:
        analysis = find(kind)
        assert isinstance(analysis, Analysis)
        assert issubclass(analysis.settings, FlatSettings)
    assert [kind for kind in ANALYSES if find(kind).page] == ["landscape"]
    assert [kind for kind in ANALYSES if find(kind).figures] == ["convergence", "kernels"]


def test_neither_settings_nor_words_import_torch() -> None:
    code = (
        "import sys, innerloop.cli.analyze\n"
        "from innerloop.analysis import ANALYSES, find\n"
        "assert all(find(kind).settings.model_fields for kind in ANALYSES)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
