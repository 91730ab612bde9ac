from __future__ import annotations

import pytest

from flagperf.api import Device
from flagperf.errors import BadInput
from flagperf.kit import visible_devices

UUIDS = ("GPU-aa1", "GPU-aa2", "GPU-bb1")
CARDS = [Device(uuid, "A1", "A1", index, uuid=uuid) for index, uuid in enumerate(UUIDS)]


LOST = Device("0000:af:00.0", "A1", "A1", -1, pci_address="0000:af:00.0", problem="lost")


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2, -1]),
        ("0,1,2", [0, 1, 2]),
        ("2,1", [2, 1]),
        ("GPU-bb1,0", [2, 0]),
        ("GPU-bb", [2]),
        ("GPU-aa", [-1]),  # two begin like that
        (
            "0,7,1",
            [0, -1],
        ),  # hides what follows, but not a lost card, which it may mean
        ("GPU-aa1,GPU-cc1", [0, -1]),
        ("1,1,0", [1]),
        ("0,-1", [0]),
        ("", []),
        ("-1", []),
        (" 1 , 0 ", [1, 0]),
    ],
)
def test_a_variable_narrows_and_reorders(value: str | None, indices: list[int]) -> None:
    environ = {"OTHER_VISIBLE_DEVICES": "0"} | ({} if value is None else {"ACME_VISIBLE_DEVICES": value})
    visible = visible_devices([*CARDS, LOST], environ, ("ACME_VISIBLE_DEVICES",))
    assert [device.physical_index for device in visible] == indices


def test_two_that_agree_are_one_and_two_that_do_not_are_refused() -> None:
    both = ("ACME_VISIBLE_DEVICES", "OLD_VISIBLE_DEVICES")
    assert len(visible_devices(CARDS, dict.fromkeys(both, "1"), both)) == 1
    with pytest.raises(BadInput, match=r"ACME_VISIBLE_DEVICES='1', OLD_VISIBLE_DEVICES='0'.*set them equal"):
        visible_devices(CARDS, {"ACME_VISIBLE_DEVICES": "1", "OLD_VISIBLE_DEVICES": "0"}, both)
