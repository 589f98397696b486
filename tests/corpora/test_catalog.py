"""The catalog: corpora are located, downloaded, verified and written whole."""

import gzip
import hashlib
import io
import re
import socket
import sys
import tarfile
import threading
import types
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

import regard.corpora.builtin
from regard.corpora import catalog
from regard.corpora.catalog import SELECTIONS, Entry, File, Form, Output
from regard.errors import DataError, FolderError, RunError

ENGLISH, FRENCH = gzip.compress(b"cat\ndog\n", mtime=0), gzip.compress(b"chat\nchien\n", mtime=0)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """No test sees the user's corpora or cache."""
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def site():
    """A web server on this machine that offers `files` and lists the requested paths in `requests`."""

    class Site(BaseHTTPRequestHandler):
        files, requests, promised = {}, [], {}

        def do_GET(self):
            Site.requests.append(self.path)
            data = Site.files.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(Site.promised.get(self.path, len(data or b""))))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Site.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Site
    server.shutdown()
    thread.join()
    server.server_close()


def offer(monkeypatch, *forms):
    """Make `tiny` the only corpus there is."""
    entry = Entry(name="tiny", description="", languages=("en", "fr"), size="", licence="", source="", forms=forms)
    monkeypatch.setattr(catalog, "ENTRIES", (entry,))


def tiny(url="", english=ENGLISH, french=FRENCH):
    return Form(
        "tiny_folder",
        (
            File("train.en.gz", sha256(english), f"{url}/train.en.gz" if url else None),
            File("train.fr.gz", sha256(french), f"{url}/train.fr.gz" if url else None),
        ),
        (Output("train.en", ("train.en.gz",)), Output("train.fr", ("train.fr.gz",))),
    )


def keep(folder, **files):
    folder = folder / "tiny_folder"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / f"train.{name}.gz").write_bytes(data)
    return folder


@pytest.fixture
def local(tmp_path, monkeypatch):
    """`tiny` in the user's folder of corpora."""
    offer(monkeypatch, tiny())
    keep(tmp_path / "data", en=ENGLISH, fr=FRENCH)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "tiny_folder"


# The table


def test_the_promised_corpora_have_a_name():
    promised = {"builtin", "multi30k", "iwslt14", "wmt14", "wmt14-enfr", "tatoeba-ende", "tatoeba-enfr", "wikitext2"}
    assert promised | {"tinyshakespeare", "hansards-enfr", "war-and-peace"} <= {entry.name for entry in catalog.ENTRIES}


def test_no_two_corpora_share_a_name():
    names = [entry.name for entry in catalog.ENTRIES]
    assert len(set(names)) == len(names)


def test_an_unknown_name_suggests_a_known_one():
    with pytest.raises(DataError, match=r"There is no corpus multi30\. Did you mean multi30k\?"):
        catalog.find("multi30")


@pytest.mark.parametrize("name", ["../multi30k", "/etc", "multi30k/../x", ""])
def test_a_path_is_not_a_name(name, tmp_path):
    with pytest.raises(DataError, match="There is no corpus"):
        catalog.get(name, tmp_path / "out")


FORMS = [form for entry in catalog.ENTRIES for form in entry.forms]


def test_every_name_in_the_table_is_a_plain_name():
    names = [form.folder for form in FORMS]
    names += [item.name for form in FORMS for item in (*form.files, *form.outputs)]
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name)] == []


def test_every_checksum_in_the_table_is_a_sha256():
    checksums = [file.sha256 for form in FORMS for file in form.files if file.sha256]
    assert [checksum for checksum in checksums if not re.fullmatch("[0-9a-f]{64}", checksum)] == []


def test_every_address_in_the_table_is_https():
    assert [file.url for form in FORMS for file in form.files if file.url and not file.url.startswith("https://")] == []


def test_every_part_in_the_table_is_of_a_file_of_its_form():
    for form in FORMS:
        parts = {part.partition("/")[0] for output in form.outputs for part in output.parts}
        assert parts == {file.name for file in form.files}


def test_every_selection_of_lines_in_the_table_exists():
    assert {output.lines for form in FORMS for output in form.outputs} == set(SELECTIONS)


def test_every_corpus_says_its_licence():
    assert all(entry.licence for entry in catalog.ENTRIES)


def test_files_without_a_known_checksum_are_shown_as_not_verified():
    assert {row["name"]: row["checksum"] for row in catalog.table()}["wmt14"] == "not verified"


def test_the_real_corpora_have_the_checksums_of_the_table(corpora, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_DATA", str(corpora))
    local = [entry.name for entry in catalog.ENTRIES if catalog.locate(entry) == "local"]
    for name in local:
        assert catalog.get(name, tmp_path / name)
    assert "multi30k" in local


# Where it lies


def test_the_local_folder_comes_before_the_cache(local, tmp_path):
    keep(tmp_path / "cache" / "corpora", en=b"", fr=b"")
    assert catalog.locate(catalog.find("tiny")) == "local"


def test_the_cache_comes_before_the_network(tmp_path, monkeypatch):
    offer(monkeypatch, tiny("http://127.0.0.1:1"))
    keep(tmp_path / "cache" / "corpora", en=ENGLISH, fr=FRENCH)
    assert catalog.locate(catalog.find("tiny")) == "cached"


@pytest.mark.parametrize(("url", "place"), [("http://127.0.0.1:1", "download"), ("", "by hand")])
def test_a_corpus_that_is_not_stored_is_downloaded_or_put_there_by_hand(monkeypatch, url, place):
    offer(monkeypatch, tiny(url))
    assert catalog.locate(catalog.find("tiny")) == place


def test_a_missing_local_folder_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"REGARD_DATA \(.*nowhere\) is not a folder"):
        catalog.locate(catalog.find("multi30k"))


def test_an_incomplete_corpus_is_refused(local):
    (local / "train.fr.gz").unlink()
    with pytest.raises(DataError, match=r"tiny is not here .* Put train\.fr\.gz into .*data/tiny_folder"):
        catalog.get("tiny", local / "out")


def test_another_form_is_used_where_the_first_is_not_here(tmp_path, monkeypatch):
    plain = Form("tiny_folder", (File("both.tsv"),), (Output("train.en", ("both.tsv",)),))
    offer(monkeypatch, tiny(), plain)
    keep(tmp_path / "data").joinpath("both.tsv").write_bytes(b"cat\n")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    assert [path.name for path in catalog.get("tiny", tmp_path / "out")] == ["train.en"]


# Writing


def test_texts_are_written_uncompressed(local, tmp_path):
    paths = catalog.get("tiny", tmp_path / "out")
    assert [(path.name, path.read_text()) for path in paths] == [
        ("train.en", "cat\ndog\n"),
        ("train.fr", "chat\nchien\n"),
    ]


def test_nothing_else_is_left_beside_the_texts(local, tmp_path):
    catalog.get("tiny", tmp_path / "deep" / "out")
    assert sorted(path.name for path in tmp_path.rglob("deep/**/*")) == ["out", "train.en", "train.fr"]


def test_nothing_is_written_over_without_force(local, tmp_path):
    catalog.get("tiny", tmp_path / "out")
    with pytest.raises(FolderError, match=r"train\.en already exists: choose another name"):
        catalog.get("tiny", tmp_path / "out")


def test_force_writes_over_its_own_files_and_leaves_the_others(local, tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("train.en", "mine.txt"):
        (tmp_path / "out" / name).write_text("old")
    catalog.get("tiny", tmp_path / "out", force=True)
    assert sorted((path.name, path.read_text()[:4]) for path in (tmp_path / "out").iterdir()) == [
        ("mine.txt", "old"),
        ("train.en", "cat\n"),
        ("train.fr", "chat"),
    ]


def test_a_file_is_not_a_folder_to_write_into(local, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FolderError, match="out is not a folder"):
        catalog.get("tiny", tmp_path / "out", force=True)


def test_a_wrong_checksum_names_the_file_and_both_checksums(local, tmp_path):
    (local / "train.fr.gz").write_bytes(b"other")
    with pytest.raises(DataError, match=rf"train\.fr\.gz .* {sha256(b'other')}, expected {sha256(FRENCH)}"):
        catalog.get("tiny", tmp_path / "out")


@pytest.mark.parametrize("folder_exists", [False, True])
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, folder_exists):
    longer = gzip.compress(b"chat\nchien\nours\n", mtime=0)
    offer(monkeypatch, tiny(french=longer))
    keep(tmp_path / "data", en=ENGLISH, fr=longer)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    if folder_exists:
        (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match=r"tiny is damaged: train\.en has 2 lines and train\.fr 3"):
        catalog.get("tiny", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out"][: 1 + folder_exists]


def test_a_full_disk_is_reported(local, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunError, match="out could not be written: the disk is full"):
        catalog.get("tiny", tmp_path / "out")


# Downloads


def test_a_download_is_kept_in_the_cache(site, tmp_path, monkeypatch):
    site.files.update({"/train.en.gz": ENGLISH, "/train.fr.gz": FRENCH})
    offer(monkeypatch, tiny(site.url))
    catalog.get("tiny", tmp_path / "one")
    catalog.get("tiny", tmp_path / "two")
    assert site.requests == ["/train.en.gz", "/train.fr.gz"]


def test_only_what_is_missing_is_downloaded(site, tmp_path, monkeypatch):
    site.files["/train.fr.gz"] = FRENCH
    offer(monkeypatch, tiny(site.url))
    keep(tmp_path / "cache" / "corpora", en=ENGLISH)
    catalog.get("tiny", tmp_path / "out")
    assert site.requests == ["/train.fr.gz"]


def test_a_download_reports_its_progress(site, tmp_path, monkeypatch):
    site.files.update({"/train.en.gz": ENGLISH, "/train.fr.gz": FRENCH})
    offer(monkeypatch, tiny(site.url))
    events = []
    catalog.get("tiny", tmp_path / "out", progress=lambda *event: events.append(event))
    assert events[0] == ("train.en.gz", len(ENGLISH), len(ENGLISH))


def cached(tmp_path):
    return [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_download_with_a_wrong_checksum_is_not_kept(site, tmp_path, monkeypatch):
    site.files["/train.en.gz"] = b"other"
    offer(monkeypatch, tiny(site.url))
    with pytest.raises(DataError, match=rf"/train\.en\.gz .* {sha256(b'other')}, expected {sha256(ENGLISH)}"):
        catalog.get("tiny", tmp_path / "out")
    assert cached(tmp_path) == []


def test_a_download_that_breaks_off_is_not_kept(site, tmp_path, monkeypatch):
    site.files["/train.en.gz"] = ENGLISH[:10]
    site.promised["/train.en.gz"] = len(ENGLISH)
    offer(monkeypatch, tiny(site.url))
    with pytest.raises(DataError, match="the connection ended after 10 of"):
        catalog.get("tiny", tmp_path / "out")
    assert cached(tmp_path) == []


def test_a_file_not_found_on_the_server_says_which_files_to_put_where(site, tmp_path, monkeypatch):
    offer(monkeypatch, tiny(site.url))
    with pytest.raises(
        DataError, match=r"Not Found.*Put train\.en\.gz, train\.fr\.gz into .*cache/corpora/tiny_folder"
    ):
        catalog.get("tiny", tmp_path / "out")


def test_without_a_network_the_error_says_which_files_to_put_where(tmp_path, monkeypatch):
    with socket.socket() as closed:  # bound and not listening: refused at once
        closed.bind(("127.0.0.1", 0))
        offer(monkeypatch, tiny(f"http://127.0.0.1:{closed.getsockname()[1]}"))
        with pytest.raises(DataError, match=r"refused.*Put train\.en\.gz, train\.fr\.gz into"):
            catalog.get("tiny", tmp_path / "out")


def test_an_existing_text_is_refused_before_anything_is_downloaded(site, tmp_path, monkeypatch):
    offer(monkeypatch, tiny(site.url))
    (tmp_path / "train.en").write_text("mine")
    with pytest.raises(FolderError, match="already exists"):
        catalog.get("tiny", tmp_path)
    assert site.requests == []


# Archives


def tar(members, mode="w:gz"):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def archived(monkeypatch, tmp_path, data, *members, lines=""):
    parts = tuple(f"archive/{member}" for member in members)
    offer(monkeypatch, Form("tiny_folder", (File("archive"),), (Output("train.en", parts, lines),)))
    keep(tmp_path / "data").joinpath("archive").write_bytes(data)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    return catalog.get("tiny", tmp_path / "out")[0].read_bytes


def test_members_of_an_archive_are_joined_in_order(monkeypatch, tmp_path):
    data = tar({"./b.en": b"b\n", "a.en.gz": gzip.compress(b"a\n")})
    assert archived(monkeypatch, tmp_path, data, "a.en.gz", "b.en")() == b"a\nb\n"


def test_a_column_of_a_zipped_tsv_file_is_written(monkeypatch, tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("deu.txt", "Hi.\tHallo!\tCC BY\nRun!\tLauf!\n")
    read = archived(monkeypatch, tmp_path, data.getvalue(), "deu.txt", lines="second_column")
    assert read() == b"Hallo!\nLauf!\n"


def test_sentences_of_an_sgml_test_set_are_extracted(monkeypatch, tmp_path):
    data = tar({"test.sgm": b'<doc>\n<seg id="1"> Hi &amp; go. </seg>\n<seg id="2">Run!</seg>\n</doc>\n'})
    read = archived(monkeypatch, tmp_path, data, "test.sgm", lines="segments")
    assert read() == b"Hi &amp; go.\nRun!\n"


def test_talks_are_written_without_metadata():
    lines = [b"<url>x</url>\n", b"<title>T</title>\n", b" Hello. \n", b"</doc>\n"]
    assert list(SELECTIONS["talks_to_train"](lines)) == [b"T\n", b"Hello.\n"]


def test_every_23rd_sentence_of_talks_is_for_validation():
    lines = [b"%d\n" % number for number in range(1, 50)]
    train, valid = (list(SELECTIONS[name](lines)) for name in ("talks_to_train", "talks_to_validate"))
    assert (valid, sorted(train + valid, key=int)) == ([b"23\n", b"46\n"], lines)


def test_a_missing_member_is_named(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"archive has no file c\.en in it"):
        archived(monkeypatch, tmp_path, tar({"a.en": b"a\n"}), "c.en")


def test_a_link_in_an_archive_is_not_followed(monkeypatch, tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        info = tarfile.TarInfo("a.en")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(DataError, match=r"archive has no file a\.en in it"):
        archived(monkeypatch, tmp_path, data.getvalue(), "a.en")


@pytest.mark.parametrize("damage", [lambda data: data[:-30], lambda data: b"not an archive"])
def test_a_damaged_archive_is_named(monkeypatch, tmp_path, damage):
    data = damage(tar({"a.en": b"a\n" * 100_000, "b.en": b"b\n"}))
    with pytest.raises(DataError, match=r"archive.*(damaged|truncated)"):
        archived(monkeypatch, tmp_path, data, "b.en")


def test_a_member_outside_the_folder_writes_nothing_there(monkeypatch, tmp_path):
    data = tar({"../../evil": b"x\n", "a.en": b"a\n"})
    archived(monkeypatch, tmp_path, data, "a.en")
    assert not list(tmp_path.parent.rglob("evil"))


# The built-in corpus


class Sentence(NamedTuple):
    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


@pytest.fixture
def grammar(monkeypatch):
    """A grammar of one sentence."""
    module = types.ModuleType("regard.corpora.builtin.corpus")
    module.sentences = lambda size, part: (Sentence(f"{part} cat", "chat", ((0, 0), (1, 0))) for _ in range(size))
    monkeypatch.setitem(sys.modules, "regard.corpora.builtin.corpus", module)
    monkeypatch.setattr(regard.corpora.builtin, "corpus", module, raising=False)


def test_the_built_in_corpus_comes_with_its_alignments(grammar, tmp_path):
    paths = catalog.write_builtin(tmp_path / "out", sizes={"train": 2})
    assert [(path.name, path.read_text()) for path in paths] == [
        ("train.en", "train cat\n" * 2),
        ("train.fr", "chat\n" * 2),
        ("train.align", "0-0 1-0\n" * 2),
    ]


def test_the_built_in_corpus_has_three_parts(grammar, tmp_path):
    paths = catalog.write_builtin(tmp_path / "out", sizes={"train": 3, "valid": 2, "test": 1})
    assert {path.name: len(path.read_text().splitlines()) for path in paths if path.suffix == ".fr"} == {
        "train.fr": 3,
        "valid.fr": 2,
        "test.fr": 1,
    }


def test_alignments_of_the_built_in_corpus_are_within_both_sentences(tmp_path):
    texts = [path.read_text().split("\n") for path in catalog.write_builtin(tmp_path / "out", sizes={"test": 20})]
    for english, french, links in zip(*texts, strict=True):
        for i, j in (link.split("-") for link in links.split()):
            assert int(i) < len(english.split())
            assert int(j) < len(french.split())
