"""What the server imports before it forks commands; see ``training_runs``."""

from importlib import import_module

from transformer_mt.contrib.report import charts

for name in (
    "sacremoses",
    "support.training_runs",
    "torch._dynamo",  # which the first optimizer of a process loads
    "torch.utils.tensorboard",
    "transformer_mt.cli.command_line",
    "transformer_mt.contrib.report.pages",
    "transformer_mt.contrib.robustness.noise_scores",
    "transformer_mt.jobs.evaluate",
    "transformer_mt.jobs.train",
    "transformer_mt.jobs.translate",
):
    import_module(name)
charts.curve_image([{"step": 1, "split": "train", "loss": 1.0}])  # fonts
