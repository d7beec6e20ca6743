"""Weights of MarianMT models: read, and converted to our names.

Shapes: D model; V vocabulary.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251, the exception only

import torch
from torch import Tensor

from transformer_mt import checkpoint as ckpt
from transformer_mt import hub_models, run_layout
from transformer_mt.config import ModelConfig
from transformer_mt.conversion import transformers_model
from transformer_mt.conversion.marian_vocabulary import Vocabulary
from transformer_mt.data.subwords.tokenizer import BOS, PAD, UNK
from transformer_mt.errors import InputError
from transformer_mt.files import reading

NEVER_BIAS = -100.0
"""Output bias of pieces that are never generated, which makes their probability negligible
(e^−100): ``<s>``, ``<pad>`` and copies of ``<unk>``."""

_SHARED, _OUTPUT = "model.shared", "lm_head"
_SOURCE_EMBEDDING, _TARGET_EMBEDDING = "model.encoder.embed_tokens", "model.decoder.embed_tokens"
"""Embeddings, of which a file has one or more, whatever is tied."""

Weights = dict[str, Tensor]


def read_weights(folder: Path) -> Weights:
    """The tensors of a model, by the names in its file."""
    path = folder / run_layout.WEIGHTS
    if path.exists():
        return ckpt.read_tensors(path)
    path = folder / hub_models.PICKLE
    if not path.exists():
        raise InputError(f"it has neither {run_layout.WEIGHTS} nor {path.name}")
    # A pickle, whose code is not run; only of other libraries' models, never in a folder of ours.
    with reading(path, RuntimeError, remedy="download it again"):
        try:
            tensors: Weights = torch.load(path, "cpu", weights_only=True)  # noqa: TID251, of tensors only
        except UnpicklingError:  # which advises to run the code of the file
            raise ValueError("it is not a pickle, or contains more than tensors") from None
    return tensors


def convert(theirs: Weights, model: ModelConfig, source: Vocabulary, target: Vocabulary) -> Weights:
    """The weights by our names."""
    dims = transformers_model.sines_first(model.d_model).argsort()

    def get(*names: str) -> Tensor:
        """The first of some tensors that exists."""
        for name in names:
            if name in theirs:
                return theirs[name].float()
        raise InputError(f"it has no tensor {names[0]}")

    def add(name: str, parts: Iterable[str], order: Callable[[Tensor], Tensor]) -> None:
        """Adds weight and bias of a layer that corresponds to several of MarianMT's."""
        for kind in ("weight", "bias"):
            tensors = [get(f"{part}.{kind}") for part in parts]
            ours[f"{name}.{kind}"] = order(torch.cat(tensors))

    def reads(x: Tensor) -> Tensor:
        """Reorders the input of a layer; it has no effect on a bias."""
        return x[:, dims] if x.dim() > 1 else x

    def writes(x: Tensor) -> Tensor:
        """Reorders the output of a layer."""
        return x[dims]

    def rows(vocabulary: Vocabulary, *names: str) -> Tensor:
        matrix = get(*(f"{name}.weight" for name in names))
        return torch.cat([matrix, matrix.new_zeros(1, len(dims))])[vocabulary.ids][:, dims]

    ours: Weights = {}
    tied = model.tied_embeddings
    if tied == "all":
        ours["embedding.weight"] = rows(
            target, _SHARED, _SOURCE_EMBEDDING, _TARGET_EMBEDDING, _OUTPUT
        )
    else:
        also = [_OUTPUT] * (tied == "decoder")
        ours["untied_source.weight"] = rows(source, _SOURCE_EMBEDDING, _SHARED)
        ours["embedding.weight"] = rows(target, _TARGET_EMBEDDING, *also, _SHARED)
    if tied == "none":
        ours["untied_output"] = rows(target, _OUTPUT)
    ours["output_bias"] = _output_bias(theirs, target)
    for stack, layers in (
        ("encoder", model.num_encoder_layers),
        ("decoder", model.num_decoder_layers),
    ):
        for i in range(layers):
            their, our = f"model.{stack}.layers.{i}", f"{stack}.{i}"
            own = f"{their}.self_attn"
            add(f"{our}.self_attention.qkv_proj", [f"{own}.{k}_proj" for k in "qkv"], reads)
            add(f"{our}.self_attention.out_proj", [f"{own}.out_proj"], writes)
            norms = ["self_attn_layer_norm", "final_layer_norm"]
            if stack == "decoder":
                norms.insert(1, "encoder_attn_layer_norm")
                cross = f"{their}.encoder_attn"
                add(f"{our}.cross_attention.q_proj", [f"{cross}.q_proj"], reads)
                add(f"{our}.cross_attention.out_proj", [f"{cross}.out_proj"], writes)
            for number, norm in enumerate(norms, 1):
                add(f"{our}.residual{number}.norm", [f"{their}.{norm}"], writes)
            add(f"{our}.feed_forward.linear1", [f"{their}.fc1"], reads)
            add(f"{our}.feed_forward.linear2", [f"{their}.fc2"], writes)
    cross_kv = [
        f"model.decoder.layers.{i}.encoder_attn.{kind}_proj"
        for i in range(model.num_decoder_layers)
        for kind in "kv"
    ]
    add("source_projection.proj", cross_kv, reads)
    return {name: tensor.contiguous() for name, tensor in ours.items()}


def _output_bias(theirs: Weights, target: Vocabulary) -> Tensor:
    """The output bias by our ids; it is ``NEVER_BIAS`` for pieces that are never generated."""
    bias = theirs.get("final_logits_bias", torch.zeros(1, target.size))[0].float()
    bias = torch.cat([bias, torch.full((1,), NEVER_BIAS)])[target.ids]
    bias[UNK + 1 :][torch.tensor(target.ids[UNK + 1 :]) == target.ids[UNK]] = NEVER_BIAS
    if target.ids[PAD] == target.size:
        bias[BOS] = NEVER_BIAS
    return bias
