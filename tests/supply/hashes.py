"""Write constraints.hashes.txt: the SHA-256 of every file that constraints.txt may install.

Run `make constraints` after a change of constraints.txt; it needs the network. The hashes are those
of pypi.org for CPython 3.11 to 3.13 on Linux (x86-64). torch is left out, because the build that a
machine's pip prefers (for its CPU or GPU) is not the one of pypi.org.
"""

import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("torch",)
_FITS = re.compile(
    r"-(?:cp31[123]|cp3\d+-abi3|py3|py2\.py3)[^/]*-(?:any|manylinux[^/]*x86_64[^/]*)\.whl$|\.tar\.gz$"
)


def pinned():
    """Return the versions of constraints.txt by name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def hashes_of(name, version):
    """Return the hashes of the files of a version, wheels if there are any that fit."""
    address = f"https://pypi.org/simple/{re.sub(r'[-_.]+', '-', name).lower()}/"
    with urllib.request.urlopen(address, timeout=60) as page:
        text = page.read().decode()
    links = re.findall(r'href="[^"#]*/([^"/#]+)#sha256=([0-9a-f]{64})"', text)
    wanted = re.sub(r"[-_.]+", "[-_.]+", re.escape(version).replace(r"\.", "."))
    of_version = re.compile(rf"^[\w.]+?-{wanted}(?:-|\.tar\.gz$)", re.IGNORECASE)
    fitting = [
        (file, digest) for file, digest in links if of_version.match(file.replace("%2B", "+"))
    ]
    wheels = [digest for file, digest in fitting if _FITS.search(file) and file.endswith(".whl")]
    return wheels or [digest for file, digest in fitting if file.endswith(".tar.gz")]


def main():
    versions = {name: one for name, one in pinned().items() if name not in LEFT_OUT}
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(versions, pool.map(hashes_of, versions, versions.values()), strict=True))
    missing = [name for name, hashes in found.items() if not hashes]
    if missing:
        sys.exit(f"pypi.org has no fitting file of {', '.join(missing)}.")
    lines = ["# Made by `make constraints`; see SECURITY.md for how to install with it."]
    for name, version in versions.items():
        marks = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(set(found[name])))
        lines.append(f"{name}=={version}{marks}")
    (ROOT / "constraints.hashes.txt").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
