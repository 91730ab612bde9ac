"""What a vendor calls its extension of torch: importing it makes torch.device("nova") work."""

import os

from flagperf_nova import MACHINE, read_cards, report_use, visible_indices

from flagperf.testing.torch_device import install

_FOLDER = os.environ[MACHINE]
_VISIBLE = visible_indices()

install(
    "nova",
    "novacl",
    [read_cards(_FOLDER)[index] for index in _VISIBLE],
    lambda index, used: report_use(_FOLDER, _VISIBLE[index], used),
)
