"""The HTML report, the attention page and charts."""

import logging

# Without a writable home, Matplotlib keeps its caches in a temporary folder, and says so in lines
# that nobody can act on.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
