#!/usr/bin/env python3
"""docs/reference/files.md and reality: a few small runs write the files, keys and columns of the page, and no others; the
environment variables of the page are those that src reads.

    tests/docs/files.py SOTTO"""
import csv
import fnmatch
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
TEXT = ("--data.train=stories --data.vocab=300 --model.preset=nano --model.layers=1 --model.width=32 --model.heads=2 --batch=2 "
        "--seq=32 --threads=1 --log_every=1 --steps=4 ")
RUNS = {
    "ddp": TEXT + "--workers=2 --strategy=ddp --precision=mixed --save_dtype=bf16 --eval_every=2 --keep_best=true --clip=1",
    "acco": TEXT + "--workers=2 --strategy=acco --trace=true",
    "virtual": TEXT + "--workers=2 --nodes=2 --time=virtual --worker.step=1ms --strategy=acco --link.inter=1Gbit/s,1ms",
    "diloco": TEXT + "--workers=2 --strategy=diloco --H=2 --cosine=true",
    "async": TEXT + "--workers=2 --strategy=async-diloco --H=2",
    "demo": TEXT + "--workers=2 --strategy=demo",
    "images": "--data.train=set --model=mlp --mlp.hidden=8 --batch=4 --threads=1 --log_every=1 --steps=4",
}
COMPARISON = """[compare]
[base]
data.train = stories
data.vocab = 300
model.preset = nano
model.layers = 1
model.width = 32
model.heads = 2
batch = 2
seq = 32
log_every = 1
steps = 4
workers = 2
time = virtual
[run a]
strategy.preset = ddp
[run b]
strategy.preset = zero1
"""
# Entries of the page that none of the runs above can leave.
NEVER = {"checkpoints/.partial-N/", "gnuplot.log", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
         "chat_template.jinja", "chat_template.json", "...", "common_loss", "time_to_loss", "NAME/", "NAME-SEED/", "best/",
         "checkpoints/step-N/", "CURVE-AXIS.png", "CURVE-AXIS.svg"}
bad = []


def tables(page):
    """Returns the names in the first column of the table under each heading."""
    out, heading = {}, ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            out.setdefault(heading, []).extend(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return out


def pattern(name):
    return re.sub(r"(?<![A-Za-z])(CURVE-AXIS|CURVE|NAME|N)(?![A-Za-z])", "*", name)


def compare(what, found, listed):
    """Notes names without an entry, and entries without a name."""
    for name in sorted(set(found)):
        if not any(fnmatch.fnmatch(name, pattern(entry)) for entry in listed):
            bad.append(f"{what}: `{name}` is not on the page")
    for entry in listed:
        if entry not in NEVER and not any(fnmatch.fnmatch(name, pattern(entry)) for name in found):
            bad.append(f"{what}: no run leaves `{entry}`")


def run(sotto, words):
    done = subprocess.run([sotto] + words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sotto {' '.join(words)}: {done.stdout}{done.stderr}")


def make_images():
    for name, letter in (("dark", 33), ("bright", 126)):
        for split in ("train", "val"):
            os.makedirs(f"set/{split}/{name}")
            for i in range(7):
                with open(f"set/{split}/{name}/{i}.pgm", "wb") as file:
                    file.write(b"P5\n4 4\n255\n" + bytes([40 + i] + [letter] * 15))


def check_runs(on_page):
    metrics, report, files, kept = set(), set(), set(), set()
    for name in list(RUNS) + ["ddp/best", "compared/a"]:
        with open(f"{name}/metrics.jsonl", encoding="utf-8") if os.path.exists(f"{name}/metrics.jsonl") else open(os.devnull) as file:
            for line in file:
                metrics |= json.loads(line).keys()
        if os.path.exists(f"{name}/report.json"):
            with open(f"{name}/report.json", encoding="utf-8") as file:
                report |= json.load(file).keys()
        files |= {f for f in os.listdir(name) if os.path.isfile(os.path.join(name, f))}
        kept |= {os.path.basename(f) for f in glob.glob(f"{name}/checkpoints/step-*/*")}
    model = on_page["Model folder"]
    compare("metrics.jsonl", metrics, on_page["metrics.jsonl"])
    compare("report.json", report, on_page["report.json"])
    compare("a run's folder", files, sorted(set(on_page["Run folder"] + model)))
    compare("a checkpoint", kept, sorted(set(on_page["Checkpoint"] + model)))


def check_columns(on_page):
    with open("acco/trace-0.tsv", encoding="utf-8") as file:
        compare("trace-N.tsv", file.readline().strip().split("\t"), on_page["trace-N.tsv"])
    with open("async/pushes.tsv", encoding="utf-8") as file:
        compare("pushes.tsv", file.readline().strip("# \n").split("\t"), on_page["pushes.tsv"])
    with open("compared/loss.tsv", encoding="utf-8") as file:
        compare("CURVE.tsv", file.readline().strip("# \n").split("\t"), on_page["Curves"])
    with open("compared/calibration.json", encoding="utf-8") as file:
        compare("calibration.json", list(json.load(file).values())[0], on_page["calibration.json"])
    with open("compared/table.csv", encoding="utf-8") as file:
        for column in csv.DictReader(file).fieldnames[1:]:
            if column not in on_page["report.json"]:
                bad.append(f"table.csv: `{column}` is not a key of report.json on the page")
    compare("a comparison", [f for f in os.listdir("compared") if os.path.isfile("compared/" + f)],
            on_page["Folder of a comparison"])


def check_variables(on_page):
    read = set()
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        read |= set(re.findall(r'(?:getenv|setenv|mpi_env_number)\("(\w+)"', text))
        if "getenv" in text or "mpi_env_number" in text:
            read |= set(re.findall(r'"((?:OMP|GOMP|KMP|OMPI|PRTE|PMIX?|MPI|SLURM)_\w+)"', text))
    compare("environment", read, on_page["Environment variables"])


def main():
    sotto = os.path.realpath(sys.argv[1])
    with open(os.path.join(ROOT, "docs", "reference", "files.md"), encoding="utf-8") as file:
        on_page = tables(file.read())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_images()
        for name, options in RUNS.items():
            run(sotto, ["train", "--out=" + name] + options.split())
        with open("compared.ini", "w", encoding="utf-8") as file:
            file.write(COMPARISON)
        run(sotto, ["compare", "compared.ini"])
        check_runs(on_page)
        check_columns(on_page)
        os.chdir("/")
    check_variables(on_page)
    print("\n".join(bad) if bad else "docs/reference/files.md has what runs write")
    return bool(bad)


sys.exit(main())
