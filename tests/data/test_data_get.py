"""Fetching, adopting, checking: what is refused, and in which words."""

from __future__ import annotations

import hashlib
import http.server
import importlib
import json
import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from innerloop.core.errors import UserError
from innerloop.data import open_source
from innerloop.data.catalogue import CatalogueEntry, catalogue
from innerloop.data.get import adopt, check, get
from support.data_files import cifar_members, class_folders, small, write_tar

NAMES = ("apple", "bear")


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cut-down CIFAR-100 in the catalogue, and its archive."""
    path = write_tar(tmp_path / "cifar-100-python.tar.gz", cifar_members(2, 3, NAMES))
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    entry, classes = small("cifar-fs", NAMES, 12, content_sha256="unknown")
    known = adopt(entry, classes, [path], tmp_path / "first")["content_sha256"]
    entry = entry._replace(content_sha256=known)
    for module in ("get", "opening", "catalogue", "listing"):
        monkeypatch.setattr(f"innerloop.data.{module}.catalogue", lambda: {"cifar-fs": entry})
    monkeypatch.setattr("innerloop.data.get.class_list", lambda name: classes)
    return path


def test_get_check_and_tampering(cifar: Path, tmp_path: Path) -> None:
    first = get("cifar-fs", [cifar])
    assert first.stored.status == "repacked"  # the right content, not the published checksum
    assert first.stored.origin[0]["checksum"] == "differs from the published one"
    assert not first.already
    assert get("cifar-fs").already
    assert check("cifar-fs") == first.stored
    images = tmp_path / "data" / "cifar100" / "images.npy"
    blob = bytearray(images.read_bytes())
    blob[-1] ^= 1
    images.write_bytes(blob)
    with pytest.raises(UserError, match=r"has changed on disk .* --again"):
        check("cifar-fs")
    again = get("cifar-fs", [cifar], again=True)
    assert again.stored.content_sha256 == first.stored.content_sha256
    assert check("cifar-fs") == again.stored


def catalogue_row(name: str) -> CatalogueEntry:
    """The row that ``get`` sees now."""
    return importlib.import_module("innerloop.data.get").catalogue()[name]


def test_the_published_checksum(cifar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue_row("cifar-fs")
    md5 = hashlib.md5(cifar.read_bytes()).hexdigest()
    published = entry.archives[0]._replace(md5=md5)
    changed = entry._replace(archives=(published,))
    monkeypatch.setattr("innerloop.data.get.catalogue", lambda: {"cifar-fs": changed})
    stored = get("cifar-fs", [cifar]).stored
    assert stored.status == "as published"
    assert stored.origin[0]["checksum"] == "as torchvision states it"


def test_wrong_content_is_refused_in_one_sentence(cifar: Path, tmp_path: Path) -> None:
    members = cifar_members(2, 3, NAMES)
    table = pickle.loads(members["cifar-100-python/test"])
    table[b"data"] = table[b"data"].copy()
    table[b"data"][2, 5] ^= 1  # one bit of one pixel
    members["cifar-100-python/test"] = pickle.dumps(table)
    other = write_tar(tmp_path / "other.tar.gz", members)
    with pytest.raises(
        UserError, match=r"other.tar.gz was refused: its pictures are not cifar-fs's"
    ) as caught:
        get("cifar-fs", [other])
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "data").iterdir()) == []
    short = write_tar(tmp_path / "short.tar.gz", cifar_members(2, 2, NAMES))
    with pytest.raises(UserError, match="holds 8 pictures of 2 classes, and cifar-fs has 12 of 2"):
        get("cifar-fs", [short])


def test_a_dataset_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path / "data"))
    folder = class_folders(tmp_path / "pets", {"cat": 3, "dog": 4, "owl": 2})
    made = get("my-pets", [folder]).stored
    assert (made.classes, made.images, made.status) == (3, 9, "your own")
    shutil.rmtree(folder)
    source = open_source("my-pets")
    assert source.class_names == ("cat", "dog", "owl")
    assert check("my-pets") == made
    np.savez(tmp_path / "x.npz", images=np.zeros((4, 8, 8), np.uint8), labels=[0, 1, 0, 1])
    assert get("blanks", [tmp_path / "x.npz"]).stored.images == 4
    (tmp_path / "x.zip").write_bytes(b"")
    for name, paths in (("omniglt", [tmp_path / "x.zip"]), ("../x", [tmp_path / "x.npz"]), ("new", [])):
        with pytest.raises(UserError, match=r"no dataset is called"):
            get(name, paths)
    assert (
        json.loads((tmp_path / "data" / "my-pets" / "index.json").read_text())["origin"][0]["file"] == "pets"
    )


def test_downloads_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path))
    entry = catalogue()["omniglot"]
    closed = entry.archives[0]._replace(url="http://127.0.0.1:9/images_background.zip")
    monkeypatch.setattr(
        "innerloop.data.get.catalogue",
        lambda: {"omniglot": entry._replace(archives=(closed, entry.archives[1]))},
    )
    with pytest.raises(
        UserError, match=r"images_background.zip could not be downloaded .* --from images_backg"
    ) as caught:
        get("omniglot")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one archive; "/short" breaks off half way, everything else is missing."""

    blob = b""

    def do_GET(self) -> None:
        if self.path not in ("/whole", "/short"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.blob)))
        self.end_headers()
        self.wfile.write(self.blob if self.path == "/whole" else self.blob[: len(self.blob) // 2])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(cifar: Path) -> Iterator[str]:
    """Its address."""
    Server.blob = cifar.read_bytes()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_download(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalogue_row("cifar-fs")
    seen: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))

    for path, message in (
        ("/short", r"broke off|could not be downloaded"),
        ("/none", "answered 404 for none"),
    ):
        archive = entry.archives[0]._replace(url=server + path)
        changed = entry._replace(archives=(archive,))
        monkeypatch.setattr("innerloop.data.get.catalogue", lambda changed=changed: {"cifar-fs": changed})
        with pytest.raises(UserError, match=message) as caught:
            get("cifar-fs")
        assert "--from cifar-100-python.tar.gz" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list((tmp_path / "data").iterdir()) == []
    archive = entry.archives[0]._replace(url=f"{server}/whole")
    whole = entry._replace(archives=(archive,))
    monkeypatch.setattr("innerloop.data.get.catalogue", lambda: {"cifar-fs": whole})
    assert get("cifar-fs", progress=progress).stored.images == 12
    size = len(Server.blob)
    assert ("downloading whole", size, size) in seen
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["cifar100"]  # the archive is not kept
