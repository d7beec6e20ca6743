"""What only a GPU can show. Skipped where there is none; ``scripts/bench/gpu.sh`` runs it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.batch import IGNORE_INDEX, Batch, CuSeqlens, Packed
from transformer_mt.config import ModelConfig, OptimizerConfig
from transformer_mt.data.batching.micro_batches import collate, micro_batches
from transformer_mt.data.batching.plan import BatchPlan, GlobalBatch
from transformer_mt.data.batching.static_batches import (
    BufferShape,
    buffered_batches,
    fill,
    plan_buffers,
)
from transformer_mt.data.store.token_store import Side, TokenStore
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.engine import Hypothesis
from transformer_mt.decode.engines.torch_engine import ModelStep
from transformer_mt.decode.search.beam_search import beam_search
from transformer_mt.distributed.world import World
from transformer_mt.kernels.packed_attention import varlen_attention
from transformer_mt.model.transformer import Transformer, for_inference
from transformer_mt.training.loss import smoothed_cross_entropy
from transformer_mt.training.step import LossModule, TrainStep
from transformer_mt.training.validation import validation_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]
GPU = torch.device("cuda")
V = 1003
CONFIG = ModelConfig(
    d_model=64, d_ff=128, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch.cuda.set_sync_debug_mode("default")


def text(pairs: int = 4000, longest: int = 60) -> TokenStore:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(longest / 4), 0.6, pairs), 2, longest).astype(int)
    lengths[0] = longest

    def side(lengths: np.ndarray) -> Side:  # type: ignore[type-arg]
        return Side.from_lists([[*rng.integers(4, V, n - 1).tolist(), 3] for n in lengths])

    others = np.clip(lengths + rng.integers(-2, 4, pairs), 2, longest)
    return TokenStore(side(lengths), side(others))


@pytest.fixture(scope="module")
def plan() -> BatchPlan:
    return BatchPlan(text(), 4000, 1)


@pytest.fixture(scope="module")
def shape(plan: BatchPlan) -> BufferShape:
    return plan_buffers(plan, plan.store.max_length, 5000)


def model(seed: int = 1, config: ModelConfig = CONFIG) -> Transformer:
    torch.manual_seed(seed)
    made = Transformer(config, V)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:  # initial norms and biases would hide mistakes
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def new_step(trained: Transformer, precision: str = "bf16", *, compiled: bool = False) -> TrainStep:
    return TrainStep(trained, OptimizerConfig(), 0.1, precision, World(GPU), compiled=compiled)


Parts = Callable[[GlobalBatch], Sequence[Batch]]


def buffered(shape: BufferShape) -> Parts:
    """Fixed buffers of an update, as for the compiled step."""
    return lambda batch: [part.pin_memory() for part in buffered_batches(batch, shape)]


def exact(max_tokens: int = 10**6) -> Parts:
    """Micro-batches of an update, without dummies."""
    return lambda batch: micro_batches(batch, max_tokens)


def curve(
    step: TrainStep, plan: BatchPlan, updates: Iterable[int], parts: Parts, lr: float = 1e-3
) -> list[float]:
    """The loss of each update."""
    losses = []
    for number in updates:
        batch = plan[number]
        result = step(parts(batch), batch.num_targets, lr, number)
        losses.append(result.loss.item() / batch.num_targets)
    return losses


def random_sources(number: int) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [[*rng.integers(4, V, n).tolist(), EOS] for n in rng.integers(1, 50, number)]


def search(
    trained: Transformer,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    beam_size: int = 4,
) -> list[list[Hypothesis]]:
    """Beam search on the device of the model."""
    device = trained.embedding.weight.device
    with torch.inference_mode():
        steps = ModelStep([trained], Packed.from_sequences(sources).to(device), beam_size)
        return beam_search(
            steps, limits, beam_size=beam_size, alpha=0.6, bos=BOS, eos=EOS, device=device
        )


def fill_free_memory() -> None:
    """Fills it with NaN, so that elements that no kernel writes show up."""
    torch.cuda.empty_cache()
    sizes = [2**31, *[2**17] * 256]  # large and small blocks are allocated from different pools
    blocks = [torch.full((n,), torch.nan, dtype=torch.bfloat16, device=GPU) for n in sizes]
    del blocks


@pytest.mark.parametrize(("pairs", "longest"), [(60, 60), (20, 250)])
def test_loss_and_gradients_of_fixed_buffers_equal_the_cpu(pairs: int, longest: int) -> None:
    store = text(pairs, longest)
    on_cpu, on_gpu = model(), model().to(GPU)
    everyone = np.arange(pairs)
    max_length = 64 if longest < 64 else 256
    shape = BufferShape(src_tokens=2560, tgt_tokens=2560, max_length=max_length, parts=1)
    (buffer,) = fill(store, everyone, shape)
    batch = collate(store, everyone)
    loss, _ = smoothed_cross_entropy(on_cpu(batch), on_cpu.embedding.weight, batch.tgt_out, 0.1)
    loss.backward()
    buffer = buffer.to(GPU)
    fill_free_memory()
    with torch.autocast("cuda", torch.bfloat16):
        hidden = on_gpu(buffer)
        got, _ = smoothed_cross_entropy(hidden, on_gpu.embedding.weight, buffer.tgt_out, 0.1)
    got.backward()
    assert got.item() == pytest.approx(loss.item(), rel=2e-3)
    found, expected = [], []
    for (name, ours), theirs in zip(on_gpu.named_parameters(), on_cpu.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        found.append(ours.grad.cpu().flatten())
        expected.append(theirs.grad.flatten())
        off = (found[-1] - expected[-1]).norm() / expected[-1].norm()
        assert off < 0.1, name  # NaN fails too; bf16 on a CPU is off by up to 0.05
    assert (torch.cat(found) - torch.cat(expected)).norm() < 0.05 * torch.cat(expected).norm()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_dropout_of_the_variable_length_kernel(causal: bool) -> None:
    """Mean and seed; and with a seed the output is linear in the values, as its gradient says."""
    number, length, p = 64, 64, 0.25
    side = CuSeqlens(torch.arange(number + 1, dtype=torch.int32, device=GPU) * length, length)
    zeros = torch.zeros(number * length, 4, 64, device=GPU, dtype=torch.bfloat16)
    value = (zeros + 1).requires_grad_()

    def attention(seed: int, value: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(seed)
        return varlen_attention(zeros, zeros, value, side, side, causal, p)

    out = attention(1, value)
    assert torch.equal(out, attention(1, value))
    assert not torch.equal(out, attention(2, value))
    assert out.float().mean().item() == pytest.approx(1, abs=0.02)
    last = out.view(number, length, -1)[:, -1].float()  # with all keys in either case
    # Of 64 sequences × 4 heads: all 64 columns of a head share their weights.
    assert last.std().item() == pytest.approx((p / (1 - p) / length) ** 0.5, rel=0.25)
    weights = torch.randn_like(out)
    (grad,) = torch.autograd.grad((out.float() * weights.float()).sum(), value)
    # Random terms of either sign, whose sum is as large as their norm, or close to zero.
    terms = out.float() * weights.float()
    assert grad.float().sum().item() == pytest.approx(
        terms.sum().item(), abs=0.02 * terms.norm().item()
    )


def test_changing_a_pair_does_not_change_others_bit_for_bit() -> None:
    store = text(40)
    on_gpu = model().to(GPU).eval()
    shape = BufferShape(src_tokens=1536, tgt_tokens=1536, max_length=64, parts=1)
    changed = store.tgt.tokens.copy(), store.src.tokens.copy()
    for tokens, side in zip(changed, (store.tgt, store.src), strict=True):
        tokens[side.offsets[7] : side.offsets[8] - 1] = 5
    other = TokenStore(Side(changed[1], store.src.offsets), Side(changed[0], store.tgt.offsets))
    outputs = []
    for each in (store, other):
        (buffer,) = fill(each, np.arange(40), shape)
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            hidden = on_gpu(buffer.to(GPU))[(buffer.tgt_out != IGNORE_INDEX).to(GPU)]
        outputs.append(hidden.split(store.tgt.lengths.tolist()))
    for i, (old, new) in enumerate(zip(*outputs, strict=True)):
        assert torch.equal(old, new) == (i != 7)


def test_compiled_step_compiles_once_without_synchronization_and_learns(
    plan: BatchPlan, shape: BufferShape
) -> None:
    """Also with validations between updates."""
    valid, trained = text(200), model().to(GPU)
    trained.embedding.reserve(shape.max_length)
    step, parts = new_step(trained, compiled=True), buffered(shape)
    losses, validations = [], []
    for number in range(60):
        batch = plan[number]
        buffers = parts(batch)
        torch.cuda.set_sync_debug_mode("error" if number >= 5 else "default")
        result = step(buffers, batch.num_targets, 2e-3, number)
        torch.cuda.set_sync_debug_mode("default")
        losses.append(result.loss / batch.num_targets)
        if number % 25 == 3:
            trained.eval()
            with torch.compiler.set_stance("force_eager"):
                found = validation_loss(LossModule(trained, 0.1, "bf16"), valid, 500, World(GPU))
                search(trained, [[5, 6, 7, EOS], [8, EOS]], [10, 10])
            trained.train()
            validations.append(found["nll"])
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    values = torch.stack(losses).tolist()
    assert np.isfinite(values).all()
    assert values[-1] < values[0] - 0.3
    assert validations == sorted(validations, reverse=True)


def test_losses_of_the_compiled_step_equal_the_eager_step(
    plan: BatchPlan, shape: BufferShape
) -> None:
    curves = [
        curve(new_step(model().to(GPU), compiled=compiled), plan, range(20), parts)
        for compiled, parts in ((False, exact()), (True, buffered(shape)))
    ]
    assert curves[1] == pytest.approx(curves[0], rel=1e-2)


def test_layers_compiled_separately_under_ddp_equal_the_eager_step(
    plan: BatchPlan, shape: BufferShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on several GPUs, with one; layers are larger than DDP's first bucket of 1 MiB."""
    config = ModelConfig(d_model=256, d_ff=1024, num_heads=4, num_encoder_layers=2,
                         num_decoder_layers=2, dropout=0.0)  # fmt: skip
    models = [model(config=config).to(GPU) for _ in range(2)]
    expected = curve(new_step(models[0]), plan, range(12), exact())

    compile_for = LossModule.compile_for
    monkeypatch.setattr(LossModule, "compile_for", lambda self, _: compile_for(self, 2))
    monkeypatch.setattr(
        World,
        "data_parallel",
        lambda _, module: DistributedDataParallel(module, gradient_as_bucket_view=True),
    )
    store_of_ranks = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("nccl", store=store_of_ranks, rank=0, world_size=1)
    try:
        models[1].embedding.reserve(shape.max_length)
        found = curve(new_step(models[1], compiled=True), plan, range(12), buffered(shape))
    finally:
        dist.destroy_process_group()
    assert found == pytest.approx(expected, rel=1e-2)
    assert expected[-1] < expected[0] - 0.1
    # Encoder layer, decoder layer, loss; layers of one shape may or may not share a graph.
    assert 3 <= counters["stats"]["unique_graphs"] <= 5
    assert not counters["graph_break"]


def test_fp16_with_loss_scaling_learns_as_well_as_bf16(plan: BatchPlan) -> None:
    curves = [
        curve(new_step(model().to(GPU), precision), plan, range(40), exact(1500))
        for precision in ("fp16", "bf16")
    ]
    # An update or two may be skipped until the scale fits.
    assert curves[0][-1] == pytest.approx(curves[1][-1], rel=0.05)
    assert curves[0][-1] < curves[0][0] - 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_search(dtype: torch.dtype) -> None:
    sources = random_sources(40)
    limits = [len(source) + 20 for source in sources]
    trained = model().to(GPU).eval()
    fast = for_inference(trained, dtype)
    best = search(fast, sources, limits)
    with torch.inference_mode():
        hidden = torch.randn(37, CONFIG.d_model, device=GPU).to(dtype)
        logits = hidden.double() @ trained.embedding.weight.to(dtype).double().T
        torch.testing.assert_close(fast.logits(hidden), logits.float(), rtol=1e-5, atol=1e-5)
    for own, limit in zip(best, limits, strict=True):
        for each in own:
            assert EOS not in each.tokens
            assert len(each.tokens) <= limit
            assert np.isfinite(each.score)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_equal_the_cpu(beam_size: int) -> None:
    """In fp32, with sentences that finish at different steps."""
    sources = random_sources(300)
    limits = [len(source) + 20 for source in sources]
    on_gpu, on_cpu = (
        search(model().to(device).eval(), sources, limits, beam_size) for device in (GPU, "cpu")
    )
    pairs = list(zip(on_gpu, on_cpu, strict=True))
    same = [ours[0].tokens == theirs[0].tokens for ours, theirs in pairs]
    assert np.mean(same) > 0.9  # rounding may decide a near tie
    for (ours, *_), (theirs, *_) in pairs:
        assert ours.score == pytest.approx(theirs.score, rel=1e-3)
