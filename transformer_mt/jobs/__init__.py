"""The jobs of the commands: training, translation, evaluation and export."""
