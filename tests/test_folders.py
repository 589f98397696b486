"""Files and folders are written atomically, checksums find damage, and one run at a time writes to a folder."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard import folders
from regard.errors import FolderError, RunError


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".regard-")]


def fill(folder: Path) -> None:
    (folder / "a").write_text("one")
    (folder / "b").write_text("two")


@contextlib.contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python program of its own, killed at the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that other users reach; the one of a test is its own user's."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


# Atomic writes


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    with folders.atomic_folder(tmp_path / "x", force=False) as new:
        fill(new)
        assert not (tmp_path / "x").exists()
    assert (tmp_path / "x" / "b").read_text() == "two"


def test_a_failed_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with folders.atomic_folder(tmp_path / "x", force=False) as new:
            fill(new)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    with folders.atomic_folder(tmp_path / "x", force=True) as new:
        fill(new)
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a", "b"]
    assert hidden(tmp_path) == []


def test_the_old_folder_is_restored_when_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "old").touch()
    rename, calls = os.rename, []

    def failing(source: Path, target: Path) -> None:
        calls.append(target.name)
        if calls == [calls[0], "x"]:  # the new folder, after the old one was renamed
            raise OSError(errno.EIO, "no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(RunError), folders.atomic_folder(tmp_path / "x", force=True) as new:
        fill(new)
    assert (tmp_path / "x" / "old").exists()


def test_a_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(FolderError, match="x already exists"), folders.atomic_folder(tmp_path / "x", force=False):
        pass


def test_every_file_and_folder_is_synced_before_the_rename_and_the_parent_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    sync, rename = folders.fsync, os.rename
    monkeypatch.setattr(folders, "fsync", lambda path: (steps.append(path.name), sync(path)))
    monkeypatch.setattr(os, "rename", lambda old, new: (steps.append("rename"), rename(old, new)))
    with folders.atomic_folder(tmp_path / "x", force=False) as new:
        fill(new)
    assert sorted(steps[:2]) == ["a", "b"]
    assert steps[2:] == [new.name, "rename", tmp_path.name]


def test_a_file_is_unchanged_when_writing_fails(tmp_path: Path) -> None:
    folders.write_file(tmp_path / "x", "old", force=False)

    def interrupted() -> None:
        with folders.atomic_file(tmp_path / "x", force=True) as file:
            file.write(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "x").read_text() == "old"
    assert hidden(tmp_path) == []


def test_a_file_is_not_replaced_without_force(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(FolderError, match="x already exists"):
        folders.write_file(tmp_path / "x", "new", force=False)


def test_writing_to_a_symbolic_link_replaces_its_target(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "link").symlink_to("x")
    folders.write_file(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    folders.write_file(Path(os.devnull), "gone", force=False)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with folders.atomic_folder(tmp_path / "x", force=False) as new:
            fill(new)
        folders.write_file(tmp_path / "y", "y", force=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o644


def test_several_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    def write(*, fail: bool) -> None:
        with folders.atomic_files(tmp_path / "x", ["a", "b"], force=False) as new:
            fill(new)
            assert not (tmp_path / "x" / "a").exists()
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fail=True)
    assert list(tmp_path.iterdir()) == []
    write(fail=False)
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a", "b"]
    with pytest.raises(FolderError, match="x/a already exists"):
        write(fail=False)


# Deletion


def test_a_folder_is_renamed_before_it_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.setattr(folders, "_erase", lambda path: None)  # killed in between
    folders.delete(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert len(hidden(tmp_path)) == 1


def test_only_leftovers_of_killed_runs_are_deleted(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / ".regard-1111111111111111").touch()  # young: perhaps another process is writing it
    (tmp_path / ".regard-0123456789abcdef").mkdir()
    (tmp_path / ".regard-0123456789abcdef" / "part").touch()
    (tmp_path / ".regard-fedcba9876543210").touch()
    (tmp_path / ".regard-mine").touch()
    (tmp_path / ".hidden").touch()
    for path in tmp_path.iterdir():
        if "1111" not in path.name:
            os.utime(path, (0, 0))
    with folders.atomic_folder(tmp_path / "x", force=False):
        pass  # deletes leftovers beside it
    left = [".hidden", ".regard-1111111111111111", ".regard-mine", "a", "b", "x"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


# Checksums


def test_a_folder_with_checksums_is_verified(tmp_path: Path) -> None:
    fill(tmp_path)
    folders.write_checksums(tmp_path)
    assert folders.verify(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("damage", ["onf", "on", "", "one1"])
def test_a_changed_file_is_named(tmp_path: Path, damage: str) -> None:
    fill(tmp_path)
    folders.write_checksums(tmp_path)
    (tmp_path / "a").write_text(damage)
    with pytest.raises(FolderError, match=r"/a is damaged: its SHA-256"):
        folders.verify(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    fill(tmp_path)
    folders.write_checksums(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(FolderError, match="/a is missing"):
        folders.verify(tmp_path)


def test_a_checksum_of_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / folders.CHECKSUMS).write_text('{"../a": "00"}')
    with pytest.raises(FolderError, match="not a table of checksums"):
        folders.verify(tmp_path)


def test_files_that_people_edit_have_no_checksum(tmp_path: Path) -> None:
    fill(tmp_path)
    folders.write_checksums(tmp_path, exclude=["a"])
    assert folders.verify(tmp_path) == ["b"]


# JSON


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "it is nested too deep"),
        (f"[{'9' * 400}]", "it has a whole number of 400 digits, and at most 40 are read"),
        ("{", "Expecting property name"),
        ("\xff", "can't decode byte 0xff"),
    ],
)
def test_json_that_nobody_means_is_refused_with_the_name_of_its_file(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(FolderError, match=rf"x\.json is damaged: .*{reason}"):
        folders.read_json(tmp_path / "x.json")


def test_a_huge_json_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "x.json", "wb") as file:
        file.truncate(2**40)  # takes no space on the disk
    with pytest.raises(FolderError, match=r"x\.json has 1,099,511,627,776 bytes, and at most 268,435,456 are read"):
        folders.read_json(tmp_path / "x.json")


def test_json_may_be_optional(tmp_path: Path) -> None:
    assert folders.read_json(tmp_path / "x.json", optional=True) is None
    with pytest.raises(FolderError, match=r"x\.json cannot be read: No such file"):
        folders.read_json(tmp_path / "x.json")


# Locks

HOLD = """
import sys, time
from pathlib import Path
from regard.folders import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""
HOLD_WITH_A_WORKER = """
import os, sys, time
from pathlib import Path
from regard.folders import lock_folder
with lock_folder(Path(sys.argv[1])):
    if not os.fork():
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""


def test_a_second_run_is_refused_while_the_first_lives_and_not_after_its_kill(tmp_path: Path) -> None:
    with running(HOLD, tmp_path) as first:
        assert line(first) == "locked"
        with pytest.raises(FolderError, match=f"another run is writing to {tmp_path}"), folders.lock_folder(tmp_path):
            pass
        first.send_signal(signal.SIGKILL)
        first.wait()
        with folders.lock_folder(tmp_path) as remark:
            assert remark == ""


def test_a_worker_that_outlives_its_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    with running(HOLD_WITH_A_WORKER, tmp_path) as first:
        worker = int(line(first))
        try:
            first.send_signal(signal.SIGKILL)
            first.wait()
            os.kill(worker, 0)  # it lives
            with folders.lock_folder(tmp_path):
                pass
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_lock_is_free_when_its_block_ends(tmp_path: Path) -> None:
    for _ in range(2):
        with folders.lock_folder(tmp_path / "made" / "too"):
            pass


TAKE_TURNS = """
import sys, time
from pathlib import Path
from regard.errors import FolderError
from regard.folders import lock_folder
folder, go = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    pass
won = refused = 0
while won + refused < 300:
    try:
        with lock_folder(folder):
            (folder / "mine").touch(exist_ok=False)  # fails if two processes are here
            time.sleep(0.001)
            (folder / "mine").unlink()
            won += 1
    except FolderError:
        refused += 1
print(won, flush=True)
"""


def test_of_many_simultaneous_processes_one_at_a_time_has_the_folder(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(TAKE_TURNS, tmp_path / "x", go)) for _ in range(10)]
        assert {line(process) for process in processes} == {"ready"}
        go.touch()
        wins = [line(process) for process in processes]
    assert all(wins), wins  # an empty line is a process that failed
    assert sum(map(int, wins)) >= 10
    assert list(tmp_path.glob("x/*")) == []


def test_a_refused_run_leaves_the_folder_and_the_lock_of_the_other(tmp_path: Path) -> None:
    with running(HOLD, tmp_path / "x") as first:
        assert line(first) == "locked"
        for _ in range(2):
            with pytest.raises(FolderError, match="another run"), folders.lock_folder(tmp_path / "x"):
                pass


@pytest.mark.parametrize("name", ["link", "old", "old/."])
def test_a_folder_that_was_there_before_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "link").symlink_to("old")
    with folders.lock_folder(tmp_path / name):
        pass
    assert list((tmp_path / "old").iterdir()) == []


def test_a_broken_symbolic_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("nowhere")
    with pytest.raises(FolderError, match="/x is not a folder"), folders.lock_folder(tmp_path / "x"):
        pass


def test_leftovers_in_the_folder_of_another_run_are_not_deleted(tmp_path: Path) -> None:
    with running(HOLD, tmp_path / "x") as other:
        assert line(other) == "locked"
        (tmp_path / "x" / ".regard-0123456789abcdef").touch()
        with folders.lock_folder(tmp_path):
            pass
    assert hidden(tmp_path / "x")


def test_locking_deletes_leftovers_in_the_folder_and_one_level_below(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".regard-0123456789abcdef").mkdir(parents=True)
    (tmp_path / ".regard-fedcba9876543210").touch()
    with folders.lock_folder(tmp_path):
        assert hidden(tmp_path) + hidden(tmp_path / "checkpoints") == []


def test_a_file_system_without_locks_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(held: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "no locks")

    monkeypatch.setattr(folders.fcntl, "lockf", unknown)
    with folders.lock_folder(tmp_path) as remark:
        assert "no locks on this file system" in remark


# Errors

WRITE = """
import os, sys
from pathlib import Path
from regard.errors import FolderError
from regard.folders import lock_folder, atomic_folder, write_file
if os.getuid() == 0:
    os.setuid(65534)
folder = Path(sys.argv[1])
for tried in (lambda: write_file(folder / "x", "", force=True), atomic_folder(folder / "y", force=True).__enter__,
              lock_folder(folder).__enter__):
    try:
        tried()
    except FolderError as error:
        print(error)
"""


def test_a_folder_without_permission_is_named(open_to_all: Path) -> None:
    open_to_all.chmod(0o555)
    with running(WRITE, open_to_all) as process:
        said = [line(process) for _ in range(3)]
    assert said == [f"{open_to_all / name} cannot be written: Permission denied" for name in ("x", "y", "")]


def test_a_read_only_file_system_is_named(read_only: Path) -> None:
    with pytest.raises(FolderError, match="x cannot be written: Read-only file system"):
        folders.write_file(read_only / "x", "", force=False)


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with (
        pytest.raises(FolderError, match=rf"{tmp_path}/x is not a folder"),
        folders.atomic_folder(tmp_path / "x" / "y" / "z", force=False),
    ):
        pass


def test_a_folder_where_a_file_should_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"{tmp_path} cannot be written: Is a directory"):
        folders.write_file(tmp_path, "", force=True)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (errno.ENOSPC, RunError, "the disk is full; existing files are unchanged"),
        (errno.EDQUOT, RunError, "the disk is full"),
        (errno.EROFS, FolderError, "Read-only file system"),
        (errno.EISDIR, FolderError, "x cannot be written: Is a directory"),
        (errno.ENOENT, FolderError, "No such file or directory"),
        (errno.EIO, RunError, "could not be written: Input/output error"),
    ],
)
def test_an_os_error_becomes_one_clear_line(code: int, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says), folders.clear_os_errors(Path("x")):
        raise OSError(code, os.strerror(code))
