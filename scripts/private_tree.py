# SPDX-License-Identifier: Apache-2.0
"""A private copy of the working tree, for scripts that break their sources on purpose."""
import os
import subprocess
from pathlib import Path


def write(path, content, mode=None):
    """Makes the file what `content` is. A file that is so already keeps its time, so that builds
    stay short."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if mode is not None:
        path.chmod(mode)


def copy_tree(root, tree, leave=()):
    """Makes `tree` what the working tree at `root` is, but for its folder build and the files of
    `leave`, which the caller writes. Undoes what a killed run left there."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root,
                             check=True, capture_output=True).stdout
    wanted = {Path(os.fsdecode(name)) for name in listing.split(b"\0") if name}
    wanted = {name for name in wanted if (root / name).is_file()}
    for name in wanted - {Path(name) for name in leave}:
        write(tree / name, (root / name).read_bytes(), (root / name).stat().st_mode)
    for folder, folders, files in os.walk(tree):
        here = Path(folder).relative_to(tree)
        if here == Path("."):
            folders[:] = [name for name in folders if name not in ("build", ".git")]
        for name in files:
            if here / name not in wanted and str(here / name) not in leave and name != ".git":
                (tree / here / name).unlink()
