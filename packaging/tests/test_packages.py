"""The packages for npm, PyPI and crates.io: installed into an empty folder by their README's first command, and used."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from conftest import DIST, ROOT, VERSION, run

NPM = DIST / f"tidegate-client-{VERSION}.tgz"
WHEEL = DIST / f"tidegate-{VERSION}-py3-none-any.whl"


def first_command(readme):
    """The first indented line: what a reader types first."""
    return re.search(r"^    (\S.*)$", readme, re.MULTILINE)[1]


def first_example(readme, language):
    return re.search(rf"```{language}\n(.*?)```", readme, re.DOTALL)[1]


def printed(command, wanted, folder):
    """Waits for a line; an example need not end by itself."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as example:
        try:
            return next(line for line in example.stdout if wanted in line)
        finally:
            example.kill()


def test_the_npm_package_works_as_its_readme_says(tmp_path, server):
    with tarfile.open(NPM) as packed:
        readme = packed.extractfile("package/README.md").read().decode()
        about = json.load(packed.extractfile("package/package.json"))
        assert b"Apache License" in packed.extractfile("package/LICENSE").read()
    assert about["license"] == "Apache-2.0" and about["repository"]["directory"] == "sdk/typescript"
    shutil.copy(NPM, tmp_path)
    run("bash", "-c", first_command(readme), cwd=tmp_path)
    example = first_example(readme, "ts").replace("localhost:8470", f"127.0.0.1:{server.port}")
    (tmp_path / "first.mjs").write_text(example)
    assert "eur-usd" in printed(["node", "first.mjs"], "prices/", tmp_path)
    (tmp_path / "other.cjs").write_text('console.log(typeof require("@tidegate/client").Client)')
    assert run("node", "other.cjs", cwd=tmp_path) == "function\n"


def test_the_wheel_works_as_its_readme_says(tmp_path, server):
    with zipfile.ZipFile(WHEEL) as packed:
        names = packed.namelist()
        about, _, readme = packed.read(f"tidegate-{VERSION}.dist-info/METADATA").decode().partition("\n\n")
    assert "License-Expression: Apache-2.0" in about and any(name.endswith("licenses/LICENSE") for name in names)
    assert "](../" not in readme
    shutil.copy(WHEEL, tmp_path)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    inside = {**os.environ, "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run("bash", "-c", first_command(readme), cwd=tmp_path, env=inside)
    example = first_example(readme, "python").replace("localhost:8470", f"127.0.0.1:{server.port}")
    (tmp_path / "first.py").write_text(example)
    assert "eur-usd" in run(tmp_path / "venv/bin/python", "first.py", cwd=tmp_path)


def contents(wheel):
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_the_source_distribution_makes_the_same_wheel(tmp_path):
    run("tar", "--directory", tmp_path, "-xzf", DIST / f"tidegate-{VERSION}.tar.gz")
    folder = tmp_path / f"tidegate-{VERSION}"
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "again", cwd=folder)
    assert contents(tmp_path / "again" / WHEEL.name) == contents(WHEEL)


def test_the_crates_carry_licence_and_readme_and_nothing_of_ours_besides():
    for name in ("tidegate-model", "tidegate-payload", "tidegate-protocol", "tidegate-client"):
        with tarfile.open(DIST / f"{name}-{VERSION}.crate") as packed:
            inside = {member.name.partition("/")[2] for member in packed.getmembers()}
        assert {"Cargo.toml", "LICENSE", "src/lib.rs"} <= inside
        others = {path for path in inside if not path.startswith("src/")}
        assert others <= {"Cargo.toml", "Cargo.toml.orig", "Cargo.lock", "LICENSE", "README.md", ".cargo_vcs_info.json"}


def test_all_copies_of_the_licence_are_the_same():
    licence = (ROOT / "LICENSE").read_bytes()
    for folder in ("crates/model", "crates/payload", "crates/protocol", "crates/client", "sdk/python", "sdk/typescript"):
        assert (ROOT / folder / "LICENSE").read_bytes() == licence, folder


def test_the_release_script_publishes_nothing_by_itself(tmp_path):
    called = tmp_path / "called"
    for name in ("cargo", "npm", "twine", "gh", "buildah", "skopeo"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> "{called}"\n')
        tool.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = run(ROOT / "packaging/release", env=environment)
    for word in ("npm publish", "twine upload", "cargo publish", "gh release create", "skopeo copy"):
        assert word in told
    assert not called.exists()
