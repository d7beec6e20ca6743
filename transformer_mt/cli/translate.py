"""``mt-translate``: compose the configuration and run ``jobs.translate``."""

from transformer_mt.cli import app
from transformer_mt.config import TranslateJob
from transformer_mt.jobs.translate import run


def main() -> None:
    """Entry point of ``mt-translate``."""
    app.main("translate", TranslateJob, run)


if __name__ == "__main__":
    main()
