"""The tarball and the image: what is in them, and that they run where nothing else is."""

import hashlib
import json
import re
import socket
import struct
import subprocess
import tarfile
import threading

import pytest
from conftest import DIST, ROOT, VERSION, Server, ask, free_port, run

# What the program is linked for (packaging/common.sh).
GLIBC_MAX = (2, 28)


def test_every_artefact_has_its_sum():
    sums = dict(reversed(line.split("  ")) for line in (DIST / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path for path in DIST.iterdir() if path.name != "SHA256SUMS"}
    assert sums.keys() == files.keys()
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sums[name], name


def test_the_bill_of_materials_names_every_crate():
    bill = json.loads((DIST / f"tidegate-{VERSION}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5"
    assert bill["metadata"]["component"]["name"] == "tidegate"
    assert str(ROOT) not in json.dumps(bill)
    named = {(part["name"], part["version"]) for part in bill["components"]}
    target = "x86_64-unknown-linux-gnu"
    tree = run("cargo", "tree", "--locked", "--package", "tidegate", "--edges", "normal", "--target", target, "--prefix", "none", cwd=ROOT)
    linked = {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, tree.splitlines())}
    assert linked - named - {("tidegate", VERSION)} == set()
    assert len(linked) > 50


def test_the_program_asks_for_no_newer_glibc(unpacked):
    symbols = run("objdump", "-T", unpacked / "tidegate")
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", symbols)}
    assert versions and max(versions) <= GLIBC_MAX


def test_no_path_of_the_machine_that_built_it_is_inside(unpacked):
    program = (unpacked / "tidegate").read_bytes()
    assert str(ROOT).encode() not in program and b"/.cargo/registry" not in program


def test_the_tarball_has_what_it_takes_and_belongs_to_nobody(unpacked):
    for name in ("LICENSE", "README.md", "THIRD-PARTY-LICENSES.txt", "tidegate.service", "man/tidegate.1", "man/tidegate-serve.1",
                 "completions/tidegate.bash", "completions/_tidegate", "completions/tidegate.fish", "docs/install.md"):
        assert (unpacked / name).stat().st_size > 0, name
    with tarfile.open(DIST / f"tidegate-{VERSION}-linux-x86_64.tar.gz") as packed:
        members = packed.getmembers()
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert len({member.mtime for member in members}) == 1


def check_serving(root, port, program, started):
    """A publication goes through the program that runs in `root`, told by names that have to be resolved there."""
    try:
        tool = ["chroot", root, program]
        assert ask(port, "/ready")
        run(*tool, "pub", "a/b", '{"x":1}', "--server", f"ws://there:{port}")
        assert json.loads(run(*tool, "get", "a/b", "--server", f"ws://named:{port}")) == {"x": 1}
    finally:
        assert started.stop() == 0


class Names:
    """A name server on the port where glibc looks for one: it knows `named`."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.asked = set()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(512)
            except OSError:
                return
            self.socket.sendto(self.answer(question), peer)

    def answer(self, question):
        """RFC 1035: the question again, with one address if it asks for one (type 1)."""
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        self.asked.add(".".join(labels))
        (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
        is_known = kind == 1 and labels == ["named"]
        head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(is_known), 0, 0)
        record = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton("127.0.0.1")
        return head + question[12 : at + 5] + (record if is_known else b"")


@pytest.fixture(scope="session")
def name_server():
    return Names()


@pytest.fixture
def names(name_server):
    name_server.asked.clear()
    return name_server


def give_names(root):
    (root / "etc/hosts").write_text("127.0.0.1 localhost there\n")
    (root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\noptions ndots:0 timeout:5 attempts:2\n")


def test_the_program_runs_on_an_old_system(unpacked, debian_11, names):
    run("cp", unpacked / "tidegate", debian_11 / "usr/local/bin/")
    assert "2.31" in run("chroot", debian_11, "ldd", "--version")
    give_names(debian_11)
    port = free_port()
    program = "/usr/local/bin/tidegate"
    command = ["chroot", debian_11, program, "serve", "--listen", f"127.0.0.1:{port}"]
    check_serving(debian_11, port, program, Server(command, port))
    assert "named" in names.asked


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """The image's folder of layouts, and its configuration."""
    folder = tmp_path_factory.mktemp("image")
    run("tar", "--directory", folder, "-xf", DIST / f"tidegate-{VERSION}-oci-x86_64.tar")

    def blob(descriptor):
        algorithm, _, digest = descriptor["digest"].partition(":")
        path = folder / "blobs" / algorithm / digest
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
        return path

    manifest = json.loads(blob(json.loads((folder / "index.json").read_text())["manifests"][0]).read_text())
    root = folder / "root"
    root.mkdir()
    for layer in manifest["layers"]:
        run("tar", "--directory", root, "--numeric-owner", "-xpf", blob(layer))
    return root, json.loads(blob(manifest["config"]).read_text())


def test_the_image_runs_unpacked_as_it_says_it_is_run(image, names):
    root, config = image
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Labels"]["org.opencontainers.image.version"] == VERSION
    give_names(root)
    port = free_port()
    command = [*config["config"]["Entrypoint"], *config["config"]["Cmd"], "--listen", f"0.0.0.0:{port}"]
    started = Server(["chroot", "--userspec=65532:65532", root, *command], port)
    check_serving(root, port, config["config"]["Entrypoint"][0], started)
    assert "named" in names.asked
    assert (root / "var/lib/tidegate/store").stat().st_uid == 65532


def test_the_image_has_nothing_to_log_in_to(image):
    root, config = image
    programs = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o111]
    allowed = ("lib/", "lib64/", "usr/bin/tidegate")
    assert "usr/bin/tidegate" in programs and all(name.startswith(allowed) for name in programs), programs
    assert 'listen = "0.0.0.0:8470"' in (root / "etc/tidegate/tidegate.toml").read_text()
    assert (root / "etc/ssl/certs/ca-certificates.crt").stat().st_size > 100_000
    assert list(config["config"]["ExposedPorts"]) == ["8470/tcp"]


def test_the_image_has_every_library_that_the_program_loads(image):
    root, _ = image
    loaded = run("chroot", root, "/lib64/ld-linux-x86-64.so.2", "--list", "/usr/bin/tidegate")
    assert "not found" not in loaded and "libc.so.6" in loaded
    assert subprocess.run(["chroot", root, "/usr/bin/tidegate", "--version"]).returncode == 0
