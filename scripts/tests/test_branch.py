# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the way from patches to a git branch and back, with a small Linux and a small series."""

import contextlib
import io
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List, Tuple
from unittest import mock

from hostlib import branch, patches, series
from hostlib.git import Repository, isolated
from hostlib.source import Source
from hostlib.ui import Failure

_LINES = "".join(f"line {number}\n" for number in range(1, 31))
_LINUX = {"Kbuild": "", "Makefile": "VERSION = 7\nPATCHLEVEL = 3\n",
          ".gitignore": "*.o\n/*\n!/debian/\n", "arch/x86/kvm/x86.c": _LINES,
          "kernel/events/core.c": _LINES}

_EDIT = """diff --git a/{path} b/{path}
--- a/{path}
+++ b/{path}
@@ -{first},6 +{first},7 @@{function}
{before}+{new}
{after}"""


def _edit(path: str, line: int, new: str) -> str:
    """Return a diff that adds a line behind a line of a file of _LINES."""
    before = "".join(f" line {number}\n" for number in range(line - 2, line + 1))
    after = "".join(f" line {number}\n" for number in range(line + 1, line + 4))
    return _EDIT.format(path=path, first=line - 2, before=before, new=new, after=after,
                        function=f" line {line - 3}")


_FIX = "Subject: KVM: Fix it\n\nWhy.\n\n" + _edit("arch/x86/kvm/x86.c", 10, "fixed")
_ADD = ("Subject: perf: Add a file\n\nWhy.\n\n" + _edit("kernel/events/core.c", 20, "call"))
_EDIT_NEW = ("Subject: perf: Edit the new file\n\nWhy.\n\n"
             "diff --git a/kernel/events/new.c b/kernel/events/new.c\n"
             "--- a/kernel/events/new.c\n+++ b/kernel/events/new.c\n"
             "@@ -1,3 +1,4 @@\n a\n b\n+edited\n c\n")
_EMPTY = "Subject: selftests: Add a test\n\nIt has only new files.\n"

_REPOSITORY = {
    "patches/series": "# order\n\n[fixes]\nfix.patch\n\n"
                      "[kernel]\nadd.patch\n\tkernel/events/new.c\nedit-new.patch\n\n"
                      "[instruments]\nempty.patch\n\ttools/testing/run.sh\n",
    "patches/fix.patch": _FIX, "patches/add.patch": _ADD, "patches/edit-new.patch": _EDIT_NEW,
    "patches/empty.patch": _EMPTY, "patches/cover-fixes.txt": "Fixes\n\nof Linux\n",
    "patches/cover-kernel.txt": "perf: A feature\n\nIts story.\n",
    "kernel/events/new.c": "a\nb\nedited\nc\n", "tools/testing/run.sh": "#!/bin/sh\n"}


def _write(top: Path, files: Dict[str, str]) -> None:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)


def _read(top: Path) -> Dict[str, str]:
    return {str(path.relative_to(top)): f"{path.stat().st_mode & 0o100}{path.read_text()}"
            for path in top.rglob("*") if path.is_file() and ".git" not in path.parts}


class BranchTest(unittest.TestCase):
    _first: "tempfile.TemporaryDirectory[str]"

    @classmethod
    def setUpClass(cls) -> None:
        """Make the branch once; each test gets a copy."""
        cls._first = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._first.cleanup)
        top, folder, linux = (Path(cls._first.name) / name for name in ("top", "branch", "linux"))
        _write(top, _REPOSITORY)
        (top / "tools/testing/run.sh").chmod(0o755)
        _write(linux, _LINUX)
        with contextlib.redirect_stdout(io.StringIO()):
            branch.write(Source("linux_1", tree=linux), folder, top)
            branch.read_back(folder, top)

    def setUp(self) -> None:
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        shutil.copytree(self._first.name, self.tmp, dirs_exist_ok=True)
        self.top, self.folder = self.tmp / "top", self.tmp / "branch"
        self.source = Source("linux_1", tree=self.tmp / "linux")
        self.before = _read(self.top)

    def git(self, *args: str, stdin: str = "") -> str:
        """Run git as the user of the branch."""
        return subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *args],
            cwd=self.folder, input=stdin, text=True, check=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=isolated(GIT_SEQUENCE_EDITOR="true", GIT_EDITOR="true")).stdout

    def commit(self, message: str, **files: str) -> None:
        """Commit files on top; "__" in a name stands for "/", "_c" for ".c"."""
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_c", ".c")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty-message", "--allow-empty", "-m", message)

    def import_(self) -> Dict[str, str]:
        with contextlib.redirect_stdout(io.StringIO()):
            branch.read_back(self.folder, self.top)
        return _read(self.top)

    def import_bytes(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            branch.read_back(self.folder, self.top)

    def changed(self, after: Dict[str, str]) -> "set[str]":
        return {name for name in self.before.keys() | after.keys()
                if self.before.get(name) != after.get(name)}

    def refused(self, *words: str) -> None:
        """Assert that import names these things, and changes nothing."""
        with self.assertRaises(Failure) as caught:
            self.import_()
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertEqual(_read(self.top), self.before)

    def squash(self, **files: str) -> None:
        """Squash a change of files into the commit that edits or adds them first."""
        target = self.git("log", "--reverse", "--format=%H", "base..HEAD", "--", *(
            name.replace("__", "/").replace("_c", ".c") for name in files)).split()[0]
        subject = self.git("show", "-s", "--format=%s", target).strip()
        self.commit(f"fixup! {subject}", **files)
        self.git("rebase", "-q", "-i", "base")

    def test_there_and_back(self) -> None:
        wanted = {name: f"{0o100 if name.endswith('.sh') else 0}{text}"
                  for name, text in _REPOSITORY.items()}
        wanted["patches/series"] = self.before["patches/series"]
        self.assertEqual(sorted(self.before.items()), sorted(wanted.items()))
        self.assertEqual([(topic.patch.name, topic.new_files, topic.series)
                          for topic in patches.topics(self.top)],
                         [("fix.patch", (), "fixes"),
                          ("add.patch", ("kernel/events/new.c",), "kernel"),
                          ("edit-new.patch", (), "kernel"),
                          ("empty.patch", ("tools/testing/run.sh",), "instruments")])
        # The commits have the same names for everybody.
        again = self.tmp / "again"
        with contextlib.redirect_stdout(io.StringIO()), \
                mock.patch.dict(os.environ, GIT_AUTHOR_NAME="B"):
            branch.write(self.source, again, self.top)
        self.assertEqual(Repository(again).git("rev-parse", "HEAD"), self.git("rev-parse", "HEAD"))

    def test_what_each_commit_has(self) -> None:
        show = self.git("show", "series/kernel~1:kernel/events/new.c")
        self.assertEqual(show, "a\nb\nc\n")
        self.assertEqual(self.git("log", "--format=%s", "series/fixes"),
                         "KVM: Fix it\nLinux 7.3\n")
        self.assertEqual(self.git("show", "series/fixes:arch/x86/kvm/x86.c"),
                         _LINES.replace("line 11\n", "fixed\nline 11\n"))
        self.assertEqual(self.git("ls-tree", "HEAD", "tools/testing/run.sh").split()[0], "100755")
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_a_hunk_that_moves(self) -> None:
        self.squash(arch__x86__kvm__x86_c=_LINES.replace("line 5\n", "line 5\nfixed\n"))
        after = self.import_()
        self.assertEqual(self.changed(after), {"patches/fix.patch"})
        self.assertIn(" line 5\n+fixed\n line 6\n", after["patches/fix.patch"])

    def test_an_edit_of_a_new_file_in_the_commit_that_adds_it(self) -> None:
        self.squash(kernel__events__new_c="A\nb\nedited\nc\n")
        after = self.import_()
        # The later patch has the changed line as context.
        self.assertEqual(self.changed(after), {"kernel/events/new.c", "patches/edit-new.patch"})
        self.assertIn("\n A\n b\n+edited\n", after["patches/edit-new.patch"])
        self.assertEqual(self.git("show", "series/kernel~1:kernel/events/new.c"), "A\nb\nc\n")

    def test_a_new_file_that_is_renamed(self) -> None:
        self.git("mv", "kernel/events/new.c", "kernel/events/named.c")
        self.commit("perf: Rename the new file")
        after = self.import_()
        self.assertEqual(self.changed(after), {
            "kernel/events/new.c", "kernel/events/named.c", "patches/series",
            "patches/perf-rename-the-new-file.patch"})
        with contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.tmp / "again", self.top)
        again = Repository(self.tmp / "again")
        self.assertEqual(again.git("rev-parse", "HEAD^{tree}"),
                         self.git("rev-parse", "HEAD^{tree}"))
        self.assertEqual(again.git("show", "series/kernel~1:kernel/events/new.c"), "a\nb\nc\n")

    def test_a_file_of_linux_that_is_renamed_is_not_copied(self) -> None:
        self.git("mv", "kernel/events/core.c", "kernel/events/main.c")
        self.commit("perf: Rename core.c")
        after = self.import_()
        self.assertEqual(self.changed(after),
                         {"patches/series", "patches/perf-rename-core-c.patch"})
        self.assertNotIn("line 9", after["patches/perf-rename-core-c.patch"])

    def test_a_subject_names_the_patch(self) -> None:
        self.git("checkout", "-q", "series/fixes")
        self.commit("KVM: x86: Mend another thing", arch__x86__kvm__more_c="new\n")
        self.git("rebase", "-q", "series/fixes", "series/instruments")
        after = self.import_()
        self.assertEqual(self.changed(after), {
            "patches/series", "arch/x86/kvm/more.c", "patches/kvm-x86-mend-another-thing.patch"})
        self.assertEqual([topic.patch.name for topic in patches.topics(self.top)][:3],
                         ["fix.patch", "kvm-x86-mend-another-thing.patch", "add.patch"])

    def test_a_patch_is_renamed_before_the_next_import(self) -> None:
        (self.top / "patches/add.patch").rename(self.top / "patches/new-name.patch")
        order = self.top / "patches/series"
        order.write_text(order.read_text().replace("add.patch", "new-name.patch"))
        self.before = _read(self.top)
        self.assertEqual(self.changed(self.import_()), set())

    def test_a_dropped_commit_takes_its_files_with_it(self) -> None:
        self.git("reset", "-q", "--hard", "HEAD~1")
        self.commit("selftests: Add another test", tools__testing__b_c="b\n")
        after = self.import_()
        self.assertEqual(self.changed(after), {
            "patches/series", "patches/empty.patch", "tools/testing/run.sh",
            "tools/testing/b.c", "patches/selftests-add-another-test.patch"})

    def test_cover_letters(self) -> None:
        self.git("config", "branch.series/kernel.description", "perf: Another title\n\nText.\n")
        after = self.import_()
        self.assertEqual(self.changed(after), {"patches/cover-kernel.txt"})

    def test_faults_name_the_commit(self) -> None:
        start = self.git("rev-parse", "HEAD").strip()
        faults: List[Tuple[str, Dict[str, str], Tuple[str, ...]]] = [
            ("", {"arch__a_c": "x\n"}, ("subject",)),
            ("fixup! KVM: Fix it", {"arch__a_c": "x\n"}, ("KVM: Fix it", "autosquash")),
            ("KVM: Fix it", {"arch__a_c": "x\n"}, ("KVM: Fix it", "same")),
            ("Nothing", {}, ("Nothing",)),
            ("Binary", {"kernel__events__core_c": "\0\n"}, ("Binary",)),
            ("Text\n\ndiff --git here", {"arch__a_c": "x\n"}, ("Text", "diff")),
            ("Space", {"arch__a b_c": "x\n"}, ("Space", "a b.c")),
            ("Elsewhere", {"scripts__setup_c": "x\n"}, ("Elsewhere", "scripts/setup.c")),
            ("!!!", {"arch__a_c": "x\n"}, ("name",)),
            ("Change it, too", {"arch__a_c": "x\n"}, ())]
        for message, files, words in faults:
            with self.subTest(message):
                self.commit(message, **files)
                if words:
                    self.refused(*words)
                else:
                    self.import_()
                self.git("reset", "-q", "--hard", start)

    def test_links_are_refused(self) -> None:
        (self.folder / "arch/link.c").symlink_to("x86/kvm/x86.c")
        self.commit("x86: Add a link")
        self.refused("x86: Add a link", "arch/link.c")

    def test_any_bytes(self) -> None:
        path = self.folder / "kernel/events/core.c"
        path.write_bytes(path.read_bytes().replace(b"line 5\n", b"line 5\r\n\xfc\n"))
        new = self.folder / "kernel/events/bytes.c"
        new.write_bytes(b"\r\n\xfc")
        self.commit("perf: Add odd bytes")
        self.import_bytes()
        self.assertEqual((self.top / "kernel/events/bytes.c").read_bytes(), b"\r\n\xfc")
        with contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.tmp / "again", self.top)
        self.assertEqual(Repository(self.tmp / "again").git("rev-parse", "HEAD^{tree}"),
                         self.git("rev-parse", "HEAD^{tree}"))

    def test_two_series_at_one_commit(self) -> None:
        self.git("reset", "-q", "--hard", "series/kernel")
        self.refused("series/kernel", "series/instruments")

    def test_an_interrupted_import_goes_on(self) -> None:
        self.squash(arch__x86__kvm__x86_c=_LINES.replace("line 5\n", "line 5\nfixed\n"))
        self.git("mv", "tools/testing/run.sh", "tools/testing/go.sh")
        self.commit("fixup! selftests: Add a test")
        self.git("rebase", "-q", "-i", "base")
        for name in ("top", "branch"):
            shutil.copytree(self.tmp / name, self.tmp / "whole" / name)
        with contextlib.redirect_stdout(io.StringIO()):
            branch.read_back(self.tmp / "whole/branch", self.tmp / "whole/top")
        wanted = _read(self.tmp / "whole/top")
        for name in ("patches/fix.patch", "tools/testing/go.sh", "patches/series"):
            def update(path: Path, data: bytes, mode: int = 0o644) -> None:
                if self.top in path.parents and str(path).endswith(name):
                    raise KeyboardInterrupt
                write(path, data, mode)

            write = patches.update
            with mock.patch.object(patches, "update", update), \
                    contextlib.redirect_stdout(io.StringIO()), \
                    self.assertRaises(KeyboardInterrupt):
                branch.read_back(self.folder, self.top)
            with self.subTest(name):
                self.assertNotEqual(_read(self.top), wanted)
        self.assertEqual(self.import_(), wanted)

    def test_what_import_makes_is_tried_first(self) -> None:
        self.commit("x86: Work", arch__a_c="x\n")
        with mock.patch.object(patches, "encode", side_effect=lambda text: text.replace(
                "fixed", "broken").encode()):
            self.refused("KVM: Fix it")

    def test_a_folder_of_somebody_else(self) -> None:
        _write(self.tmp / "own", {"precious": "x\n"})
        with self.assertRaises(Failure):
            branch.write(self.source, self.tmp / "own", self.top)
        self.assertTrue((self.tmp / "own/precious").exists())

    def test_a_new_source_keeps_what_is_not_imported(self) -> None:
        self.git("checkout", "-q", "-b", "mine")
        self.commit("x86: Mine", arch__a_c="x\n")
        self.git("checkout", "-q", "series/instruments")
        with self.assertRaises(Failure), contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.folder, self.top)
        self.assertIn("mine", self.git("branch"))

    def test_a_file_that_two_commits_create(self) -> None:
        (self.folder / "kernel/events/new.c").unlink()
        self.commit("perf: Remove it")
        self.commit("perf: Create it again", kernel__events__new_c="again\n")
        self.refused("perf: Create it again", "perf: Add a file", "kernel/events/new.c")

    def test_commits_of_no_series(self) -> None:
        self.git("checkout", "-q", "--detach")
        self.commit("x86: On top of all", arch__a_c="x\n")
        self.git("branch", "-f", "series/instruments", "HEAD~1")
        self.refused("series/instruments")

    def test_a_series_that_was_left_behind(self) -> None:
        self.git("branch", "-f", "series/fixes", "series/kernel")
        self.git("-c", "rebase.updateRefs=false", "rebase", "-q", "--onto", "base",
                 "series/kernel~2", "series/instruments")
        self.refused("series/fixes", "git branch -f")

    def test_changes_that_are_not_committed(self) -> None:
        for name in ("Kbuild", "kernel/forgotten.c"):
            (self.folder / name).write_text("x\n")
            self.refused("Kbuild" if name == "Kbuild" else name)
            self.git("checkout", "-q", "Kbuild")
        (self.folder / "kernel/forgotten.c").unlink()
        # Objects are no changes.
        (self.folder / "kernel/core.o").write_text("x\n")
        self.import_()

    def test_work_is_not_lost(self) -> None:
        self.commit("x86: Work", arch__a_c="x\n")
        with self.assertRaises(Failure), contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.folder, self.top)
        self.import_()
        (self.top / "patches/fix.patch").write_text(_FIX.replace("+fixed", "+mended"))
        self.before = _read(self.top)
        # The patches here are newer than the branch, which must not overwrite them.
        self.refused("changed")
        with contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.folder, self.top)
        self.assertIn("mended", (self.folder / "arch/x86/kvm/x86.c").read_text())
        self.assertEqual(self.import_(), self.before)

    def test_work_is_not_lost_after_a_fault(self) -> None:
        faults = {"patches/fix.patch": _FIX.replace(" line 10", " line 11"),
                  "kernel/events/unlisted.c": "x\n"}
        for path, text in faults.items():
            _write(self.top, {path: text})
            for _ in range(2):
                with self.assertRaises(Failure), contextlib.redirect_stdout(io.StringIO()):
                    branch.write(self.source, self.folder, self.top)
                (self.folder / "Kbuild").write_text("work\n")
            (self.top / path).unlink()
            _write(self.top, {path: _REPOSITORY[path]} if path in _REPOSITORY else {})
            with self.assertRaisesRegex(Failure, "Kbuild"), \
                    contextlib.redirect_stdout(io.StringIO()):
                branch.write(self.source, self.folder, self.top)
            self.assertEqual((self.folder / "Kbuild").read_text(), "work\n")
            self.git("checkout", "-q", "Kbuild")

    def test_a_patch_that_does_not_apply(self) -> None:
        (self.top / "patches/add.patch").write_text(_ADD.replace(" line 20", " line 21"))
        with self.assertRaises(Failure) as caught, contextlib.redirect_stdout(io.StringIO()):
            branch.write(self.source, self.tmp / "again", self.top)
        self.assertIn("add.patch", str(caught.exception))
        self.assertIn("kernel/events/core.c:18", str(caught.exception))

    def test_mails(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            folders = series.write(self.source, self.tmp / "build", self.tmp / "mails", self.top)
        self.assertEqual([folder.name for folder in folders], ["1-fixes", "2-kernel"])
        self.assertEqual(sorted(path.name for path in folders[1].iterdir()), [
            "0001-perf-Add-a-file.patch", "0002-perf-Edit-the-new-file.patch", "cover-letter.txt"])
        self.assertIn("Its story.", (folders[1] / "cover-letter.txt").read_text())
        mail = (folders[1] / "0001-perf-Add-a-file.patch").read_text()
        self.assertNotIn("Signed-off-by", mail)
        # "git am" of all yields what the branch has.
        target = Repository(self.tmp / "am")
        target.init()
        _write(target.path, {**_LINUX, ".gitignore": "*.o\n"})
        target.commit_all("Linux")
        target.git("am", "-q", *(str(mail) for folder in folders
                                 for mail in sorted(folder.glob("*.patch"))))
        self.assertEqual(target.git("rev-parse", "HEAD^{tree}"),
                         self.git("rev-parse", "series/kernel^{tree}"))


class OurPatchesTest(unittest.TestCase):
    """Tests of the patches of this repository that need no source of Linux."""

    def test_each_patch_and_each_new_file_is_listed(self) -> None:
        patches.check_listed()
        listed = [topic.patch for topic in patches.topics()]
        self.assertEqual(len(set(listed)), len(listed))
        self.assertEqual(set(listed), set(patches.PATCHES.glob("*.patch")))

    def test_each_posted_series_has_a_cover_letter_as_wide_as_mails_are(self) -> None:
        self.assertEqual(patches.posted()[0::7], ["fixes", "tools"])
        for name in patches.posted():
            subject, empty, *_ = lines = patches.cover(name).read_text().splitlines()
            self.assertTrue(subject, name)
            self.assertEqual(empty, "", name)
            self.assertLessEqual(max(map(len, lines)), 79, name)

    def test_new_files_are_undone_to_what_their_patches_add(self) -> None:
        every = patches.topics()
        ours = patches.new_files(every)
        with tempfile.TemporaryDirectory() as tmp:
            patches.first_versions(every, Path(tmp))
            for topic in every:
                patches.apply(topic.patch, Path(tmp), patches.ours(every))
            for path in sorted(ours):
                self.assertEqual((Path(tmp) / path).read_bytes(),
                                 (patches.REPO / path).read_bytes(), path)


if __name__ == "__main__":
    unittest.main()
