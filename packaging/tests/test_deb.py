"""The Debian package: installed with dpkg into a Debian 11 without systemd, and gone again."""

import os
import pathlib
import re
import signal
import subprocess

from conftest import DIST, ROOT, VERSION, Server, ask, free_port, run

PACKAGE = DIST / f"tidegate_{VERSION}_amd64.deb"
UNIT = ROOT / "packaging/deb/tidegate.service"


def install(root):
    run("cp", PACKAGE, root / "root/")
    run("chroot", root, "dpkg", "--install", f"/root/{PACKAGE.name}")
    (root / "root" / PACKAGE.name).unlink()


def listing(root):
    """Every file with its owner and rights; what dpkg writes about itself is not of the package."""
    own = ("var/lib/dpkg", "var/log", "var/cache", "var/lib/systemd/deb-systemd-helper")
    paths = (os.path.relpath(os.path.join(folder, name), root) for folder, names, files in os.walk(root) for name in [*names, *files])
    return {path: os.lstat(root / path).st_mode for path in paths if not path.startswith(own)}


def test_it_is_installed_runs_and_leaves_nothing(debian_11):
    root = debian_11
    before = listing(root)
    accounts = [(root / "etc" / name).read_text() for name in ("passwd", "group")]
    install(root)
    assert re.search(r"^tidegate:x:\d+:\d+:.*:/var/lib/tidegate:/usr/sbin/nologin$", (root / "etc/passwd").read_text(), re.MULTILINE)
    user = int(re.search(r"^tidegate:x:(\d+)", (root / "etc/passwd").read_text(), re.MULTILINE)[1])
    group = int(re.search(r"^tidegate:x:(\d+)", (root / "etc/group").read_text(), re.MULTILINE)[1])
    config, state = (root / "etc/tidegate/tidegate.toml").stat(), (root / "var/lib/tidegate").stat()
    assert (config.st_mode & 0o777, config.st_uid, config.st_gid) == (0o640, 0, group)
    assert (state.st_mode & 0o777, state.st_uid) == (0o750, user)
    assert (root / "etc/systemd/system/multi-user.target.wants/tidegate.service").is_symlink()
    serve(root, user, group)
    run("chroot", root, "dpkg", "--purge", "tidegate")
    assert [(root / "etc" / name).read_text() for name in ("passwd", "group")] == accounts
    # Copies of themselves, made by the tools that change accounts.
    backups = {f"etc/{name}-" for name in ("passwd", "group", "shadow", "gshadow")}
    assert listing(root).keys() - before.keys() <= backups
    assert before.keys() - listing(root).keys() == set()


def serve(root, user, group):
    """The unit's command, as the unit's user."""
    (command,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    port = free_port()
    words = ["chroot", f"--userspec={user}:{group}", root, *command.split(), "--listen", f"127.0.0.1:{port}"]
    started = Server(words, port)
    assert ask(port, "/health")
    assert started.stop() == 0
    assert (root / "var/lib/tidegate/store").stat().st_uid == user


def test_a_configuration_that_was_changed_outlives_removal_and_an_upgrade(debian_11):
    config = debian_11 / "etc/tidegate/tidegate.toml"
    install(debian_11)
    config.write_text("# mine\n")
    config.chmod(0o600)
    install(debian_11)
    assert (config.read_text(), config.stat().st_mode & 0o777) == ("# mine\n", 0o600)
    run("chroot", debian_11, "dpkg", "--remove", "tidegate")
    assert config.read_text() == "# mine\n" and not (debian_11 / "usr/bin/tidegate").exists()
    run("chroot", debian_11, "dpkg", "--purge", "tidegate")
    assert not config.exists()


def test_pages_and_completions_are_where_shells_look(debian_11):
    install(debian_11)
    for name in ("man/man1/tidegate.1.gz", "man/man1/tidegate-serve.1.gz", "bash-completion/completions/tidegate",
                 "zsh/vendor-completions/_tidegate", "fish/vendor_completions.d/tidegate.fish", "doc/tidegate/copyright"):
        assert (debian_11 / "usr/share" / name).stat().st_size > 0, name
    run("chroot", debian_11, "dpkg", "--verify", "tidegate")


def test_the_unit_is_well_formed(tmp_path):
    # Exit code 0 is no proof: it warns of values that it does not know. The program is not installed here.
    unit = tmp_path / "tidegate.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/tidegate", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "tidegate" in line]) == (0, [])


def test_the_unit_is_hardened():
    told = run("systemd-analyze", "security", "--offline=true", "--threshold=15", UNIT)
    assert "OK" in told.splitlines()[-1]


def allowed_calls():
    """The system calls of the unit's filter."""
    calls = {}
    name = None
    for line in run("systemd-analyze", "syscall-filter").splitlines():
        if line.startswith("@"):
            name = line.strip()
            calls[name] = set()
        elif name and line.startswith(" ") and not line.strip().startswith("#"):
            calls[name].add(line.strip())

    def flat(group):
        return set().union(*(flat(call) if call.startswith("@") else {call} for call in calls[group]))

    allowed = set()
    for filters in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        groups = set().union(*map(flat, filters.removeprefix("~").split()))
        allowed = allowed - groups if filters.startswith("~") else allowed | groups
    return allowed


def test_the_filter_of_system_calls_lets_the_server_do_its_work(unpacked, tmp_path):
    config = tmp_path / "tidegate.toml"
    config.write_text(f'[engine]\npin_cores = true\n[store]\npath = "{tmp_path}/store"\n[[topics]]\nselector = "#"\nack = "disk"\n')
    port = free_port()
    trace = tmp_path / "trace"
    command = ["strace", "--follow-forks", "--output", trace, unpacked / "tidegate", "serve", "--config", config, "--listen", f"127.0.0.1:{port}"]
    server = Server(command, port)
    for _ in range(3):
        ask(port, "/v1/publish", data=b'{"topic":"a/b","data":1}')
    ask(port, "/metrics")
    # strace hands no signal on: what it traces is its child.
    (traced,) = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    os.kill(int(traced), signal.SIGTERM)
    server.process.wait(timeout=60)
    used = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"epoll_wait", "openat", "socket"} & used
    assert used - allowed_calls() == set()


def test_lintian_finds_nothing():
    done = subprocess.run(["lintian", "--fail-on", "error,warning", "--no-tag-display-limit", PACKAGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
