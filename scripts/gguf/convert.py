"""A GGUF file (llama.cpp) as a checkpoint directory in Hugging Face layout: `python convert.py MODEL.gguf DIRECTORY`.

Run by scripts/import-gguf.ts, which makes the environment (packages gguf and safetensors). Every weight is dequantised to float32, which
holds all quantised values exactly. Byte-level BPE tokenizers come along, with the chat template. What cannot be carried over is refused.
"""

import json
import os
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file

SHARD_BYTES = 5_000_000_000
ROPE_FACTORS = "rope_freqs.weight"
# llama.cpp turns neighbouring dimensions of a head, Hugging Face the two halves: for these, GGUF holds the rows of query and key in another order.
ROWS_REORDERED = {"llama": True, "qwen2": False, "qwen3": False}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def words(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**BYTE_LEVEL, "use_regex": False}]}


CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# By tokenizer.ggml.pre: how text is cut into words.
PRE_TOKENIZERS = {
    "gpt-2": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    "qwen2": words(CL100K % ""),
    "llama-bpe": words(CL100K % "{1,3}"),
}
# Normalizer and merging where they are not the plain ones.
NORMALIZERS = {"qwen2": {"type": "NFC"}}
WHOLE_WORDS_FIRST = {"llama-bpe"}
# Values of tokenizer.ggml.token_type.
CONTROL, USER_DEFINED = 3, 4


class Refused(Exception):
    """What the file holds and what was expected."""


def main(source, target):
    reader = GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = fields["general.architecture"]
    if architecture not in ARCHITECTURES:
        raise Refused(f"general.architecture is {architecture!r}, expected one of {', '.join(ARCHITECTURES)}")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = model_config(fields, architecture, tensors)
    os.makedirs(target)
    write_weights(reader.tensors, architecture, config, target)
    write_json(target, "config.json", config)
    for name, content in tokenizer_files(fields).items():
        write_json(target, name, content)


def model_config(fields, architecture, tensors):
    def field(name, *otherwise):
        value = fields.get(f"{architecture}.{name}", *otherwise)
        if value is None and not otherwise:
            raise Refused(f"{architecture}.{name} is missing")
        return value

    width, heads = field("embedding_length"), field("attention.head_count")
    head_dim = field("attention.key_length", field("rope.dimension_count", width // heads))
    for name in ("attention.value_length", "rope.dimension_count"):
        if field(name, head_dim) != head_dim:
            raise Refused(f"{architecture}.{name} is {field(name)}, expected {head_dim}, the size of a head")
    config = {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "hidden_size": width,
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": field("context_length"),
        # The file has a float32; its shortest decimal form is what was meant.
        "rms_norm_eps": float(str(np.float32(field("attention.layer_norm_rms_epsilon")))),
        "rope_theta": float(str(np.float32(field("rope.freq_base", 10000.0)))),
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float32",
        "hidden_act": "silu",
    }
    if architecture != "qwen2" and "blk.0.attn_q.bias" in tensors:
        config["attention_bias"] = True
    scaling = field("rope.scaling.type", "none")
    if scaling in ("linear", "yarn"):
        config["rope_scaling"] = {"rope_type": scaling, "factor": field("rope.scaling.factor")}
        original = field("rope.scaling.original_context_length", None)
        if original is not None and scaling == "yarn":
            config["rope_scaling"]["original_max_position_embeddings"] = original
    elif scaling != "none":
        raise Refused(f"{architecture}.rope.scaling.type is {scaling!r}, expected none, linear or yarn")
    if ROPE_FACTORS in tensors:
        config["rope_scaling"] = llama3_scaling(tensors[ROPE_FACTORS].data, head_dim, config["rope_theta"])
    config["eos_token_id"] = fields.get("tokenizer.ggml.eos_token_id")
    for name, key in (("bos_token_id", "bos_token_id"), ("pad_token_id", "padding_token_id")):
        if f"tokenizer.ggml.{key}" in fields:
            config[name] = fields[f"tokenizer.ggml.{key}"]
    return config


def llama3_scaling(factors, head_dim, theta):
    """The parameters behind the factors by which a frequency is divided: all Llama 3 models differ in one of them only."""
    low, high, original = 1.0, 4.0, 8192
    factor = float(factors.max())
    turns = original * theta ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    if not np.allclose(factors, 1 / ((1 - share) / factor + share), rtol=1e-4):
        raise Refused(f"tensor {ROPE_FACTORS} holds {factors.tolist()}, expected the factors of Llama 3 ({low}, {high}, {original})")
    parameters = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original}
    return {"rope_type": "llama3", "factor": round(factor, 4), **parameters}


def write_weights(tensors, architecture, config, target):
    shards, shard, filled = [], {}, 0
    for tensor in tensors:
        if tensor.name == ROPE_FACTORS:
            continue
        name, values = huggingface(tensor, architecture, config)
        if shard and filled + values.nbytes > SHARD_BYTES:
            shards.append(save(shard, target, len(shards)))
            shard, filled = {}, 0
        shard[name] = values
        filled += values.nbytes
    shards.append(save(shard, target, len(shards)))
    if len(shards) == 1:
        os.rename(os.path.join(target, shards[0][0]), os.path.join(target, "model.safetensors"))
        return
    weight_map = {}
    for i, (file, names) in enumerate(shards):
        final = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        os.rename(os.path.join(target, file), os.path.join(target, final))
        weight_map.update({name: final for name in names})
    write_json(target, "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def save(shard, target, number):
    file = f"shard-{number}.safetensors"
    save_file(shard, os.path.join(target, file), metadata={"format": "pt"})
    # The library makes files that only their owner can read.
    os.chmod(os.path.join(target, file), 0o644)
    return file, list(shard)


def huggingface(tensor, architecture, config):
    """Name and float32 values of a tensor as Hugging Face has it."""
    stem, kind = tensor.name.rsplit(".", 1)
    layer = ""
    if stem.startswith("blk."):
        _, number, stem = stem.split(".", 2)
        layer = f"model.layers.{number}."
    if stem not in TENSORS or kind not in ("weight", "bias"):
        raise Refused(f"tensor {tensor.name} has no place in a {config['model_type']} model")
    values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(stem)
    if heads and ROWS_REORDERED[architecture]:
        pairs = values.reshape(heads, config["head_dim"] // 2, 2, *values.shape[1:])
        values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
    return f"{layer}{TENSORS[stem]}.{kind}", values


def tokenizer_files(fields):
    def field(name, otherwise=None):
        return fields.get(f"tokenizer.ggml.{name}", otherwise)

    if field("model") != "gpt2":
        raise Refused(f"tokenizer.ggml.model is {field('model')!r}, expected 'gpt2' (byte-level BPE)")
    if field("pre") not in PRE_TOKENIZERS:
        raise Refused(f"tokenizer.ggml.pre is {field('pre')!r}, expected one of {', '.join(PRE_TOKENIZERS)}")
    if field("add_bos_token", False):
        raise Refused("tokenizer.ggml.add_bos_token is true, expected a tokenizer that adds nothing")
    tokens, types = field("tokens"), field("token_type")
    added = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": type == CONTROL}
        for i, (token, type) in enumerate(zip(tokens, types))
        if type in (CONTROL, USER_DEFINED)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": NORMALIZERS.get(field("pre")),
        "pre_tokenizer": PRE_TOKENIZERS[field("pre")],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": field("pre") in WHOLE_WORDS_FIRST,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in field("merges")],
        },
    }
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {name: tokens[field(f"{key}_token_id")] for name, key in named.items() if field(f"{key}_token_id") is not None}
    settings = {
        **special,
        "add_prefix_space": bool(field("add_space_prefix", False)),
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if "tokenizer.chat_template" in fields:
        settings["chat_template"] = fields["tokenizer.chat_template"]
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "special_tokens_map.json": special}


def write_json(target, name, content):
    with open(os.path.join(target, name), "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=2)
        file.write("\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except Refused as error:
        sys.exit(str(error))
