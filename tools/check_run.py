#!/usr/bin/env python3
"""Check that a run folder is what Hugging Face and TensorBoard expect.

Run:  python tools/check_run.py RUN_DIR [--logits FILE] [--tensorboard]
in an environment with torch, transformers, tokenizers and safetensors (tensorboard for --tensorboard).

Loads RUN_DIR with AutoModelForCausalLM, every tensor accounted for, and the tokenizer where there is one, with
AutoTokenizer too; generates a few tokens. FILE is a
safetensors file with `tokens` int32 [B,T] and `logits` [B,T,V] as sotto computed them from the same weights: fails
where transformers' logits differ by more than --tolerance. --tensorboard lists the scalars that TensorBoard's own
reader finds below RUN_DIR.
"""
import argparse
import pathlib
import sys


def fail(message):
    sys.exit(f"check_run: {message}")


def load_model(folder):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True)
    for kind, names in info.items():
        if names:
            fail(f"{kind}: {names}")
    print(f"model: {type(model).__name__}, {model.num_parameters()} parameters")
    return model.eval()


def check_logits(model, file, tolerance):
    import torch
    from safetensors.torch import load_file
    ours = load_file(file)
    with torch.no_grad():
        theirs = model(input_ids=ours["tokens"].long(), use_cache=False).logits
    if theirs.shape != ours["logits"].shape:
        fail(f"logits: sotto {tuple(ours['logits'].shape)}, transformers {tuple(theirs.shape)}")
    worst = (theirs - ours["logits"].float()).abs().max().item()
    print(f"logits: {tuple(theirs.shape)}, max abs difference {worst:.3g} (largest logit {theirs.abs().max():.3g})")
    if not worst <= tolerance:                                      # also catches NaN
        fail(f"logits differ by {worst:.3g}, more than {tolerance:g}")


def check_tokenizer(file, vocab):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(file))
    text = "Once upon a time, there was a na\u00efve \u732b.\n"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    print(f"tokenizer: {tokenizer.get_vocab_size()} tokens; {len(ids)} ids for a line of {len(text)} characters")
    if tokenizer.get_vocab_size() > vocab:
        fail(f"tokenizer has {tokenizer.get_vocab_size()} tokens, the model {vocab}")
    if tokenizer.decode(ids, skip_special_tokens=False) != text:
        fail("tokenizer does not decode what it encoded")


def check_generation(folder, model):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ends = model.config.eos_token_id
    if tokenizer.eos_token_id not in (ends if isinstance(ends, list) else [ends]):
        fail(f"the tokenizer ends texts with {tokenizer.eos_token_id}, the model with {ends}")
    prompt = tokenizer("Once upon a time", return_tensors="pt").input_ids
    out = model.generate(prompt, max_new_tokens=8, do_sample=False)
    print(f"generate: {tokenizer.decode(out[0])!r}")


def list_scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    folders = sorted({f.parent for f in folder.rglob("*tfevents*")})
    if not folders:
        fail(f"no event file below {folder}")
    for f in folders:
        events = EventAccumulator(str(f), size_guidance={"scalars": 0})
        events.Reload()
        print(f"events: {f}")
        for tag in events.Tags()["scalars"]:
            points = events.Scalars(tag)
            print(f"  {tag:32} {len(points):6} points, last {points[-1].value:g} at step {points[-1].step}")
        if not events.Tags()["scalars"]:
            fail(f"no scalar in {f}")


def main():
    p = argparse.ArgumentParser(description="Check a run folder with transformers, tokenizers and tensorboard.")
    p.add_argument("run_dir", type=pathlib.Path)
    p.add_argument("--logits", type=pathlib.Path, metavar="FILE", help="safetensors: tokens [B,T], logits [B,T,V]")
    p.add_argument("--tolerance", type=float, default=1e-4, help="largest difference of logits allowed (1e-4)")
    p.add_argument("--tensorboard", action="store_true", help="list the scalars instead of loading the model")
    a = p.parse_args()

    if a.tensorboard:
        list_scalars(a.run_dir)
    if a.logits or not a.tensorboard:
        model = load_model(a.run_dir)
        if (a.run_dir / "tokenizer.json").exists():
            check_tokenizer(a.run_dir / "tokenizer.json", model.config.vocab_size)
            check_generation(a.run_dir, model)
        if a.logits:
            check_logits(model, a.logits, a.tolerance)


if __name__ == "__main__":
    main()
