#!/usr/bin/env python3
"""Make the vectors of the tokenizers' kinds from Hugging Face tokenizers.

Run:  python tools/make_tokenizer_kinds.py [--out tests/vectors] [--folder DIR]
in an environment with tokenizers. Trains four small models on the public-domain text of make_tokenizer_vectors.py and writes
  tokenizer_kinds.json   {"versions", "models": {NAME: model}, "texts": [...], "kinds": [KIND...]}, where a KIND is
                         {"family", "model": NAME, "options": members of the model, "document": the other members of
                         tokenizer.json, "ids": of each text with special tokens added, "decoded": of the ids; null
                         where decoding gives the text back}
The pipelines (normalizer, pre-tokenizer, post-processor, decoder) are those of the families that the kinds name.
With --folder, every kind is also written as DIR/NAME.json, for tools/check_tokenizer.py.
"""
import argparse
import base64
import json
import pathlib
import struct

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from make_tokenizer_vectors import CASES, TEXT

MORE = ["▁", "▁▁a ▁", "x▁y", "<s>", "a<s> b</s>", "<unk>", "<0x41>", "[INST] a [/INST]", "<extra_id_0> is <extra_id_1>",
        "[MASK] a", "``quoted''", "İstanbul ΣΑΣ ẞ", "A\u0301\u0302x", "e\u0301e\u0327\u0301", "ﬁne ½ ㌔ \ufc5e a",
        "\ufc5ea", "don't do not . , ' s n't !", "²34 1234567", "don't stop.", "中文ab字 한글", "ab\n\n\ncd", "a" * 101, "a<|end|> \n b <|end|>c</s> d"]
TEXTS = [t for i, t in enumerate(CASES) if i % 2 == 0 and len(t) < 120 and "\x00" not in t] + ["a\x00b"] + MORE
TRAIN = TEXT.split("\n") + [t for t in CASES if t.isprintable()]


def double_array(entries):
    """A Darts double array of {bytes: value}, as in SentencePiece's precompiled_charsmap."""
    unit, used = {0: 0}, set()

    def place(at, prefix):
        depth = len(prefix)
        after = sorted({key[depth] for key in entries if key.startswith(prefix) and len(key) > depth})
        labels = ([0] if prefix in entries else []) + after
        offset = 1
        while (at ^ offset) in used or any((at ^ offset ^ k) in unit for k in labels):
            offset += 1
        used.add(at ^ offset)
        assert offset < 1 << 21
        unit[at] |= offset << 10
        for k in labels:
            unit[at ^ offset ^ k] = k
        if prefix in entries:
            unit[at] |= 1 << 8
            unit[at ^ offset] = entries[prefix] | 1 << 31
        for k in after:
            place(at ^ offset ^ k, prefix + bytes([k]))

    place(0, b"")
    return [unit.get(i, 0) for i in range(max(unit) + 256)]


def charsmap():
    """A small table in the manner of nmt_nfkc: what the texts need."""
    to = {"ﬁ": "fi", "½": "1⁄2", "㌔": "キロ", "\ufc5e": " \u064c\u0651", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ",
          "\r": " ", "²": "2", "e\u0301": "é", "A\u0301": "Á", "\u212b": "Å", "\u200b": "", "\ufeff": "", "\x1b": "",
          "\u2003": " ", "①": "1", "Ⅷ": "VIII", "𝟘": "0", "１": "1"}
    text, entries = b"", {}
    for key, value in to.items():
        entries[key.encode()] = len(text)
        text += value.encode() + b"\0"
    units = double_array(entries)
    return base64.b64encode(struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + text).decode()


def train(model, trainer, pre, normalizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(TRAIN, trainer)
    return json.loads(tokenizer.to_str())["model"]


def train_models():
    fallback = [f"<0x{b:02X}>" for b in range(256)]
    first = ["<unk>", "<s>", "</s>"]
    mark = pre_tokenizers.Metaspace()
    sp = train(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
               trainers.BpeTrainer(vocab_size=520, special_tokens=first + fallback, limit_alphabet=90, show_progress=False),
               mark)
    runs = ["▁▁", "▁▁▁▁"]
    for run in runs:
        sp["vocab"][run] = len(sp["vocab"])
    sp["merges"] += [["▁", "▁"], ["▁▁", "▁▁"]]
    plain = {t: i for i, t in enumerate(t for t in sp["vocab"] if not t.startswith("<0x"))}
    unigram = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=260, special_tokens=first, unk_token="<unk>",
                                                              show_progress=False), mark)
    unigram["vocab"] += [["<0x%02X>" % b, -20.5] for b in range(256)]
    wordpiece = train(models.WordPiece(unk_token="[UNK]"),
                      trainers.WordPieceTrainer(vocab_size=330, limit_alphabet=90, show_progress=False,
                                                special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
                      pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=False))
    byte_level = train(models.BPE(), trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>", "<mask>"],
                                                         show_progress=False,
                                                         initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())),
                       pre_tokenizers.ByteLevel(add_prefix_space=False))
    return {"sentencepiece": sp, "plain": dict(sp, vocab=plain, byte_fallback=False), "unigram": unigram,
            "wordpiece": wordpiece, "byte_level": byte_level}


def added(token, content, **flags):
    return {"id": token, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | flags


def template(before, after, ids):
    single = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in set(before + after)}}


def sequence(key, *members):
    return {"type": "Sequence", key: list(members)}


def replace(old, new, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": old}, "content": new}


def mark(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def kinds(made):
    size = {name: len(model["vocab"]) for name, model in made.items()}
    first = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
    ids = {"<s>": 1, "</s>": 2, "[CLS]": 2, "[SEP]": 3}
    bos, eos = template(["<s>"], [], ids), template([], ["</s>"], ids)
    prepend = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    plain = sequence("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"})
    llama = sequence("decoders", *plain["decoders"], strip)
    table = {"type": "Precompiled", "precompiled_charsmap": charsmap()}
    runs = replace(" {2,}", "▁", regex=True)
    n = size["sentencepiece"]
    pieces = {t: i for i, t in enumerate(made["sentencepiece"]["vocab"])}
    bert = [added(i, t) for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])]

    def bert_normalizer(lowercase, accents):
        return {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": accents,
                "lowercase": lowercase}

    u, b = size["unigram"], size["byte_level"]
    masks = [added(0, "<s>"), added(1, "</s>"), added(2, "<mask>", lstrip=True)]
    words = {"type": "BertPreTokenizer"}
    # family, model, options, normalizer, pre_tokenizer, post_processor, decoder, added_tokens
    return [
        ("Llama 2", "sentencepiece", {}, prepend, None, bos, llama, first),
        ("Llama 1 (tokens are normalized)", "sentencepiece", {}, prepend, None, bos, llama,
         [dict(t, normalized=True) for t in first]),
        ("Mistral", "sentencepiece", {}, None, mark("first", False), bos, llama,
         first + [added(n, "[INST]"), added(n + 1, "[/INST]")]),
        ("Gemma", "sentencepiece", {}, replace(" ", "▁"), split({"String": " "}, "MergedWithPrevious"), bos, plain,
         first + [added(n, "\n\n", special=False), added(pieces["▁▁"], "▁▁", special=False)]),
        ("Phi-3", "sentencepiece", {}, prepend, None, None, llama,
         first[:2] + [added(2, "</s>", special=False, rstrip=True), added(n, "<|end|>", rstrip=True)]),
        ("no bytes, Metaspace always", "plain", {"fuse_unk": False}, None, mark("always"), None, mark("always"), first),
        ("no bytes, no decoder", "plain", {"ignore_merges": True}, {"type": "NFKC"}, mark("always"), None, None, first),
        ("MergedWithNext, Contiguous", "plain", {}, {"type": "Lowercase"},
         sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                  split({"Regex": "[aeiou]+|\\s"}, "MergedWithNext")), None, {"type": "Fuse"}, first),
        ("inverted, empty matches", "plain", {}, {"type": "Nmt"},
         sequence("pretokenizers", split({"Regex": "[aeiou]+|\\s"}, "MergedWithPrevious", True),
                  split({"Regex": "x*"}, "Contiguous")), None, {"type": "Fuse"}, first),
        ("Whitespace, Digits", "sentencepiece", {}, {"type": "NFKD"},
         sequence("pretokenizers", {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}), None,
         {"type": "Fuse"}, first),
        ("T5", "unigram", {}, table, sequence("pretokenizers", {"type": "WhitespaceSplit"}, mark("always")), eos,
         mark("always"), first + [added(u, "<extra_id_0>"), added(u + 1, "<extra_id_1>")]),
        ("T5, newer", "unigram", {},
         sequence("normalizers", table, {"type": "Strip", "strip_left": False, "strip_right": True}, runs), mark("always"),
         eos, mark("always"), first),
        ("ALBERT", "unigram", {},
         sequence("normalizers", replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                  {"type": "Lowercase"}, table, replace(" {2,}", " ", regex=True)), mark("always"),
         template(["<s>"], ["</s>"], ids), mark("always"), first + [added(u, "[MASK]", lstrip=True)]),
        ("XLM-RoBERTa", "unigram", {}, sequence("normalizers", table, replace(" {2,}", " ", regex=True)),
         sequence("pretokenizers", {"type": "WhitespaceSplit"}, mark("first")), template(["<s>"], ["</s>"], ids),
         mark("always"), first),
        ("Unigram with bytes", "unigram", {"byte_fallback": True}, replace(" ", "▁"), None, None, plain, first),
        ("BERT, lowercase", "wordpiece", {}, bert_normalizer(True, None), words, template(["[CLS]"], ["[SEP]"], ids),
         {"type": "WordPiece", "prefix": "##", "cleanup": True}, bert),
        ("BERT, cased", "wordpiece", {}, bert_normalizer(False, None), words,
         {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
         {"type": "WordPiece", "prefix": "##", "cleanup": False}, bert),
        ("BERT, accents", "wordpiece", {"max_input_chars_per_word": 8}, bert_normalizer(True, False), words, None,
         {"type": "WordPiece", "prefix": "##", "cleanup": True}, bert),
        ("RoBERTa", "byte_level", {}, None, byte_level(True),
         {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
          "add_prefix_space": False}, byte_level(True), masks),
        ("Falcon", "byte_level", {}, None,
         sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True),
                  {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"}, "Isolated")), None,
         byte_level(True), masks),
        ("BLOOM", "byte_level", {}, None,
         sequence("pretokenizers", split({"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "Isolated"), byte_level(False)),
         byte_level(True), byte_level(True), masks),
    ]


PARTS = ["normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"]


def main():
    p = argparse.ArgumentParser(description="Make tests/vectors/tokenizer_kinds.json.")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/vectors"))
    p.add_argument("--folder", type=pathlib.Path, help="write every kind's tokenizer.json here, too")
    a = p.parse_args()

    made, out = train_models(), []
    for family, model, options, *parts in kinds(made):
        document = {"version": "1.0", "truncation": None, "padding": None} | dict(zip(PARTS, parts))
        whole = document | {"model": made[model] | options}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        if a.folder:
            a.folder.mkdir(parents=True, exist_ok=True)
            (a.folder / f"{len(out):02d}.json").write_text(json.dumps(whole))
        ids = [tokenizer.encode(text).ids for text in TEXTS]
        decoded = [tokenizer.decode(i, skip_special_tokens=False) for i in ids]
        out.append({"family": family, "model": model, "options": options, "document": document, "ids": ids,
                    "decoded": [None if d == t else d for d, t in zip(decoded, TEXTS)]})
    short = dict(separators=(",", ":"), ensure_ascii=True)
    path = a.out / "tokenizer_kinds.json"
    path.write_text('{"versions":%s,\n"models":%s,\n"texts":%s,\n"kinds":[\n%s\n]}\n' % (
        json.dumps({"tokenizers": tokenizers.__version__}, **short), json.dumps(made, **short),
        json.dumps(TEXTS, **short), ",\n".join(json.dumps(k, **short) for k in out)))
    print(f"{path}  {len(out)} kinds, {len(TEXTS)} texts, {sum(len(i) for k in out for i in k['ids'])} ids, "
          f"{path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
