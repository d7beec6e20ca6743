"""Names of all files in a run folder, which is also a model folder.

Paths are relative to the run folder; those of a checkpoint's files to the checkpoint's folder.
"""

CONFIG = "config.yaml"
"""Resolved configuration."""
NON_SETTINGS = ("format", "tokenizer_sha256")
"""Keys of ``config.yaml`` that are not settings."""
TOKENIZER = "tokenizer.model"
"""SentencePiece vocabulary of both languages; it has the same name in the cache."""
SIDE_TOKENIZERS = ("source.spm", "target.spm")
"""SentencePiece models of source and target, instead of ``tokenizer.model``."""
VOCABULARY = (TOKENIZER, *SIDE_TOKENIZERS)
"""Files that a vocabulary may have."""
WEIGHTS = "model.safetensors"
"""Weights: of the final model in the run folder, of one step in a checkpoint."""
TEST_SCORES = "test.json"
"""Scores of the test set, in sacreBLEU's JSON format."""
METRICS = "metrics.jsonl"
"""One JSON object for each logged interval of training and for each validation."""
RUN_INFO = "run.json"
"""Provenance: command, code and hardware of each start of the run."""
LOG = "train.log"
"""Log with time stamps."""
LOCK = ".mt-train.lock"
"""Lock file, held by the process that writes to the folder."""
MODEL_CARD = "README.md"
"""Model card, with the metadata that the Hugging Face Hub reads."""
CURVES = "curves.png"
"""Training curves, for the model card."""
TENSORBOARD = "tensorboard"
"""Folder of TensorBoard event files."""
TRACKERS = "trackers"
"""Folder of the other trackers: in a folder for each, its local store and the id of its entry."""
CLEANING_REPORT = "data/cleaning.json"
"""Report of what cleaning dropped, and checksums of the data."""
HELD_OUT = "data/{}.{}"
"""Sides of the ``valid`` and ``test`` pairs that were taken out of the training sources, such as
``data/test.en``."""
CTRANSLATE2 = "ctranslate2"
"""Folder of the model converted to CTranslate2: subfolders for each compute type and weights."""

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints, each in a subfolder such as ``step_00001234``."""
CHECKPOINT_NAME = "step_{:08d}"
CHECKPOINT_PATTERN = f"step_{8 * '[0-9]'}"
"""Name of a checkpoint's folder, by step, and its pattern: any other folder is the user's own."""
CHECKPOINT_STATE = "state.json"
CHECKPOINT_OPTIMIZER = "optimizer.safetensors"

WRITTEN = (
    CONFIG,
    *VOCABULARY,
    WEIGHTS,
    TEST_SCORES,
    METRICS,
    RUN_INFO,
    CURVES,
    TENSORBOARD,
    TRACKERS,
    CLEANING_REPORT,
    CHECKPOINTS,
)
"""Files and folders that a run writes, besides its held-out pairs. Not among them are the log,
which is continued, and the model card, which is kept if it is somebody else's."""
