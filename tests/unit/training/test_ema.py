"""The exponential moving average of the weights against its formula."""

import torch

from transformer_mt.config import ModelConfig
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.ema import EMA


def test_ema_follows_its_formula() -> None:
    sizes = {"d_model": 8, "d_ff": 16, "num_heads": 2}
    model = Transformer(ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1), 11)
    mean = EMA(model, decay=0.3)
    expected = {name: p.detach().double() for name, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 6):
        decay = min(0.3, (1 + step) / (10 + step))  # 2/11, 3/12, then 0.3
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
                expected[name] = decay * expected[name] + (1 - decay) * parameter.double()
        mean.update(step)
    for name, parameter in mean.model.named_parameters():
        torch.testing.assert_close(
            parameter.detach().double(), expected[name], rtol=1e-5, atol=1e-6
        )
        assert mean.state()[f"running_mean.{name}"].data_ptr() == parameter.data_ptr()
