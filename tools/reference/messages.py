"""docs/reference/messages.md from messages.txt, whose words have to be in a message of src."""
import glob
import os
import re

HEAD = """\
# Messages

Messages that users meet, by situation: the words, the cause, the remedy. `...` stands for values.
Search the page for words of your message; [troubleshooting](../troubleshooting.md) explains the most
frequent messages at length.

Errors begin with `sotto: ` and end the command with [code 1](exit-codes.md). Warnings begin with
`warning: `, and the run continues. `rank 3 (host beta):` in front of a message says where it happened.
"""


def literals(root):
    """Returns the joined text of the string literals of every statement in src."""
    out = []
    for path in glob.glob(os.path.join(root, "src", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for statement in re.split(r"(?:;|\{)\s*\n", text):
            parts = re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r'" PRI\w+ "|" PRI\w+\n\s*"', "%", statement))
            if parts:
                out.append("".join(parts).replace('\\"', '"'))
    return out


def entries(root):
    """Yields (section, words, cause, remedy)."""
    section, lines = "", []
    with open(os.path.join(root, "tools", "reference", "messages.txt"), encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("## "):
                section = line[3:]
            elif line.startswith("    "):
                lines.append(line.strip())
            elif line and not line.startswith("#"):
                lines = [line]
            if len(lines) == 3:
                yield (section, *lines)
                lines = []


def has_in_order(text, parts):
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def is_in(words, texts):
    parts = [part.strip(" ") for part in re.split(r"\.\.\.+", words)]
    return any(has_in_order(text, parts) for text in texts)


def messages_page(root):
    texts, out, last, missing = literals(root), [HEAD], "", []
    for section, words, cause, remedy in entries(root):
        if not is_in(words, texts):
            missing.append(words)
        if section != last:
            out.append(f"\n## {section}\n\n| Message | Cause | Remedy |\n|---|---|---|\n")
            last = section
        shown = re.sub(r"\.{4,}", "...", words).replace("|", "\\|")
        out.append(f"| `{shown}` | {cause} | {remedy} |\n")
    if missing:
        raise SystemExit("messages.txt: no message of src has the words:\n    " + "\n    ".join(missing))
    return "".join(out)
