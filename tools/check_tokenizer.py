#!/usr/bin/env python3
"""Compare `sotto tokenize encode` with Hugging Face tokenizers, id by id, and time both on one thread.

Run:  python tools/check_tokenizer.py --sotto build/sotto --tokenizer FILE_OR_DIR TEXTFILE...
      python tools/check_tokenizer.py --make FILE --bytes N       write a hard text of at least N bytes
in an environment with tokenizers. FILE_OR_DIR is a tokenizer.json, or a folder holding one or vocab.json + merges.txt,
which are read as GPT-2's (byte level, no prefix space, <|endoftext|> recognised in the text). A file is one string; no
special tokens are added. Exits 1 where any id differs.
"""
import argparse
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1")


def load(path):
    """The Hugging Face tokenizer in a tokenizer.json or a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    path = pathlib.Path(path)
    if not path.is_dir():
        return Tokenizer.from_file(str(path))
    if (path / "tokenizer.json").exists():
        return Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer = Tokenizer(models.BPE.from_file(str(path / "vocab.json"), str(path / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def encode_sotto(sotto, tokenizer, file):
    """ids and seconds: what the command reports, or else its whole run."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "ids"
        start = time.perf_counter()
        run = subprocess.run([sotto, "tokenize", "encode", f"--tokenizer={tokenizer}", f"--input={file}",
                              f"--ids={out}"], capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if run.returncode != 0:
            sys.exit(f"{sotto} failed on {file} ({run.returncode}): {run.stderr.strip()}")
        own = re.search(r"encode: \d+ tokens in ([-+.\deE]+) s", run.stdout + run.stderr)
        ids = [int(i) for i in out.read_text().split()]
    return ids, float(own[1]) if own else seconds, "reported" if own else "whole run"


def show_difference(tokenizer, text, ours, theirs):
    """The first difference with its neighbourhood; theirs is an Encoding with character offsets."""
    pairs = itertools.zip_longest(ours, theirs.ids)
    i = next(i for i, (a, b) in enumerate(pairs) if a != b)
    at = theirs.offsets[i][0] if i < len(theirs.ids) else len(text)
    low, high = max(0, i - 3), i + 5
    print(f"  first difference at token {i}, character {at}: {text[max(0, at - 20):at]!r} >>> {text[at:at + 20]!r}")
    for who, ids in ("sotto", ours[low:high]), ("theirs", theirs.ids[low:high]):
        print(f"  {who:6}", " ".join(f"{k}:{tokenizer.id_to_token(k)!r}" for k in ids))


def compare(sotto, path, tokenizer, file):
    text = pathlib.Path(file).read_bytes().decode("utf-8")
    start = time.perf_counter()
    ids = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    seconds_theirs = time.perf_counter() - start
    ours, seconds, source = encode_sotto(sotto, path, file)

    different = sum(a != b for a, b in itertools.zip_longest(ours, ids))
    print(f"{file}: {len(ids)} tokens, sotto {len(ours)}, {different} positions differ; "
          f"tokenizers {seconds_theirs:.3f} s, sotto {seconds:.3f} s ({source}), "
          f"{seconds_theirs / max(seconds, 1e-9):.2f} times as fast")
    if different:
        show_difference(tokenizer, text, ours, tokenizer.encode(text, add_special_tokens=False))
    return different == 0


FRAGMENTS = [
    "It was the best of times, it was the worst of times. ",
    "I'm sure they're here, we've said; he'd go, she'll stay. ",
    "IT'S WE'RE I'VE I'M YOU'LL HE'D DON'T ", "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'VE 'M 'LL 'D ' s ’s '' 'sss ",
    "café naïve Ångström Łódź façade ",                                                             # composed
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m fac\u0327ade q\u0307\u0323 ",                   # decomposed
    "ḋ\u0323 \u1112\u1161\u11ab \u212b \u2126 ﬁ ½ \u0344 \u0958 ",                              # NFC reorders
    "今日は世界。 こんにちは ", "한국어 微软 𠀀𪛖 ",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c ",
    "\u0627\u0644\u0633\u0651\u0644\u0627\u0645\u064f ",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd ",
    "नमस\u094dत\u0947 द\u0941न\u093fय\u093e क\u094dष ", "க\u0bca สว\u0e31สด\u0e35 ",
    "Привет, мир! ", "Γειά σου გამარ Աբգ ",
    "😀👍\U0001f3fd 👨\u200d👩\u200d👧\u200d👦 ",                                            # ZWJ
    "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea ❤\ufe0f 1\ufe0f\u20e3 🏴\U000e0067\U000e0062\U000e007f ",
    "0 12 345 6789 1234567890 3.14159 1e-10 0x1F ²³ Ⅷ ¾ ",
    "\u0661\u0662\u0663 १२३ ১২ ๑๒ ", "１２ 一二 〇 𝟘𝟙 ①② a1b2 ",
    "!!! ??? ... --- *** (((((([[[{{{ }}}]]])))))) —…“”«»、。 @#$%^&*_+=~`|\\/<>;: ",
    "int main(void)\n{\n\tfor (int i = 0; i < n; i++) {\n\t\tx[i] += a * y[i];  /* axpy */\n\t}\n    return 0;\n}\n",
    "def f(x):\n    if x:\n        return {'a': [1, 2], \"b\": None}\n    # comment\n\n\n\treturn x\n",
    "<p class=\"a\">x &amp; y</p><br/> https://example.org/a?b=c&d=%20#e user@example.org ",
    "line one\r\nline two\r\n\r\n\tline three\r\r\n \r\n  \n \n", "\t\t\t \t \t\t  \t", "\n\n\n\n", " \n \n\n  \n",
    "   ",
    "a  b   c    d     e ",
    "a\u00a0b\u00a0\u00a0c \u2002\u2003\u2009\u200a\u202f\u205f\u3000x\u1680y\u2028z\u2029w\u0085v\ufeffu\u200bt\u00adr ",
    "\x00\x01\x02\x07\x08\x0b\x0c\x1b[31mred\x1b[0m\x1c\x1d\x1e\x1f\x7f\x80\x9f ",
    "<|endoftext|>", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|padding|>", "<|endoftext", "|>",
    "<|ENDOFTEXT|> ",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft ",
    "pneumonoultramicroscopicsilicovolcanoconiosis", "\ue000\uf8ff\U000f0000 \ufffd\ufffe\U0010ffff ",
]


def make_text(size):
    """Deterministic mixture of the fragments, their shuffled characters, long runs and a tour of Unicode."""
    rng = random.Random(7)
    alphabet = "".join(FRAGMENTS)
    parts = [f + sep for f in FRAGMENTS for sep in ("", "x")]
    parts += ["a" * 5000, " " * 5000, "\n" * 1000, "é" * 1000]
    count = sum(len(p.encode()) for p in parts)
    while count < size:
        kind = rng.randrange(10)
        if kind < 6:
            part = rng.choice(FRAGMENTS)
        elif kind == 6:
            part = "".join(rng.choices(alphabet, k=rng.randrange(1, 40)))
        elif kind == 7:
            part = rng.choice(alphabet) * int(2 ** rng.uniform(1, 9))
        elif kind == 8:
            part = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(1, 100))) + " "
        else:
            first = rng.randrange(0x110000 // 32) * 32
            block = map(chr, range(first, first + 32))
            part = "".join(c for c in block if unicodedata.category(c) not in ("Cn", "Cs", "Co"))
        parts.append(part)
        count += len(part.encode())
    return "".join(parts)


def main():
    p = argparse.ArgumentParser(description="Compare sotto's tokenizer with Hugging Face's.")
    p.add_argument("--sotto", metavar="PATH", help="the sotto command")
    p.add_argument("--tokenizer", metavar="FILE_OR_DIR")
    p.add_argument("--make", metavar="FILE", type=pathlib.Path, help="write a hard text instead")
    p.add_argument("--bytes", type=int, default=1_000_000, metavar="N", help="its least size (1000000)")
    p.add_argument("text", nargs="*", metavar="TEXTFILE")
    a = p.parse_args()

    if a.make:
        a.make.write_bytes(make_text(a.bytes).encode())
        return
    if not (a.sotto and a.tokenizer and a.text):
        p.error("give --sotto, --tokenizer and a TEXTFILE, or --make")
    tokenizer = load(a.tokenizer)
    same = [compare(a.sotto, a.tokenizer, tokenizer, f) for f in a.text]
    sys.exit(0 if all(same) else 1)


if __name__ == "__main__":
    main()
