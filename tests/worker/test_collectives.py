from collective_work import sums
from rank_processes import answers_of_ranks

from flagperf.worker.collectives import sum_over_ranks


def test_one_rank_has_its_own_numbers():
    assert sum_over_ranks([3, 0.25], 1, "cpu") == [3.0, 0.25]


def test_sums_are_those_of_double_precision_on_every_rank_and_need_none_on_the_card(tmp_path):
    (answers,) = answers_of_ranks(tmp_path / "ranks", 2, sums, [1.0], ["torch.distributed"])
    for totals, crossed in answers:
        assert totals == [2**53 - 1, 0.1 + 0.2, 0.0]
        assert crossed and all(not kind.is_floating_point for kind in crossed)
