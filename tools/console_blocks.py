"""Fenced ```console blocks of pages, as the site shows them and as tests run them.

A command begins with a prompt at the beginning of a line: `$ `, or `NAME$ ` on a page about several machines. A `\\` at the end of a
line continues the command, and a here-document ends at its word. All other lines are output."""
import re

PROMPT = re.compile(r"(?P<host>[a-z]*)\$ ")
HERE = re.compile(r"<<-?\s*(['\"]?)(?P<word>\w+)\1")


def items(lines, first=1):
    """Yields (number of the first line, host or None for output, text) of a block's lines; the text has no prompt."""
    number = 0
    while number < len(lines):
        begin, line = number, lines[number]
        number += 1
        prompt = PROMPT.match(line)
        if not prompt:
            yield first + begin, None, line
            continue
        text = [line[prompt.end():]]
        while text[-1].endswith("\\") and number < len(lines):
            text.append(lines[number])
            number += 1
        for here in HERE.finditer("\n".join(text)):
            while number < len(lines):
                text.append(lines[number])
                number += 1
                if text[-1].strip() == here.group("word"):
                    break
        yield first + begin, prompt.group("host"), "\n".join(text)


def blocks(text, language="console"):
    """Yields (number of the first line, lines, comment) of a page's fenced blocks in a language; the comment is what the line
    <!-- ... --> before the block says, or an empty string."""
    fence, taken, comment, indent = None, None, "", ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"(\s*)(```+|~~~+)\s*(\S*)", line)
        if fence is None:
            if mark:
                indent, fence = mark.group(1), mark.group(2)
                taken = [] if mark.group(3) == language else None
                first = number + 1
            else:
                said = re.fullmatch(r"\s*<!--\s*(.*?)\s*-->\s*", line)
                comment = said.group(1) if said else comment if not line.strip() else ""
        elif mark and mark.group(2).startswith(fence) and not mark.group(3):
            if taken is not None:
                yield first, taken, comment
            fence, taken, comment = None, None, ""
        elif taken is not None:
            taken.append(line[len(indent):] if line.startswith(indent) else line.lstrip())
