# SPDX-License-Identifier: GPL-2.0-only
"""A git branch to work on the patches, and the way back.

"make branch" writes a git repository with the unpatched Linux as its first commit, and a commit
for each patch, which also adds the patch's new files.  Each series is a branch on top of the one
before.  "make import" writes the commits back, as patches and new files.
"""

import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Set, Tuple

from . import patches
from .git import WRITER, Repository
from .patches import REPO, Topic
from .source import LINUX, Source
from .ui import Failure, Step

# The tag of the unpatched Linux.
BASE = "base"

# The branch of a series.  Without a folder, git would confuse some names with Linux's folders.
_HEADS = "refs/heads/series/"

# Digests of the branches and of the repository when they had the same content, and the commit that
# the repository had checked out; all are in the configuration of the branch's repository.
_STATE = "guestcallchains.state"
# In place of a digest, while the branches are written, or the repository.
_WRITING, _IMPORTING = "writing", "importing"
_CONTENT = "guestcallchains.content"
_COMMIT = "guestcallchains.commit"
_SOURCE = "guestcallchains.source"

_SERIES_HEAD = """\
# The patches in order, by series; below each patch, the new files that it adds.
# "make import" writes this file.
"""

_DIFF = ("-p", "--unified=3", "--no-ext-diff", "--no-textconv",
         "--src-prefix=a/", "--dst-prefix=b/")


def add_commits(repo: Repository, base: str, top: Path = REPO) -> None:
    """Add a commit for each patch on top of the commit "base", and a branch for each series.

    This leaves the work tree and its index alone.
    """
    every = patches.topics(top)
    with tempfile.TemporaryDirectory() as tmp:
        first, scratch = Path(tmp) / "first", Path(tmp) / "scratch"
        patches.first_versions(every, first, top)
        linux = patches.touched(topic.patch for topic in every) & repo.files(base).keys()
        index = {"GIT_INDEX_FILE": str(Path(tmp) / "index")}
        repo.git("read-tree", base, **index)
        repo.git("checkout-index", f"--prefix={scratch}/", "--stdin", stdin="\n".join(linux),
                 **index)
        stream = b""
        for number, topic in enumerate(every, 1):
            parent = f":{number - 1}" if number > 1 else base
            stream += _commit(number, parent, topic, first, scratch)
        repo.fast_import(stream)
    for series in patches.posted(top):
        # git format-patch takes the cover letter's text from the description of a branch.
        repo.git("config", _description(series), patches.cover(series, top).read_text())


def _description(series: str) -> str:
    return f"branch.series/{series}.description"


def _commit(number: int, parent: str, topic: Topic, first: Path, scratch: Path) -> bytes:
    """Apply a patch in the folder "scratch", and return the commit for git fast-import."""
    patches.apply(topic.patch, scratch)
    for path in topic.new_files:
        if (scratch / path).exists():
            raise Failure(f"patches/series says that {topic.patch.name} adds {path}, which exists "
                          "before")
        patches.copy(first / path, scratch / path)
    lines = [f"commit {_HEADS}{topic.series}\nmark :{number}\ncommitter {WRITER}\n".encode(),
             _data(patches.encode(topic.message)), f"from {parent}\n".encode()]
    for path in sorted({*patches.touched([topic.patch]), *topic.new_files}):
        file = scratch / path
        if file.exists():
            mode = "100755" if file.stat().st_mode & 0o100 else "100644"
            lines += [f"M {mode} inline {path}\n".encode(), _data(file.read_bytes())]
        else:
            lines.append(f"D {path}\n".encode())
    return b"".join(lines)


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def content(top: Path = REPO) -> str:
    """Return a digest of the patches and new files of the repository; a patch's name may change."""
    patches.check_listed(top)
    digest = hashlib.sha256()
    for topic in patches.topics(top):
        digest.update(f"{topic.series} {' '.join(topic.new_files)}\n".encode())
        digest.update(hashlib.sha256(topic.patch.read_bytes()).digest())
    named = {"patches/series", *(f"patches/{topic.patch.name}" for topic in patches.topics(top))}
    for path in (top / name for name in sorted(_files(top) - named)):
        digest.update(f"{path.relative_to(top)} {path.stat().st_mode & 0o100}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _config(repo: Repository, name: str) -> str:
    return repo.try_git("config", name).stdout.strip()


def _last(top: Path) -> str:
    return patches.topics(top)[-1].series


def unpack_base(source: Source, folder: Path) -> Repository:
    """Make a repository whose only commit is the unpatched Linux, with the tag "base"."""
    from .tree import unpack

    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    unpack(source, partial, folder.with_name(f"{folder.name}.log"))
    repo = Repository(partial)
    with Step(f"Commit Linux {LINUX}"):
        repo.init()
        _watch_new_files(partial)
        repo.commit_all(f"Linux {LINUX}")
        repo.git("tag", BASE)
        # Only the series have branches.
        repo.git("checkout", "-q", "--detach")
        repo.git("branch", "-q", "-D", repo.FIRST)
        repo.git("config", _SOURCE, source.name)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return Repository(folder)


def _watch_new_files(linux: Path) -> None:
    """Take out what Debian adds to .gitignore: git would ignore all new files of the branch."""
    ignored = linux / ".gitignore"
    if ignored.is_file():
        text = re.sub(r"^/\*\n(!/debian/\n)?", "", ignored.read_text(), flags=re.MULTILINE)
        ignored.write_text(text)


def _is_base(source: Source, folder: Path) -> bool:
    """Return True if the base in a folder is this source; a tree of the user's may have changed."""
    return (not source.tree and (folder / ".git").is_dir()
            and _config(Repository(folder), _SOURCE) == source.name)


def base_of(source: Source, folder: Path) -> Repository:
    """Return the repository in a folder if its base is this source, else make it."""
    return Repository(folder) if _is_base(source, folder) else unpack_base(source, folder)


def write(source: Source, folder: Path, top: Path = REPO) -> Path:
    """Write the branches to a repository in a folder.

    Raises Failure if work in the folder would be lost.
    """
    if folder.exists() and any(folder.iterdir()) and not (
            (folder / ".git").is_dir() and _config(Repository(folder), _SOURCE)):
        raise Failure(f"{folder} is not from make branch; move it away")
    check_nothing_lost(folder, replaced=not _is_base(source, folder))
    repo = base_of(source, folder)
    with Step(f"Write {len(patches.topics(top))} commits"):
        before = _config(repo, _STATE)
        # If this is interrupted, there is no work to lose.
        repo.git("config", _STATE, _WRITING)
        try:
            content(top)
            add_commits(repo, f"refs/tags/{BASE}", top)
        except Failure:
            # The branches are as they were, or there are none: people may go on to work there.
            repo.git("config", _STATE, before or _state(repo))
            raise
        # What a killed git left; the folder is locked, so that no other run of ours has it.
        (folder / ".git/index.lock").unlink(missing_ok=True)
        for name in set(_heads(repo)) - {topic.series for topic in patches.topics(top)}:
            repo.git("update-ref", "-d", f"{_HEADS}{name}")
            repo.try_git("config", "--unset", _description(name))
        repo.git("symbolic-ref", "HEAD", f"{_HEADS}{_last(top)}")
        repo.git("reset", "-q", "--hard")
        # With it, a rebase moves the branches of all series.
        repo.git("config", "rebase.updateRefs", "true")
        repo.git("config", "rebase.autoSquash", "true")
        repo.git("config", "gc.auto", "0")
        head = Repository(top).try_git("rev-parse", "--short", "HEAD").stdout.strip()
        _remember(repo, top, head)
    return folder


def _remember(repo: Repository, top: Path, commit: str) -> None:
    """Note that branches and repository have the same content now.

    Args:
        commit: where the repository has this content, for a message
    """
    repo.git("config", _CONTENT, content(top))
    repo.git("config", _COMMIT, commit)
    repo.git("config", _STATE, _state(repo))


def check_nothing_lost(folder: Path, replaced: bool) -> None:
    """Raise Failure if the branch's folder has work that is not in this repository.

    Args:
        replaced: the whole folder will be removed, with branches and stashes of the user's own
    """
    repo = Repository(folder)
    if not (folder / ".git").is_dir() or _config(repo, _STATE) in ("", _WRITING):
        return
    _check_clean(repo)
    outside = "--all" if replaced else "HEAD"
    if (_config(repo, _STATE) != _state(repo)
            or repo.git("rev-list", "-1", "HEAD", outside, "--not", f"--glob={_HEADS}*")):
        raise Failure(f"{repo.path} has commits that were not imported; run make import first, or "
                      "remove this folder if you don't want them")


def _heads(repo: Repository) -> List[str]:
    """Return the names of the series that have a branch."""
    refs = repo.git("for-each-ref", "--format=%(refname)", _HEADS).split()
    return [ref[len(_HEADS):] for ref in refs]


def _state(repo: Repository) -> str:
    """Return a digest of all branches and their descriptions."""
    refs = repo.git("for-each-ref", "--format=%(objectname) %(refname)", _HEADS)
    texts = repo.try_git("config", "--get-regexp", r"^branch\..*\.description$").stdout
    return hashlib.sha256((refs + texts).encode()).hexdigest()


def _check_clean(repo: Repository) -> None:
    git = repo.path / ".git"
    if any((git / name).exists() for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD",
                                              "CHERRY_PICK_HEAD")):
        raise Failure(f"A rebase in {repo.path} is not finished; finish it there first")
    changed = repo.git("status", "--porcelain").splitlines()
    if changed:
        raise Failure(f"{repo.path} has changes that are not committed: {changed[0][3:]}; commit "
                      "or stash them first")


@dataclass(frozen=True)
class Commit:
    """A commit of the branch.

    Args:
        name: its abbreviated hash and its subject, for messages
        diff: its diffs of files that exist before
        added: the files that it adds
    """
    name: str
    series: str
    message: str
    diff: str
    added: Tuple[str, ...]

    @property
    def renamed(self) -> List[Tuple[str, str]]:
        return re.findall(r"^rename from (\S+)\nrename to (\S+)$", self.diff, re.MULTILINE)

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


def _series(repo: Repository, known: Sequence[str]) -> List[Tuple[str, str]]:
    """Return the series of the branch in order, and the range of commits of each."""
    names = _heads(repo)
    odd = [name for name in names if not re.fullmatch(r"[\w-]+", name)]
    if odd:
        raise Failure(f"The branch series/{odd[0]} is no name for a series; use letters, digits "
                      "and hyphens")
    missing = [name for name in known if name not in names]
    if missing:
        raise Failure(f"{repo.path} has no branch series/{missing[0]}; make it again at the last "
                      "commit of this series, or remove the series from patches/series")
    for name in names:
        if repo.try_git("merge-base", "--is-ancestor", _HEADS + name, "HEAD").returncode:
            raise Failure(f"The branch series/{name} is not below HEAD any more; move it to the "
                          f"last commit of its series: git branch -f series/{name} COMMIT")
    names.sort(key=lambda name: int(repo.git("rev-list", "--count", _HEADS + name)))
    tips = [repo.git("rev-parse", _HEADS + name) for name in names]
    for one, other in zip(range(len(names)), range(1, len(names))):
        if tips[one] == tips[other]:
            raise Failure(f"The branches series/{names[one]} and series/{names[other]} are at the "
                          "same commit, so that one of them has no patch; move it: git branch -f")
    found = []
    before = f"refs/tags/{BASE}"
    for name in names:
        found.append((name, f"{before}..{_HEADS}{name}"))
        before = _HEADS + name
    rest = repo.git("rev-list", f"{before}..HEAD").split()
    if rest:
        raise Failure(f"{len(rest)} commits belong to no series, as they are above series/"
                      f"{names[-1]}; check that branch out, or move it: git branch -f series/"
                      f"{names[-1]} HEAD")
    return found


def _log(repo: Repository, commits: str, *options: str) -> List[List[str]]:
    """Return hash, parents, message and changes of each commit, oldest first."""
    said = repo.git("-c", "diff.algorithm=myers", "log", "--reverse", "-m", "-M", "--no-color",
                    "--format=%x00%H%x00%P%x00%B%x00", *options, commits)
    parts = said.split("\0")[1:]
    return [parts[first:first + 4] for first in range(0, len(parts), 4)]


def _read(repo: Repository, series: str, commits: str, created: Dict[str, str]) -> List[Commit]:
    """Read the commits of a series; "created" gets the files that they create, and by which."""
    return [_judge(commit, parents, message, status.strip(), diff, series, created)
            for (commit, parents, message, status), (_, _, _, diff)
            in zip(_log(repo, commits, "--raw"), _log(repo, commits, *_DIFF), strict=True)]


def _judge(commit: str, parents: str, message: str, status: str, diff: str, series: str,
           created: Dict[str, str]) -> Commit:
    """Return a commit that can be a patch; raise Failure if it can't."""
    subject = message.split("\n", 1)[0].strip()
    name = f"{commit[:12]} (\"{subject}\")"
    if not subject:
        raise Failure(f"The commit {commit[:12]} has no subject; give it one with git rebase -i")
    if re.match(r"(fixup|squash|amend)! ", subject):
        raise Failure(f"The commit {name} is not squashed; run git rebase -i --autosquash {BASE}")
    if len(parents.split()) != 1:
        raise Failure(f"The commit {name} is a merge; patches are a line of commits")
    if not status:
        raise Failure(f"The commit {name} changes nothing; drop it with git rebase -i")
    if re.search(r"^Binary files ", diff, re.MULTILINE):
        raise Failure(f"The commit {name} changes a binary file; patches are text")
    if re.search(r"^diff --git ", message, re.MULTILINE):
        raise Failure(f"The message of the commit {name} has a line that begins like a diff; "
                      "change it")
    added = []
    for mode, kind, paths in re.findall(r"^:\d+ (\d+) \S+ \S+ ([A-Z])\d*\t(.*)$", status,
                                        re.MULTILINE):
        if mode not in ("000000", "100644", "100755") or re.search(r'[ "]', paths):
            raise Failure(f"The commit {name} has {paths}, which is no plain file, or has a name "
                          "with a space or a quote; patches can't have that")
        if kind != "A":
            continue
        if not patches.may_be_new(paths):
            raise Failure(f"The commit {name} creates {paths}, and new files of this repository "
                          f"can't be there; see _OVERLAY in scripts/hostlib/patches.py")
        if paths in created:
            raise Failure(f"The commit {name} creates {paths}, which {created[paths]} creates as "
                          "well; let one of them create it")
        created[paths] = name
        added.append(paths)
    # The repository has new files as they are.
    diff = "".join(each for _, each in patches.split(diff) if "\nnew file mode " not in each)
    # Without these lines, a patch changes only where its edits do.
    diff = re.sub(r"^index [0-9a-f]+\.\.[0-9a-f]+( \d+)?\n", "", diff, flags=re.MULTILINE)
    return Commit(name, series, message.strip() + "\n", diff, tuple(added))


def read(repo: Repository, known: Sequence[str]) -> List[Commit]:
    """Return the commits of all series, in order.

    Args:
        known: the series that must be there
    """
    created: Dict[str, str] = {}
    found: Dict[str, Commit] = {}
    for series, commits in _series(repo, known):
        for one in _read(repo, series, commits, created):
            if one.subject in found:
                raise Failure(f"The commits {found[one.subject].name} and {one.name} have the same "
                              "subject, which names the patch; change one")
            found[one.subject] = one
    return list(found.values())


def file_name(subject: str) -> str:
    """Return the name of a new patch's file, from its subject."""
    return re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")[:60].rstrip("-") + ".patch"


def _names(commits: Sequence[Commit], top: Path) -> List[str]:
    """Return the names of the patches' files: a known subject keeps its name."""
    known = patches.by_subject(top)
    names = [known.get(commit.subject, file_name(commit.subject)) for commit in commits]
    for name in names:
        if name == ".patch":
            raise Failure("The subject of a commit has no letter and no digit to name its patch by")
        if names.count(name) > 1:
            raise Failure(f"Two commits would be patches/{name}; change the subject of one")
    return names


def read_back(folder: Path, top: Path = REPO) -> int:
    """Write the commits of the branch to the repository, and return how many there are.

    Nothing changes unless the result is what the branch has, commit by commit.
    """
    repo = Repository(folder)
    if not (folder / ".git").is_dir():
        raise Failure(f"There is no {folder}; make branch writes it")
    _check_clean(repo)
    # An interrupted import has changed the repository itself.
    if _config(repo, _STATE) != _IMPORTING and _config(repo, _CONTENT) != content(top):
        raise Failure("Patches or new files here have changed since the last make branch or make "
                      "import, and import would undo this; commit here, check out "
                      f"{_config(repo, _COMMIT) or 'the commit that has what was imported'}, "
                      "import there, and merge")
    with Step("Read the commits"), tempfile.TemporaryDirectory() as tmp:
        commits = read(repo, _known(top))
        made = _imported(repo, commits, Path(tmp), top)
        _prove(repo, made, Path(tmp) / "proof")
        _replace(repo, made, top)
        _remember(repo, top, "")
    return len(commits)


def _known(top: Path) -> List[str]:
    return list(dict.fromkeys(topic.series for topic in patches.topics(top)))


def not_as_imported(repo: Repository, top: Path = REPO) -> List[str]:
    """Return the files that make branch and make import would change: there should be none.

    Args:
        repo: a repository with all commits; its work tree changes
    """
    repo.git("checkout", "-q", "--force", f"series/{_last(top)}")
    with tempfile.TemporaryDirectory() as tmp:
        made = _imported(repo, read(repo, _known(top)), Path(tmp), top)
        names = _files(made) | _files(top)
        return sorted(name for name in names
                      if not (made / name).is_file() or not (top / name).is_file()
                      or (made / name).read_bytes() != (top / name).read_bytes())


def _files(top: Path) -> Set[str]:
    """Return the paths of all files that import writes."""
    every = patches.topics(top)
    return {"patches/series", *(f"patches/{topic.patch.name}" for topic in every),
            *(f"patches/{patches.cover(name, top).name}" for name in patches.posted(top)),
            *patches.new_files(every)}


def _prove(repo: Repository, made: Path, scratch: Path) -> None:
    """Raise Failure unless a branch from what was imported has the same trees as this one."""
    again = Repository(scratch)
    again.init()
    base = repo.git("rev-parse", f"{BASE}^{{commit}}").strip()
    (scratch / ".git/objects/info").mkdir(exist_ok=True)
    (scratch / ".git/objects/info/alternates").write_text(f"{repo.path.resolve()}/.git/objects\n")
    add_commits(again, base, made)
    logs = [[line.split(" ", 1) for line in where.git(
        "log", "--format=%T %s", f"{base}..{_HEADS}{_last(made)}").splitlines()][::-1]
        for where in (repo, again)]
    for (tree, subject), (other, _) in zip(*logs, strict=True):
        if tree != other:
            raise Failure(f"The commit \"{subject}\" can't be a patch: applied, it would make "
                          "other files; does it have links, or other things than text?")


def _replace(repo: Repository, made: Path, top: Path) -> None:
    """Write the imported files over those of the repository, and remove what has gone."""
    listing = repo.path / ".git" / "guest-callchains-gone"
    wanted = _files(made)
    gone = set() if _config(repo, _STATE) == _IMPORTING else _files(top) - wanted
    if listing.exists():
        # An import was interrupted.
        gone |= set(listing.read_text().split("\n")) - wanted - {""}
    listing.write_text("\n".join(sorted(gone)))
    repo.git("config", _STATE, _IMPORTING)
    # Write the list of all patches when they are there.
    for name in sorted(wanted, key=lambda name: name == "patches/series"):
        patches.update(top / name, (made / name).read_bytes(), (made / name).stat().st_mode)
    for name in gone:
        (top / name).unlink(missing_ok=True)
        _remove_empty((top / name).parent, top)
    listing.unlink()


def _final(repo: Repository, commits: Sequence[Commit]) -> Dict[str, bytes]:
    """Return the new files as the last commit has them; a commit may have renamed them."""
    again = [path for commit in commits for path in commit.added if path in repo.files(BASE)]
    if again:
        raise Failure(f"A commit removes Linux's {again[0]}, and another one creates it; squash "
                      "these")
    ours = {path for commit in commits for path in commit.added}
    for commit in commits:
        for old, new in commit.renamed:
            if old in ours:
                ours.add(new)
    there = ours & repo.files("HEAD").keys()
    elsewhere = [path for path in there if not patches.may_be_new(path)]
    if elsewhere:
        raise Failure(f"A commit moves a new file to {elsewhere[0]}, where new files of this "
                      "repository can't be")
    # The work tree may have other ends of lines.
    return {path: repo.blob(f"HEAD:{path}") for path in there}


def _imported(repo: Repository, commits: Sequence[Commit], tmp: Path, top: Path) -> Path:
    """Write what import makes of the commits to a folder, and return the folder."""
    made = tmp / "made"
    names = _names(commits, top)
    for commit, name in zip(commits, names):
        text = f"Subject: {commit.message}" + (f"\n{commit.diff}" if commit.diff else "")
        patches.update(made / "patches" / name, patches.encode(text))
    for path, data in _final(repo, commits).items():
        patches.update(made / path, data, int(repo.files("HEAD")[path], 8) & 0o777)
    for series in dict.fromkeys(commit.series for commit in commits):
        text = _config(repo, _description(series))
        if text:
            patches.update(patches.cover(series, made), patches.encode(text.rstrip("\n") + "\n"))
    patches.update(made / "patches/series", _listing(commits, names).encode())
    return made


def _listing(commits: Sequence[Commit], names: Sequence[str]) -> str:
    lines = [_SERIES_HEAD]
    series = ""
    for commit, name in zip(commits, names):
        if commit.series != series:
            series = commit.series
            lines.append(f"\n[{series}]\n")
        lines.append(f"{name}\n")
        lines += [f"\t{path}\n" for path in sorted(commit.added)]
    return "".join(lines)


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
