#!/usr/bin/env python3
"""Make the tokenizer's parity vectors from Hugging Face tokenizers.

Run:  python tools/make_tokenizer_vectors.py --gpt2 DIR --neox FILE [--out tests/vectors]
in an environment with tokenizers. DIR holds GPT-2's vocab.json and merges.txt, FILE is GPT-NeoX-20B's tokenizer.json;
neither is copied. Trains two tiny tokenizers on the public-domain text below and writes
  tiny_gpt2_tokenizer.json   byte-level BPE, 400 tokens, <|endoftext|> last
  tiny_neox_tokenizer.json   the same with NFC, special tokens first and runs of 24..2 spaces as added tokens
  tokenizer_cases.json       {"versions", "cases": [{"text", "gpt2", "neox", "tiny_gpt2", "tiny_neox"}]}: the ids of
                             each text, whole, no special tokens added; a text may hold U+0000
"""
import argparse
import json
import pathlib

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from check_tokenizer import load

EOT, PAD = "<|endoftext|>", "<|padding|>"
FAMILY = "👨\u200d👩\u200d👧"

CASES = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "a", " a", "a ", " a ", "  a  ", "a  b", "a   b    c",
    "Hello, world!", "Hello,  world!\n", "hello world\n\n\nfoo", "\n \n  \n   x", "x \n y", "x\t\ty \t z", "tail   \n",
    "line\r\nline\r\n\r\nline\rline", " " * 24, " " * 25, " " * 23 + "x", " " * 50, "\n" * 9 + " " * 9 + "\t" * 9,
    "I'm he's they're we've you'll she'd don't", "I'M HE'S THEY'RE WE'VE YOU'LL SHE'D DON'T",
    "'s's 's 'S ' s ''s 'sx '",
    "it’s ‘quoted’", "'", "''''", "x'", "rock'n'roll 'tis",
    "12345 67 8 90", "3.14 -1e10 0xFF 1,000,000", "a1b2c3", "½ ² Ⅷ ①", "\u0661\u0662\u0663 १२३ １２",
    "𝟘𝟙", "café", "cafe\u0301", "Å A\u030a \u212b", "q\u0307\u0323 q\u0323\u0307", "\u1112\u1161\u11ab 한",
    "\u0958 ﬁ \u2126 \u0344", "e\u0301" * 5, "\u0301\u0301", "a\u0301<|endoftext|>e\u0301",
    "今日は世界。", "안녕하세요 세계", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd", "नमस\u094dत\u0947 द\u0941न\u093fय\u093e",
    "Привет мир", "สว\u0e31สด\u0e35", "𠀀𪛖",
    "😀 👍\U0001f3fd", FAMILY + " " + FAMILY, "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea", "❤\ufe0f 1\ufe0f\u20e3",
    "a\u00a0b\u00a0\u00a0c", "\u2003\u2003x\u3000y \u3000 z", "a\u2028b\u2029c\u0085d\u000be\u000cf",
    "\ufeffa\u200bb\u00adc",
    "\u1680 \u180e \u205f",
    "\x00", "a\x00b\x01\x02\x1b[0m\x7f", "\x1c\x1d \x1e\x1f", "\ue000 \ufffd \U0010ffff",
    "...---!!!???", " .,;: ((([[[{{{", "—…“«、", "x=y+z*(a/b)%c&&d||!e",
    "for (int i = 0; i < n; i++) {\n\t\tx[i] += a * y[i];\n\t}\n", "def f(x):\n    if x:\n        return {'a': [1]}\n",
    "https://example.org/a?b=c&d=%20#e", "CamelCaseAndsnake_case_and-kebab", "_a_ __b__",
    EOT, EOT + EOT, f"a{EOT}b", f" {EOT} ", f"the end.{EOT}\nOnce  upon", "<|endoftext", "<|ENDOFTEXT|>",
    f"<|endof{EOT}text|>", PAD + " x " + PAD,
    "a" * 200, "ab" * 100, " a" * 60, "!" * 100, "é" * 40, "1" * 50,
    "pneumonoultramicroscopicsilicovolcanoconiosis Donaudampfschifffahrtsgesellschaft",
    "four score and seven years ago, Alice was beginning to get very tired of sitting by her sister on the bank.",
]

TEXT = """\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or twice
she had peeped into the book her sister was reading, but it had no pictures or conversations in it, "and what is the
use of a book," thought Alice, "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid),
whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies, when
suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the Rabbit say
to itself, "Oh dear! Oh dear! I shall be late!" But when the Rabbit actually took a watch out of its waistcoat-pocket,
and looked at it, and then hurried on, Alice started to her feet.

Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether
that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that
war. We have come to dedicate a portion of that field, as a final resting place for those who here gave their lives
that that nation might live. It is altogether fitting and proper that we should do this.
"""


def train(vocab_size, special, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def tiny_gpt2():
    tokenizer = train(399, [])
    tokenizer.add_special_tokens([EOT])
    return tokenizer


def tiny_neox():
    tokenizer = train(400, [EOT, PAD], normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return tokenizer


def main():
    p = argparse.ArgumentParser(description="Make tests/vectors/tokenizer_cases.json and two tiny tokenizers.")
    p.add_argument("--gpt2", required=True, metavar="DIR", help="folder of GPT-2's vocab.json and merges.txt")
    p.add_argument("--neox", required=True, metavar="FILE", help="GPT-NeoX-20B's tokenizer.json")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/vectors"))
    a = p.parse_args()

    tiny = {"tiny_gpt2": tiny_gpt2(), "tiny_neox": tiny_neox()}
    a.out.mkdir(parents=True, exist_ok=True)
    for name, tokenizer in tiny.items():
        tokenizer.save(str(a.out / f"{name}_tokenizer.json"), pretty=False)

    every = {"gpt2": load(a.gpt2), "neox": load(a.neox)} | tiny
    cases = []
    for text in CASES:
        ids = {name: t.encode(text, add_special_tokens=False).ids for name, t in every.items()}
        cases.append(json.dumps({"text": text} | ids, separators=(",", ":")))
    versions = json.dumps({"tokenizers": tokenizers.__version__})
    path = a.out / "tokenizer_cases.json"
    path.write_text(f'{{"versions":{versions},"cases":[\n' + ",\n".join(cases) + "\n]}\n")
    print(f"{path}  {len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
