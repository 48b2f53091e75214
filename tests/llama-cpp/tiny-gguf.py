"""A small model with random weights as llama.cpp reads it: `python tiny-gguf.py REQUEST.json OUT.gguf`.

REQUEST holds `architecture`, `pre` (how the tokenizer cuts words), `texts` (that it is trained on), and what the model has beyond the least:
`fields` (its hyperparameters), `biases` (stems of tensors that have one), `headDim`, `tied`, `ropeFactors`.
"""

import json
import sys

import numpy as np
from gguf import GGUFWriter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

with open(sys.argv[1], encoding="utf-8") as file:
    request = json.load(file)
architecture = request["architecture"]
WIDTH, HEADS, KEY_HEADS, INNER, LAYERS, HEAD = 48, 4, 2, 80, 2, request["headDim"]

# Merges only: how text is cut into words is what llama.cpp does for `pre`.
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=700, special_tokens=["<|stop|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
)
tokenizer.train_from_iterator([word for text in request["texts"] for word in text.split()], trainer)
model = json.loads(tokenizer.to_str())["model"]
tokens = sorted(model["vocab"], key=model["vocab"].get)

writer = GGUFWriter(sys.argv[2], architecture)
writer.add_context_length(256)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(INNER)
writer.add_head_count(HEADS)
writer.add_head_count_kv(KEY_HEADS)
writer.add_key_length(HEAD)
writer.add_value_length(HEAD)
writer.add_rope_dimension_count(HEAD)
writer.add_layer_norm_rms_eps(1e-5)
for name, value in request["fields"].items():
    add = writer.add_string if isinstance(value, str) else writer.add_uint32 if isinstance(value, int) else writer.add_float32
    add(f"{architecture}.{name}", value)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre(request["pre"])
writer.add_token_list(tokens)
writer.add_token_types([3 if token == "<|stop|>" else 1 for token in tokens])
writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
writer.add_eos_token_id(0)
writer.add_add_bos_token(False)

random = np.random.default_rng(7)


def add(name, *shape, center=0.0):
    writer.add_tensor(name, (random.normal(0, 0.3, shape) + center).astype(np.float32))


add("token_embd.weight", len(tokens), WIDTH)
if not request["tied"]:
    add("output.weight", len(tokens), WIDTH)
if request["ropeFactors"]:
    writer.add_tensor("rope_freqs.weight", np.array(request["ropeFactors"], dtype=np.float32))
add("output_norm.weight", WIDTH, center=1)
for layer in range(LAYERS):
    at = f"blk.{layer}."
    add(f"{at}attn_norm.weight", WIDTH, center=1)
    add(f"{at}ffn_norm.weight", WIDTH, center=1)
    for stem, rows, columns in (
        ("attn_q", HEADS * HEAD, WIDTH),
        ("attn_k", KEY_HEADS * HEAD, WIDTH),
        ("attn_v", KEY_HEADS * HEAD, WIDTH),
        ("attn_output", WIDTH, HEADS * HEAD),
        ("ffn_gate", INNER, WIDTH),
        ("ffn_up", INNER, WIDTH),
        ("ffn_down", WIDTH, INNER),
    ):
        add(f"{at}{stem}.weight", rows, columns)
        if stem in request["biases"]:
            add(f"{at}{stem}.bias", rows)
    if architecture == "qwen3":
        add(f"{at}attn_q_norm.weight", HEAD, center=1)
        add(f"{at}attn_k_norm.weight", HEAD, center=1)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
