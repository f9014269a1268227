#!/usr/bin/env python3
"""Runs the commands of a page, as a reader would type them, in an empty folder.

    tests/docs/commands.py SOTTO PAGE...

Commands are the lines of ```console blocks that begin with "$ " (tools/console_blocks.py), in the page's order, all in one shell.
Each has to succeed; a line <!-- fails --> before a block says that the block's last command has to fail. Prompts with a name
(alpha$) belong to other tests. `sotto` and `mpirun` are this program: it makes runs small and calls the real ones. Sizes that the
page gives are replaced, everything else stays as typed, so that a mistyped option or a combination that is refused fails the test.
Comparisons that compute nothing (train.oracle = null) run as they are and have to print what the page shows.
What a reader has and the test has not: $SOTTO, the root of the tree."""
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# ---- the commands `sotto` and `mpirun` of the page ----

IMAGES = {"mlp", "resnet", "vit"}
IMAGE_FORMATS = {"cifar10", "cifar100", "idx", "images"}
LENGTHS = ("steps", "tokens", "samples", "seconds")
SIZES = {"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def number(text):
    found = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kMGBT]?)", text)
    return float(found.group(1)) * SIZES.get(found.group(2), 1) if found else None


def fewer(steps):
    """A small number of steps; more steps stay more."""
    n = int(steps)
    if n <= 10:
        return n
    shown, begin = 10, 10
    while begin * 1.25 < n:  # a step more for every quarter
        begin *= 1.25
        shown += 1
    return 4 + (shown - 10) // 6 if "DOCS_RANKS" in os.environ else shown


def read_ini(path, seen=()):
    """Keys of a configuration or of a comparison's base, and whether anything in it computes nothing."""
    keys, section = {}, "train"
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return keys
    for line in lines:
        line = re.sub(r"(^|\s)[;#].*", "", line).strip()
        head = re.fullmatch(r"\[\s*([^\]]*?)\s*\]", line)
        key, mark, value = (s.strip() for s in line.partition("="))
        if head:
            section = head.group(1)
        elif mark and section == "compare" and key == "base" and path not in seen:
            keys.update(read_ini(os.path.join(os.path.dirname(path), value), (*seen, path)))
        elif mark and section != "compare" and not (section.startswith("run ") and key in keys):
            keys[key if section in ("base", "model", "data", "train") or section.startswith("run ") else f"{section}.{key}"] = value
    return keys


def small(command, arguments):
    """The options to add to a command of sotto, and whether they change what it computes."""
    keys, files = {}, []
    for argument in arguments:
        option = re.fullmatch(r"--([^=]+)(?:=(.*))?", argument, re.S)
        if option:
            keys[option.group(1)] = option.group(2) if option.group(2) is not None else "true"
        else:
            files.append(argument)
    if command in ("train", "compare"):
        for path in files:
            if path.endswith(".ini"):
                keys = {**read_ini(path), **keys}
    get = {}
    for key, value in keys.items():
        key = "preset" if key == "model" else key
        get[key.rsplit(".", 1)[-1] if key.split(".")[0] in ("train", "model", "data") else key] = value
    if "help" in get or "list" in get or (get.get("oracle") == "null" and command == "compare"):
        return [], False
    if command == "sample":
        return ["--tokens=%d" % min(20, number(get.get("tokens", "20")) or 20)], True
    if command == "eval":
        return (["--batches=2"] + (["--data.stories=60"] if "stories" in get.get("valid", "") else [])), True
    if command not in ("train", "compare"):
        return [], False
    stories = "stories" in get.get("train", "") + get.get("format", "") + get.get("valid", "")
    few = ["--data.stories=60"] if stories else []
    if get.get("oracle") == "null":
        return [], False
    more = few + ["--train.eval_batches=2"]
    images = (get.get("arch") in IMAGES or get.get("format") in IMAGE_FORMATS
              or re.match(r"(mlp|resnet|vit)", get.get("preset", "")) or any(k.split(".")[0] in IMAGES for k in keys))
    begun = "init" in get or "resume" in get
    if "resume" in get and not [k for k in LENGTHS if k in get]:
        pass
    elif number(get.get("steps", "")) is not None:
        more.append("--train.steps=%d" % fewer(number(get["steps"])))
    elif "tokens" in get or "samples" in get:
        rounds = (number(get.get("tokens", "")) or 0) / 1024 or (number(get.get("samples", "")) or 0) / 8
        more.append("--train.steps=%d" % max(1, fewer(rounds)))
    else:
        more.append("--train.steps=%d" % fewer(1000))
    for key in ("eval_every", "save_every", "log_every"):  # as often in a run as typed
        every, steps = number(get.get(key, "")), number(get.get("steps", "1000"))
        if every:
            more.append("--train.%s=%d" % (key, max(1, round(every * fewer(steps) / steps))))
    if images:
        return more + ["--train.batch=4"], True
    more += ["--train.batch=4", "--train.seq=32"]
    if begun:
        return more, True
    preset = get.get("preset", "nano")
    if preset.startswith(("gpt2", "nano", "gpt-neo", "olmo2", "diloco")) or "arch" in get:
        more += ["--model.layers=%d" % min(2 if get.get("strategy") != "cdp" else 4, number(get.get("layers", "2")) or 2),
                 "--model.width=32", "--model.heads=2", "--model.positions=64"]
        if "kv_heads" in get:
            more.append("--model.kv_heads=%d" % min(2, number(get["kv_heads"])))
        if "mlp_width" in get:
            more.append("--model.mlp_width=64")
        if "head_width" in get:
            more.append("--model.head_width=16")
    if not get.get("tokenizer") and get.get("format") not in ("tokens", "raw16"):
        more.append("--data.vocab=300")
    return more, True


def existing(argument):
    """A checkpoint of a run as the page names it has another number here: the oldest that there is."""
    found = re.fullmatch(r"((?:--[a-z_.]+=)?)(.*/checkpoints)/step-\d+(/.*)?", argument)
    if not found or os.path.exists(argument[len(found.group(1)):]) or not os.path.isdir(found.group(2)):
        return argument
    names = sorted(n for n in os.listdir(found.group(2)) if n.startswith("step-"))
    return "".join((found.group(1), found.group(2), "/", names[0], found.group(3) or "")) if names else argument


def without_gpu(argument):
    return re.sub(r"^(--(?:train\.)?device=)(cuda|auto).*", r"\1cpu", argument) if os.environ["DOCS_GPU"] == "no" else argument


def run_sotto(arguments):
    real = os.environ["DOCS_SOTTO"]
    arguments = [without_gpu(existing(a)) for a in arguments]
    more, changes = small(arguments[0], arguments[1:]) if arguments else ([], False)
    if arguments[:1] == ["compare"] and not changes:
        write(f"{os.environ['DOCS']}/exact.{os.environ['DOCS_number']}", "")
    if arguments[:1] != ["compare"] or not changes:
        os.execv(real, [real, *arguments, *more])
    # What a small comparison does not meet is what the page expects of the large one.
    done = subprocess.run([real, *arguments, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sys.stdout.write(done.stdout)
    judged = re.findall(r"^FAILED  .*  \(.* (?:<|<=|>|>=|==) .*\)$", done.stdout, re.M)
    other = [line for line in re.findall(r"^.*FAILED.*$", done.stdout, re.M) if line not in judged]
    return 0 if judged and not other else done.returncode


def run_mpirun(arguments):
    """The launcher on this machine alone, whatever hosts the page names; threads where there is no launcher."""
    ranks, kept, program = 0, [], []
    while arguments and not program:
        word = arguments.pop(0)
        if word in ("-n", "-np", "--np"):
            ranks = int(arguments.pop(0))
        elif word in ("-H", "--host", "-host"):
            hosts = arguments.pop(0).split(",")
            ranks = ranks or sum(int((h.split(":") + ["1"])[1]) for h in hosts)
        elif word in ("--hostfile", "-hostfile", "--machinefile", "-machinefile"):
            with open(arguments.pop(0), encoding="utf-8") as file:
                slots = [int((re.findall(r"slots=(\d+)", h) + ["1"])[0]) for h in file if h.split("#")[0].strip()]
            ranks = ranks or sum(slots)
        elif word in ("--map-by", "-map-by"):
            arguments.pop(0)
        elif word in ("--bind-to", "-bind-to"):
            kept += [word, arguments.pop(0)]
        elif word in ("--mca", "-mca"):
            key, value = arguments.pop(0), arguments.pop(0)
            kept += [] if key.endswith(("_if_include", "_if_exclude")) else [word, key, value]
        elif word == "-x":
            kept += [word, arguments.pop(0)]
        elif word.startswith("-"):
            kept.append(word)
        else:
            program = [word, *arguments]
    launcher = os.environ.get("DOCS_LAUNCHER", "").split()
    os.environ["DOCS_RANKS"] = "yes"
    if launcher:
        os.execv(launcher[0], [*launcher, *kept, "-n", str(ranks or 2), *program])
    os.execvp(program[0], [*program, f"--workers={ranks or 2}"])


# ---- the test ----

DRIVER = r"""
shopt -s expand_aliases
export DOCS_number=0
while [ -e "$DOCS/command.$DOCS_number" ]; do
    eval "$(cat "$DOCS/command.$DOCS_number")" >"$DOCS/out.$DOCS_number" 2>&1 </dev/null
    echo "$?" >"$DOCS/code.$DOCS_number"
    DOCS_expected=$(cat "$DOCS/expected.$DOCS_number")
    case $(cat "$DOCS/code.$DOCS_number") in
    0) [ "$DOCS_expected" = 0 ] || exit 1 ;;
    *) [ "$DOCS_expected" != 0 ] || exit 1 ;;
    esac
    DOCS_number=$((DOCS_number + 1))
done
"""


def commands_of(page):
    """Yields (line, command, whether it has to fail, lines of output that the page shows)."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import console_blocks
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for first, lines, comment in console_blocks.blocks(text):
        found = []
        for line, host, text in console_blocks.items(lines, first):
            if host == "":
                found.append((line, text, []))
            elif host is None and found:
                found[-1][2].append((line, text))
        for k, (line, text, shown) in enumerate(found):
            yield line, text, comment.startswith("fails") and k == len(found) - 1, shown


def first_missing(shown, printed):
    """Returns the first of the lines that a page shows that was not printed, in the page's order; "..." is anything."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for number, text in shown:
        pattern = ".*".join(re.escape(part) for part in " ".join(text.split()).split("..."))
        if pattern not in ("", ".*") and not any(re.fullmatch(pattern, line) for line in lines):
            return number, text
    return None


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def launcher_of(sotto):
    """The command that starts ranks of this build, or an empty string."""
    script = f'. "{ROOT}/tests/comm/mpi/launch.bash"; launcher "{sotto}" >/dev/null && echo "${{launch[*]}}"'
    return subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def test_page(sotto, page, seconds):
    """Returns whether all commands of the page did what the page says."""
    commands = list(commands_of(page))
    made = subprocess.run(["mktemp", "-d"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    begin = time.monotonic()
    try:
        home, state, programs = (f"{made}/{name}" for name in ("page", "state", "programs"))
        for folder in (home, state, programs):
            os.mkdir(folder)
        for name in ("sotto", "mpirun", "mpiexec"):
            write(f"{programs}/{name}", f'#!/bin/sh\nexec "{sys.executable}" -IS "{os.path.realpath(__file__)}" --as {name} "$@"\n', 0o755)
        for number, (_, text, fails, _) in enumerate(commands):
            write(f"{state}/command.{number}", text + "\n")
            write(f"{state}/expected.{number}", "1" if fails else "0")
        gpu = subprocess.run([sotto, "info"], stdout=subprocess.PIPE, text=True).stdout
        environment = {**os.environ, "HOME": home, "DOCS": state, "DOCS_SOTTO": sotto, "DOCS_LAUNCHER": launcher_of(sotto),
                       "DOCS_GPU": "yes" if re.search(r"^GPU 0: (?!.*too old)", gpu, re.M) else "no", "SOTTO": ROOT,
                       "PATH": programs + ":" + os.environ["PATH"], "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
            environment.pop(name, None)
        shell = subprocess.Popen(["bash", "-c", DRIVER], cwd=home, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            shell.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(shell.pid, signal.SIGKILL)  # and what runs in the background
        except ProcessLookupError:
            pass
        shell.wait()
        longest, before = (0, 0), os.stat(f"{state}/expected.{len(commands) - 1}").st_mtime if commands else 0
        for number, (line, text, fails, shown) in enumerate(commands):
            code = read(f"{state}/code.{number}").strip()
            if code == "" or (code == "0") == fails:
                why = (f"ran longer than {seconds} s" if code == "" else "should have failed" if fails else f"exit code {code}")
                print(f"{page}:{line}: {why}\n$ {text}\n{read(f'{state}/out.{number}')[-4000:]}")
                return False
            missing = first_missing(shown, read(f"{state}/out.{number}")) if os.path.exists(f"{state}/exact.{number}") else None
            if missing:
                print(f"{page}:{missing[0]}: was not printed: {missing[1]}\n$ {text}\n{read(f'{state}/out.{number}')[-4000:]}")
                return False
            after = os.stat(f"{state}/code.{number}").st_mtime
            longest, before = max(longest, (after - before, line)), after
    finally:
        subprocess.run(["chmod", "-R", "u+w", made])
        subprocess.run(["rm", "-rf", made])
    print(f"{page}: {len(commands)} commands, {time.monotonic() - begin:.1f} s, {longest[0]:.1f} s of them in line {longest[1]}")
    return True


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def main():
    if sys.argv[1:2] == ["--as"]:
        return run_sotto(sys.argv[3:]) if sys.argv[2] == "sotto" else run_mpirun(sys.argv[3:])
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    passed = [test_page(os.path.realpath(sys.argv[1]), page, 300) for page in sys.argv[2:]]
    return 0 if all(passed) else 1


sys.exit(main())
