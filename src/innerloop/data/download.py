"""Downloads: to a temporary file, with progress, in one sentence when they fail."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from innerloop._version import __version__
from innerloop.core.errors import UserError
from innerloop.data.layouts.layout import Progress

TIMEOUT: Final = 30.0  # seconds without a byte
_BLOCK: Final = 1 << 18


def download(url: str, target: Path, alternative: str, progress: Progress) -> None:
    """Fetch ``url`` into ``target``."""
    name = urlparse(url).path.rpartition("/")[2]
    request = urllib.request.Request(url, headers={"User-Agent": f"innerloop/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
            total = int(answer.headers.get("Content-Length") or 0)
            done = 0
            while block := answer.read(_BLOCK):
                done += file.write(block)
                progress(f"downloading {name}", done, total)
        if total and done != total:
            raise UserError(f"{name} broke off after {done:,} of {total:,} bytes; {alternative}.")
    except urllib.error.HTTPError as error:
        raise UserError(f"{urlparse(url).netloc} answered {error.code} for {name}; {alternative}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{name} could not be downloaded ({reason}); {alternative}.") from None
