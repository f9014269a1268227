"""docs/reference/api.md and exit-codes.md, from the headers in include/sotto.

Items of a header are separated by blank lines: a comment, then a declaration or several. Every declared name becomes a heading."""
import re

HEADERS = ["sotto.h", "train.h"]


def read_header(path):
    """Returns (the comment of the file, the list of items); an item is (comment, code)."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head = re.match(r"/\*.*?\*/\n", text, re.S).group(0)
    text = text[len(head):]
    text = re.sub(r'^#ifdef __cplusplus\n.*?^#endif\n', "", text, flags=re.S | re.M)
    text = re.sub(r"^#if defined\(SOTTO_BUILD\)\n.*?^#endif\n", "", text, flags=re.S | re.M)
    text = re.sub(r"^#ifdef __GNUC__\n(.*?)^#endif\n", "", text, flags=re.S | re.M)
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    text = re.sub(r"\n +;\n", ";\n", text)
    items, block, depth = [], [], 0
    for line in text.splitlines() + [""]:
        bare = re.sub(r"/\*.*?(\*/|$)", "", line)
        if not line.strip() and depth == 0:
            if block:
                items.append(split_item("\n".join(block)))
            block = []
            continue
        depth += bare.count("{") - bare.count("}")
        block.append(line)
    return comment_text(head), items


def split_item(block):
    """Separates the comment in front from the declarations."""
    match = re.match(r"/\*.*?\*/\n?", block, re.S)
    if match and not block[:match.end()].endswith("*/"):
        return comment_text(match.group(0)), block[match.end():]
    return "", block


def comment_text(comment):
    """A comment without its marks: paragraphs separated by empty lines."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment.strip()[2:-2].splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip()


def declarations(code):
    """Yields (name, code) of every declaration; a comment at the end of its line belongs to it."""
    begin, depth, at = 0, 0, 0
    while at < len(code):
        if code.startswith("/*", at):
            at = code.index("*/", at) + 2
            continue
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if code[at] == ";" and depth == 0:
            end = re.compile(r"[ \t]*(/\*.*?\*/)?", re.S).match(code, at + 1).end()
            one = code[begin:end].strip("\n")
            yield declared_name(one), one
            begin = end
        at += 1


def declared_name(code):
    bare = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    for pattern in (r"^(?:struct|enum) (\w+)\s*[{;]", r"^typedef [^(]*?(\w+)\(", r"^SOTTO_API [^(]*?(\w+)\(",
                    r"^enum \{ (\w+)"):
        match = re.search(pattern, bare.strip())
        if match:
            return match.group(1)
    raise SystemExit("api.py: a declaration without a name: " + code)


def linked(text, names, own=()):
    """Prose as Markdown: names of the interface become links, indented lines become code."""
    out, code = [], []
    for line in text.splitlines() + [""]:
        if line.startswith("    ") or (code and not line.strip()):
            code.append(line[4:])
            continue
        if code:
            out += ["", "```c"] + "\n".join(code).strip("\n").split("\n") + ["```", ""]
            code = []
        parts = re.split(r"(`[^`]*`)", re.sub(r"(?<!\w)(\[[a-z]+\])", r"`\1`", line))
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r"([][*<>])", r"\\\1", parts[i])
            parts[i] = re.sub(r"\bsotto_\w+\b", lambda m: link(m.group(0), names, own), parts[i])
        out.append("".join(parts))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def link(name, names, own):
    return f"[`{name}`](#{name.lower()})" if name in names and name not in own else f"`{name}`"


def first_sentence(comment):
    text = " ".join(re.split(r"\n\n", comment)[0].split())
    first = re.split(r"(?<=[^ ][^ .g][.\"])[ ](?=[A-Z])", text)[0]
    return linked(first if first.endswith(".") else first.rstrip(":;,") + ".", ())


def kind_of(code):
    bare = code.lstrip()
    return ("callback" if bare.startswith("typedef") else "function" if bare.startswith("SOTTO_API") else
            "constant" if bare.startswith("enum {") else bare.split()[0])


def api_page(root):
    files = [(name, *read_header(f"{root}/include/sotto/{name}")) for name in HEADERS]
    names = {name for _, _, items in files for _, code in items for name, _ in declarations(code)}
    out = ["# API", "", "The functions, structs and constants of `libsotto`, in the order of the headers. The page is for",
           "looking up; [embedding](../library/embedding.md) is the tutorial.", "", "| Name | Kind | Meaning |", "|---|---|---|"]
    for header, _, items in files:
        for comment, code in items:
            if not comment:
                raise SystemExit("api.py: a declaration without a comment: " + code)
            for name, one in declarations(code):
                out.append(f"| [`{name}`](#{name.lower()}) | {kind_of(one)} | {first_sentence(comment)} |")
    for header, about, items in files:
        out += ["", f"## sotto/{header}", "", linked(about, names)]
        for comment, code in items:
            first = None
            for name, one in declarations(code):
                used = [n for n in re.findall(r"\bsotto_\w+", re.sub(r"/\*.*?\*/", "", one, flags=re.S)) if n in names and n not in (name, "sotto_status")]
                text = linked(comment, names, (name,)) if not first else f"See [`{first}`](#{first.lower()})."
                out += ["", f"### {name}", ""] + ([text, ""] if text else [])
                out += ["```c", re.sub(r"\n {10}", "\n", one.replace("SOTTO_API ", "")) if one.startswith("SOTTO_API") else one, "```"]
                if used:
                    out += ["", "Uses " + ", ".join(link(n, names, ()) for n in dict.fromkeys(used)) + "."]
                first = first or name if comment else None
    return "\n".join(out) + "\n"


CODES = """\
# Exit codes

What `sotto` returns to the shell, and the codes of the library. For scripts that start runs.

## Codes of the command

| Code | Meaning |
|---|---|
| 0 | Success. A resumed run with nothing left to do is a success, too. |
| 1 | An error: the last line on standard error begins with `sotto: ` and has the cause. [Messages](messages.md) lists causes and remedies. |
| 130 | Stopped by SIGINT (Ctrl-C). Everything is saved; `sotto train --resume RUN` continues. |
| 143 | Stopped by SIGTERM, as 130. |
| 129 | Stopped by SIGHUP (the terminal was closed), as 130. A run under `nohup` continues instead. |
| 141 | Stopped by SIGPIPE (the reader of the output, such as `head`, has ended), as 130. |

A code over 128 is 128 and the number of the signal. A second signal ends the process at once with the
same code: the newest checkpoint is then what remains.

`sotto compare` returns 1 if a run failed or an expectation does not hold. The other runs are made and the
other expectations are checked before.

Under `mpirun` or `srun` the shell sees the launcher's code. With Open MPI that is 1 after an error, and
1 after Ctrl-C, too: `complete` in `report.json` tells a finished run from a stopped run.

## Codes of the library

Functions of [the API](api.md) return an `enum sotto_status`. `sotto_error()` returns the message and
`sotto_status_name()` the word in the third column.

| Number | Constant | Name | Meaning |
|---|---|---|---|
"""


def codes_page(root, statuses):
    """`statuses`: lines of number and name, which the library prints."""
    words = dict(line.split("\t") for line in statuses.splitlines())
    _, items = read_header(f"{root}/include/sotto/sotto.h")
    body = next(code for _, code in items if code.startswith("enum sotto_status {"))
    rows = []
    for number, match in enumerate(re.finditer(r"^    (SOTTO_\w+)(?: = \d+)?,\s*(?:/\* (.*?)\s*\*/)?$", body, re.M)):
        meaning = match.group(2) or "success"
        rows.append(f"| {number} | `{match.group(1)}` | {words[str(number)]} | {meaning[0].upper() + meaning[1:]}. |")
    if len(rows) != len(words):
        raise SystemExit("api.py: enum sotto_status and sotto_status_name differ")
    return CODES + "\n".join(rows) + "\n"
