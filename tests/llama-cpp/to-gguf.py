"""Weights of a checkpoint directory of ours as GGUF with float32 values: `python to-gguf.py LIKE.gguf DIRECTORY OUT.gguf`.

Everything but the weights is taken over from LIKE.gguf, from which the directory was once imported. Written apart from
scripts/gguf/convert.py, so that a mistake there does not cancel out here: order of rows as in llama.cpp's convert_hf_to_gguf.py.
"""

import sys

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from safetensors import safe_open

like, directory, out = sys.argv[1:]
reader = GGUFReader(like)
fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
writer = GGUFWriter(out, fields.pop("general.architecture").contents())
for name, field in fields.items():
    kind, value = field.types[0], field.contents()
    if name == "general.file_type":
        value = 0  # all float32
    if kind == GGUFValueType.ARRAY:
        writer.add_array(name, value)
    else:
        writer.add_key_value(name, value, kind)

heads = reader.fields["llama.attention.head_count"].contents()
key_heads = reader.fields["llama.attention.head_count_kv"].contents()
names = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}
with safe_open(f"{directory}/model.safetensors", framework="numpy") as file:
    for name in file.keys():
        values = file.get_tensor(name)
        stem = name.removesuffix(".weight")
        if stem.startswith("model.layers."):
            _, _, layer, part = stem.split(".", 3)
            count = {"self_attn.q_proj": heads, "self_attn.k_proj": key_heads}.get(part)
            if count:
                values = values.reshape(count, 2, values.shape[0] // count // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            stem = f"blk.{layer}.{names[part]}"
        else:
            stem = names[stem]
        writer.add_tensor(f"{stem}.weight", values.astype("float32"), raw_dtype=GGMLQuantizationType.F32)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
