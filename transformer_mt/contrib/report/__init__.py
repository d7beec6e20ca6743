"""The HTML report, the attention page and charts."""

import logging

# Without a writable home, Matplotlib says where its caches are, which nobody can act on.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
