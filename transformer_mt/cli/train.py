"""``mt-train``: train a model and print its test scores."""

from transformer_mt.cli import main as cli
from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import TrainJob


def main() -> None:
    """Run ``mt-train``: compose its job from the command line, then call ``run``."""
    cli.main("train", run)


def run(job: TrainJob) -> None:
    """Run a training job and print its results."""
    with exit_on_interrupt("mt-train"):  # loads PyTorch, which --help does not need
        from transformer_mt.evaluation.scores import to_text
        from transformer_mt.jobs.train import train
    result = train(job)
    for name, path in result.prepared.items():
        print(name, path, sep="\t")
    if result.scores is not None:
        print(to_text(result.scores))


if __name__ == "__main__":
    main()
