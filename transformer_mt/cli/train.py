"""``mt-train``: compose the configuration and run ``jobs.train``."""

from transformer_mt.cli import app
from transformer_mt.config import TrainJob
from transformer_mt.jobs.train import run


def main() -> None:
    """Entry point of ``mt-train``."""
    app.main("train", TrainJob, run)


if __name__ == "__main__":
    main()
