"""Run the commands of docs/evidence.md again, and keep what they print.

    python -m tests.benchmarks.evidence [--out FOLDER] [--list] [WORD ...]

Each section of the page names the commands that made its figures. This runs those of
all sections, or of the sections whose titles have one of the words in them, and writes
what they print to a Markdown file of each section, after the commit, the date and the
machine. All of them take some hours. The page has the most telling rows; whoever
measures again compares them with these files, and changes the commit and the date.

``AUDIO_CORPORA`` names the folder of real recordings that some commands need.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence.md"

# A command stands in backticks, and begins with one of these.
COMMAND = re.compile(
    r"`((?:python -m tests|python -m pytest|python launch|bash)[^`]+)`"
)
# How the page spells folders, and where they are below AUDIO_CORPORA.
FOLDERS = {"CORPORA": ".", "FOLDER": "fsdd", "FSDD_FOLDER": "fsdd"}


def commands_of(page: str) -> dict[str, list[str]]:
    """Returns the commands of each section of the page, by its title."""
    sections = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    titles, texts = sections[::2], sections[1::2]
    return {
        title: list(dict.fromkeys(COMMAND.findall(" ".join(text.split()))))
        for title, text in zip(titles, texts, strict=True)
    }


def arguments_of(command: str) -> list[str]:
    """Returns the words of a command, with this Python and with real folders."""
    corpora = Path(os.environ.get("AUDIO_CORPORA", "AUDIO_CORPORA"))
    words = [
        str(corpora / FOLDERS[word]) if word in FOLDERS else word
        for word in shlex.split(command)
    ]
    return [sys.executable, *words[1:]] if words[0] == "python" else words


def run(command: str) -> str:
    """Returns a command and what it printed, as Markdown."""
    done = subprocess.run(
        arguments_of(command), cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    status = f"\n\nIt ended with status {done.returncode}." if done.returncode else ""
    return f"`{command}`\n\n{done.stdout.strip()}{status}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="of the titles of sections")
    parser.add_argument("--out", default="evidence", help="a folder for the files")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    ).stdout.strip()  # fmt: skip
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    for title, commands in commands_of(PAGE.read_text()).items():
        if options.words and not any(w in title.lower() for w in options.words):
            continue
        if options.list:
            print(title, *commands, sep="\n    ")
            continue
        print(f"{title} ...", flush=True)
        head = f"# {title}\n\n`{commit}`, {date.today()}, {machine}\n"
        file = Path(options.out, f"{title.lower().replace(' ', '-')}.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([head, *map(run, commands)]))


if __name__ == "__main__":
    main()
