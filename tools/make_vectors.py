#!/usr/bin/env python3
"""Make the parity vectors of the models and optimizers from PyTorch and transformers.

Run:  python tools/make_vectors.py [--out tests/vectors] [NAME...]
in an environment with torch, transformers and safetensors (pip install torch transformers safetensors).
Nothing is downloaded: the models are tiny and random. The results are committed; run this only to add one.

One file per model, fp32, eager attention, no dropout:
  param.<name>   initial weights under the names of transformers' model.safetensors (tied tensors once)
  tokens         int32 [B,T]
  targets        int32 [B,T], already shifted; -100 is ignored
  logits         [B,T,V]
  loss           [1]  mean cross entropy over the targets that count
  grad.<name>    d loss / d param
  adamw.losses   [10] losses before each of ten AdamW steps on this batch; only tensors of 2 or more dimensions decay
  metadata       config: the config.json; adamw: hyper-parameters; noise: the largest difference between this fp32
                 result and the same one computed in double (what a tolerance must exceed); versions
Models over images have three files, each with tensors under the names of their model.safetensors:
  <model>        weights and running statistics; beside them pixels [B,H,W,channels], labels int32 [B], logits [B,classes]
                 of an evaluation, loss [1] of a training step; metadata as above
  <model>_grad   d loss / d param, for vit under the names that the modules of transformers 5 have
  <model>_after  weights and running statistics after two steps of SGD on the batch and on its mirror image
adamw_sgd.safetensors holds optimizer trajectories: x0 [37], grads [5,37], <optimizer>.x [5,37] after each step.
"""
import argparse
import copy
import json
import pathlib
import tempfile

import safetensors
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification

SEED = 1  # well conditioned: AdamW divides by sqrt(v), so with some seeds rounding alone moves a loss by 1e-4
B, T, V, C = 2, 24, 67, 32
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
SGD = dict(lr=0.1, momentum=0.9, weight_decay=0.05)
SGD_IMAGES = dict(lr=0.05, momentum=0.9)
NO_IDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)  # a pad id would zero its row's gradient

LLAMA = dict(vocab_size=V, hidden_size=C, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=32, rms_norm_eps=1e-5, **NO_IDS)
MODELS = {  # file name: (model_type, configuration)
    "gpt2": ("gpt2", dict(
        vocab_size=V, n_positions=32, n_embd=C, n_layer=2, n_head=4, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **NO_IDS)),
    "gpt_neo": ("gpt_neo", dict(
        vocab_size=V, max_position_embeddings=32, hidden_size=C, num_layers=3, num_heads=4, intermediate_size=64,
        attention_types=[[["global", "local"], 1], [["global"], 1]], window_size=5, **NO_IDS)),
    "llama": ("llama", dict(LLAMA, num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "llama_tied": ("llama", dict(LLAMA, num_key_value_heads=4, tie_word_embeddings=True)),
    "llama3": ("llama", dict(LLAMA, num_key_value_heads=2, rope_parameters=dict(
        rope_type="llama3", rope_theta=400.0, factor=8.0, low_freq_factor=0.5, high_freq_factor=4.0,
        original_max_position_embeddings=30))),  # a frequency is kept, one is between, two are divided
    "llama_linear": ("llama", dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=4.0))),
    "olmo2": ("olmo2", dict(LLAMA, num_key_value_heads=2)),
    "mistral": ("mistral", dict(LLAMA, num_key_value_heads=2, head_dim=12, sliding_window=5)),
    "qwen2": ("qwen2", dict(LLAMA, num_key_value_heads=2)),
    "qwen2_window": ("qwen2", dict(LLAMA, num_key_value_heads=2, num_hidden_layers=3, tie_word_embeddings=True,
                                   use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("qwen3", dict(LLAMA, num_key_value_heads=2, head_dim=12)),
}

RESNET = dict(num_channels=3, embedding_size=6, num_labels=5)
IMAGES = {  # file name: (model_type, configuration, height, width, seed: well conditioned in bf16 too)
    "resnet": ("resnet", dict(RESNET, layer_type="basic", hidden_sizes=[6, 10], depths=[2, 1]), 19, 22, 1),
    "resnet_bottleneck": ("resnet", dict(RESNET, layer_type="bottleneck", hidden_sizes=[8, 12, 16], depths=[1, 2, 1],
                                         downsample_in_first_stage=True), 33, 32, 2),
    "resnet_early": ("resnet", dict(RESNET, layer_type="bottleneck", hidden_sizes=[8, 12], depths=[1, 1],
                                    downsample_in_bottleneck=True), 16, 16, 1),
    "vit": ("vit", dict(num_channels=3, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=24, image_size=12, patch_size=4, num_labels=5), 12, 12, 1),
}


def make_model(model_type, config, rng):
    """A model whose every parameter matters: wide weights, norms around 1, biases away from 0."""
    config = AutoConfig.for_model(model_type, dtype="float32", **config)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.0, 0.2, generator=rng)
            if p.dim() == 1 and name.endswith("weight"):
                p.add_(1.0)
    return model


def make_batch(rng):
    text = torch.randint(V, (B, T + 1), generator=rng)
    tokens, targets = text[:, :-1].clone(), text[:, 1:].clone()
    targets[0, 0] = targets[0, 7] = targets[1, T - 1] = -100
    return tokens, targets


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-100)


def train(model, tokens, targets, steps=10):
    params = list(model.parameters())
    opt = torch.optim.AdamW([
        dict(params=[p for p in params if p.dim() >= 2]),
        dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)], **ADAMW)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = loss_of(model, tokens, targets)[1]
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def results(model, tokens, targets):
    """logits, loss, gradients and losses of `model`; trains a copy."""
    logits, loss = loss_of(model, tokens, targets)
    loss.backward()
    out = {"logits": logits.detach(), "loss": loss.detach().view(1)}
    out |= {"grad." + name: p.grad for name, p in model.named_parameters()}
    out["adamw.losses"] = train(copy.deepcopy(model), tokens, targets)
    return out


def noise_of(got, exact):
    """Largest |fp32 - double| of each kind of result."""
    noise = {}
    for name, x in got.items():
        kind = name.split(".")[0]
        noise[kind] = max(noise.get(kind, 0.0), float((x - exact[name]).abs().max()))
    return {k: float(f"{v:.2g}") for k, v in noise.items()}


def as_saved(model):
    """(weights, config.json) as save_pretrained writes them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(f"{folder}/model.safetensors"), json.load(open(f"{folder}/config.json"))


def versions():
    return json.dumps({m.__name__: str(m.__version__) for m in (torch, transformers, safetensors)})


def write(path, tensors, metadata):
    """A safetensors file, its metadata in sorted order so that equal content is equal bytes."""
    raw = save({k: v.contiguous() for k, v in tensors.items()}, metadata | {"versions": versions()})
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode().ljust(size)
    assert len(text) == size
    path.write_bytes(raw[:8] + text + raw[8 + size:])
    print(f"{path}  {path.stat().st_size} bytes")


def make_vectors(path, model_type, config):
    rng = torch.Generator().manual_seed(SEED)
    model = make_model(model_type, config, rng)
    tokens, targets = make_batch(rng)
    params, saved_config = as_saved(model)
    exact = results(copy.deepcopy(model).double(), tokens, targets)
    got = results(model, tokens, targets)
    assert {"grad." + name for name in params} == {k for k in got if k.startswith("grad.")}

    tensors = {"param." + k: v for k, v in params.items()} | got
    tensors |= {"tokens": tokens.int(), "targets": targets.int()}
    noise = noise_of(got, exact)
    write(path, tensors, {"config": json.dumps(saved_config), "adamw": json.dumps(ADAMW), "noise": json.dumps(noise)})
    print("  noise", noise, "losses", [round(x, 3) for x in got["adamw.losses"].tolist()])


def make_image_model(model_type, config, rng):
    config = AutoConfig.for_model(model_type, dtype="float32", **config)
    model = AutoModelForImageClassification.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0.0, 0.2, generator=rng)
            if p.dim() == 1 and name.endswith("weight"):
                p.add_(1.0)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.normal_(0.0, 0.1, generator=rng)
            elif name.endswith("running_var"):
                b.uniform_(0.5, 1.5, generator=rng)
            elif name.endswith("num_batches_tracked"):
                b.fill_(7)
    return model


def train_images(model, pixels, labels):
    """Loss and gradients of the first of two steps."""
    opt, first = torch.optim.SGD(model.parameters(), **SGD_IMAGES), None
    model.train()
    for x in (pixels, pixels.flip(3)):
        opt.zero_grad()
        loss = F.cross_entropy(model(pixel_values=x).logits, labels)
        loss.backward()
        first = first or (loss.detach().view(1), {n: p.grad.clone() for n, p in model.named_parameters()})
        opt.step()
    return first


def image_results(model, pixels, labels):
    logits = model.eval()(pixel_values=pixels).logits.detach()
    model = copy.deepcopy(model)
    loss, grads = train_images(model, pixels, labels)
    return {"logits": logits, "loss": loss} | {"grad." + n: g for n, g in grads.items()}, grads, model


def make_image_vectors(folder, name, model_type, config, height, width, seed):
    rng = torch.Generator().manual_seed(seed)
    model = make_image_model(model_type, config, rng)
    pixels, labels = torch.randn(6, 3, height, width, generator=rng), torch.randint(5, (6,), generator=rng)
    params, saved_config = as_saved(model)
    exact = image_results(copy.deepcopy(model).double(), pixels.double(), labels)[0]
    got, grads, after = image_results(model, pixels, labels)
    noise = noise_of(got, exact)
    about = {"config": json.dumps(saved_config), "sgd": json.dumps(SGD_IMAGES), "noise": json.dumps(noise)}
    write(folder / f"{name}.safetensors", params | {
        "pixels": pixels.permute(0, 2, 3, 1), "labels": labels.int(), "logits": got["logits"], "loss": got["loss"]}, about)
    write(folder / f"{name}_grad.safetensors", grads, {})
    write(folder / f"{name}_after.safetensors", as_saved(after)[0], {})
    print("  noise", noise, "loss", float(got["loss"]))


def make_optimizers(path):
    rng = torch.Generator().manual_seed(SEED)
    x0, grads = torch.randn(37, generator=rng), torch.randn(5, 37, generator=rng)
    optimizers = {
        "adamw": (torch.optim.AdamW, ADAMW),
        "sgd": (torch.optim.SGD, SGD | dict(momentum=0.0)),
        "sgd_momentum": (torch.optim.SGD, SGD),
        "sgd_nesterov": (torch.optim.SGD, SGD | dict(nesterov=True)),
    }
    tensors, metadata = {"x0": x0, "grads": grads}, {}
    for name, (make, options) in optimizers.items():
        x = torch.nn.Parameter(x0.clone())
        opt, path_of_x = make([x], **options), []
        for g in grads:
            x.grad = g.clone()
            opt.step()
            path_of_x.append(x.detach().clone())
        tensors[name + ".x"] = torch.stack(path_of_x)
        metadata[name] = json.dumps(options)
    write(path, tensors, metadata)


def main():
    p = argparse.ArgumentParser(description="Make tests/vectors from PyTorch and transformers.")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/vectors"))
    p.add_argument("names", nargs="*", metavar="NAME", 
                   help=f"of {', '.join([*MODELS, *IMAGES])}, adamw_sgd; default: all")
    a = p.parse_args()

    torch.set_num_threads(1)  # same bits on any machine of the same kind
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    a.out.mkdir(parents=True, exist_ok=True)
    for name in a.names or [*MODELS, *IMAGES, "adamw_sgd"]:
        path = a.out / f"{name}.safetensors"
        if name == "adamw_sgd":
            make_optimizers(path)
        elif name in MODELS:
            make_vectors(path, *MODELS[name])
        elif name in IMAGES:
            make_image_vectors(a.out, name, *IMAGES[name])
        else:
            p.error(f"no such vectors: {name}")


if __name__ == "__main__":
    main()
