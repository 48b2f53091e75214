"""
What the Python peers of `npm run bench:policy` share: reading the benchmark's input and the protocol.

A peer is started with the path of a JSON file (scripts/bench/policy/workloads.ts writes it). It prepares its workload, including
everything that is compiled, and answers one JSON line; then it answers each line on standard input with one measured round, until
standard input ends. Alone:  printf '\\n\\n\\n' | python scripts/bench/policy/torch_peer.py SPEC.json torch
"""

import json
import os
import sys
import time
from pathlib import Path


def read_spec():
    """The benchmark's input, and the name of the engine that is asked for. Pins the threads of every library that reads them at import."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(spec["threads"])
    return spec, sys.argv[2]


def read_config(spec):
    return json.loads((Path(spec["model"]) / "config.json").read_text())


def layer_names(config):
    """Per layer, the file's tensors by our short names. `qkv` and `gate_up` are the concatenations that all engines here compute with."""
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        names = {
            "attn_norm": [at + "input_layernorm.weight"],
            "qkv": [at + f"self_attn.{name}_proj.weight" for name in "qkv"],
            "o": [at + "self_attn.o_proj.weight"],
            "mlp_norm": [at + "post_attention_layernorm.weight"],
            "gate_up": [at + f"mlp.{name}_proj.weight" for name in ("gate", "up")],
            "down": [at + "mlp.down_proj.weight"],
        }
        if config["model_type"] == "qwen3":
            names |= {"q_norm": [at + "self_attn.q_norm.weight"], "k_norm": [at + "self_attn.k_norm.weight"]}
        yield names


def serve(prepare):
    """`prepare()` gives (answer, round): a dictionary for the first line, and the function that measures one round."""
    started = time.perf_counter()
    answer, measured_round = prepare()
    reply({"prepareSeconds": time.perf_counter() - started, **answer})
    for _ in sys.stdin:
        reply(measured_round())


def reply(answer):
    print(json.dumps(answer), flush=True)
