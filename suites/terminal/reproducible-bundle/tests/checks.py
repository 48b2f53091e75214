"""Judges the carried archive and the script: CTRF in /logs/verifier/ctrf.json; the reward is 1 when all checks pass."""
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile

SCRIPT, ARCHIVE = "/app/bundle.sh", "/app/out/project.tar.gz"
results = []


def check(function):
    try:
        function()
        status = "passed"
    except Exception as error:
        status = "failed"
        print(f"{function.__name__}: {error!r}")
    results.append({"name": function.__name__.replace("_", "-"), "status": status, "duration": 0})


def entries(path):
    with tarfile.open(path) as archive:
        return [(entry.name, entry.mode, entry.isdir()) for entry in archive]


def members(path):
    with tarfile.open(path) as archive:
        return archive.getmembers()


def bundle(folder, archive, **env):
    subprocess.run(["bash", SCRIPT, folder, archive], check=True, env={**os.environ, **env}, timeout=30)


def folder_of_its_own():
    folder = os.path.join(tempfile.mkdtemp(), "a folder")
    for path, mode in (("x y", 0o640), ("-dash", 0o711), ("ä", 0o600), ("B/.git/config", 0o644), ("B/c~", 0o644), ("B/d", 0o755), ("B.txt", 0o444)):
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w") as stream:
            stream.write(path * 100)
        os.chmod(os.path.join(folder, path), mode)
    os.symlink("/etc/passwd", os.path.join(folder, "B", "link"))
    os.mkdir(os.path.join(folder, "~"))
    return folder


@check
def entries_of_the_project():
    names = [name.removeprefix("./") if name != "." else "" for name, *_ in entries(ARCHIVE)]
    assert [name for name in names if name] == ["Zed", "b", "b/deep.txt", "empty", "notes.txt", "run"], names
    assert {name.removeprefix("./"): mode for name, mode, directory in entries(ARCHIVE) if not directory} == {
        "Zed": 0o644,
        "b/deep.txt": 0o644,
        "notes.txt": 0o644,
        "run": 0o755,
    }


@check
def owners_and_times_of_the_project():
    assert all((entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) == (0, 0, "", "", 0) for entry in members(ARCHIVE))


@check
def names_begin_with_a_dot():
    raw = gzip.decompress(open(ARCHIVE, "rb").read())
    headers, place = [], 0
    while place < len(raw) and raw[place]:
        headers.append(raw[place : place + 100].rstrip(b"\0").decode())
        place += 512 + (int(raw[place + 124 : place + 135], 8) + 511) // 512 * 512
    assert len(headers) == len(members(ARCHIVE)) and all(name.startswith("./") for name in headers), headers


@check
def gzip_header_is_empty():
    data = open(ARCHIVE, "rb").read()
    assert data[3] == 0 and data[4:8] == bytes(4)


@check
def sha256_line():
    digest = hashlib.sha256(open(ARCHIVE, "rb").read()).hexdigest()
    assert open(ARCHIVE + ".sha256").read() == f"{digest}  project.tar.gz\n"


@check
def same_bytes_elsewhere():
    folder, work = folder_of_its_own(), tempfile.mkdtemp()
    copy = os.path.join(tempfile.mkdtemp(), "copy")
    bundle(folder, f"{work}/one.tar.gz")
    shutil.copytree(folder, copy, symlinks=True)
    for path, _, files in os.walk(copy):
        for name in files:
            os.utime(os.path.join(path, name), (1, 1), follow_symlinks=False)
            os.chown(os.path.join(path, name), 1234, 1234, follow_symlinks=False)
    bundle(copy, f"{work}/two.tar.gz", LC_ALL="C.UTF-8", TZ="Asia/Tokyo")
    assert open(f"{work}/one.tar.gz", "rb").read() == open(f"{work}/two.tar.gz", "rb").read()


@check
def other_names_and_modes():
    work = tempfile.mkdtemp()
    folder = folder_of_its_own()
    bundle(folder, f"{work}/deep/one.tar.gz", SOURCE_DATE_EPOCH="1700000000")
    found = [(name.removeprefix("./"), mode) for name, mode, _ in entries(f"{work}/deep/one.tar.gz") if name not in (".", "./")]
    assert found == [("-dash", 0o755), ("B", 0o755), ("B.txt", 0o644), ("B/d", 0o755), ("x y", 0o644), ("~", 0o755), ("ä", 0o644)], found
    assert {entry.mtime for entry in members(f"{work}/deep/one.tar.gz")} == {1700000000}
    assert os.stat(os.path.join(folder, "ä")).st_mode & 0o777 == 0o600


passed = sum(result["status"] == "passed" for result in results)
os.makedirs("/logs/verifier", exist_ok=True)
with open("/logs/verifier/ctrf.json", "w") as stream:
    json.dump({"results": {"tool": {"name": "checks.py"}, "summary": {"tests": len(results), "passed": passed}, "tests": results}}, stream)
with open("/logs/verifier/reward.txt", "w") as stream:
    stream.write(f"{int(passed == len(results))}\n")
