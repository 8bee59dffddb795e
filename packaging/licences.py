"""Prints the licences of all crates inside the program, each text once: `licences.py TARGET`."""

import json
import pathlib
import re
import subprocess
import sys

NAMES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*words):
    return subprocess.run(["cargo", *words], check=True, capture_output=True, text=True).stdout


def crates(target):
    """Name and version of each crate that is linked into the program; procedural macros are not."""
    tree = cargo("tree", "--locked", "--package", "tidegate", "--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none")
    return sorted({tuple(line.split()[:2]) for line in tree.splitlines()})


def texts(folder):
    files = sorted(path for path in folder.iterdir() if path.is_file() and NAMES.match(path.name))
    return [path.read_text(errors="replace").strip() for path in files]


def main():
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    known = {(package["name"], "v" + package["version"]): package for package in packages}
    users = {}  # a text without its line breaks: the text, and who is under it
    print("Tidegate contains these crates, under these licences. Their texts follow.\n")
    for name, version in crates(sys.argv[1]):
        package = known[name, version]
        if package["source"] is None:
            continue  # ours
        print(f"{name} {version[1:]}: {package['license']}")
        for text in texts(pathlib.Path(package["manifest_path"]).parent):
            users.setdefault(" ".join(text.split()), (text, []))[1].append(name)
    for text, names in users.values():
        print(f"\n{'=' * 100}\n{', '.join(names)}\n{'=' * 100}\n\n{text}")


main()
