"""Check that text and names use the field's plain words.

Run from the project's root (`make lint` does): every tracked source, document and notebook is read. A word that has a
reason to be there (a quotation, say) is named in ALLOWED with its file. A docstring names or instructs: it does not
begin like a question.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

INSTEAD = {
    r"tells?|told": "report, publish, say, notify",
    r"hears?|heard": "receive, see",
    r"heeds?|heeded": "handle, follow",
    r"bury|buries|buried": "reap",
    r"mends?|mended|mending": "fix, repair",
    r"who(m)?ever|somebody|anybody|nobody": "the client, the caller, a process, no process",
    r"of before": "previous",
    r"all the same": "anyway",
    r"in \S{1,12} stead": "instead of",
    r"is at it": "is working",
    r"goes over to": "transitions to",
}
ALLOWED: dict[str, set[str]] = {
    "tools/check_words.py": {"*"},
}
QUESTION = re.compile(r'\s*r?"""(What|Whether|Which|How|Where|When|Who)\b')
KINDS = ("*.py", "*.ts", "*.tsx", "*.js", "*.mjs", "*.css", "*.json", "*.md", "*.ipynb", "*.toml", "Makefile", ".ci/*")

# Underscores count as edges, so that names are checked as well as sentences.
_PATTERNS = [
    (re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE), better) for words, better in INSTEAD.items()
]


def main() -> int:
    """Print each word that has a better one; the exit status is 1 when there are any."""
    listed = subprocess.run(["git", "ls-files", *KINDS], capture_output=True, text=True, check=True).stdout
    found = 0
    for name in listed.splitlines():
        allowed = ALLOWED.get(name, set())
        path = Path(name)
        if "*" in allowed or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if name.endswith(".py") and (match := QUESTION.match(line)):
                found += 1
                print(f"{name}:{number}: {match[1]!r}: a noun phrase, or an imperative such as Return whether")
            for pattern, better in _PATTERNS:
                for match in pattern.finditer(line):
                    if match[0].lower() not in allowed:
                        found += 1
                        print(f"{name}:{number}: {match[0]!r}: {better}")
    if found:
        print(f"{found} words to replace; allow one in {Path(__file__).name} only with a reason.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
