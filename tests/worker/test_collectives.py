import itertools

from collective_work import agreed, spans_of_turns, sums
from rank_processes import answers_of_ranks

from flagperf.worker.rank_sync import sum_over_ranks


def test_one_rank_has_its_own_numbers():
    assert sum_over_ranks([3, 0.25], 1, "cpu") == [3.0, 0.25]


def test_sums_are_those_of_double_precision_on_every_rank_and_need_none_on_the_card(tmp_path):
    (answers,) = answers_of_ranks(tmp_path / "ranks", 2, sums, [1.0], ["torch.distributed"])
    for totals, crossed in answers:
        assert totals == [2**53 - 1, 0.1 + 0.2, 0.0]
        assert crossed and all(not kind.is_floating_point for kind in crossed)


def test_devices_are_measured_one_after_the_other_and_then_all_at_once(tmp_path):
    (ranks,) = answers_of_ranks(tmp_path / "ranks", 3, spans_of_turns, [0.2], ["torch.distributed"])
    assert [[turn for turn, _, _ in spans] for spans in ranks] == [["single", "all"]] * 3
    alone = sorted((began, ended) for ((_, began, ended), _) in ranks)
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(alone))
    together = [span for _, span in ranks]
    assert max(began for _, began, _ in together) < min(ended for _, _, ended in together)


def test_some_ranks_agree_without_the_others(tmp_path):
    answers = answers_of_ranks(tmp_path / "ranks", 3, agreed, [[0, 2], [1, 2], [0, 2]], ["torch.distributed"])
    assert answers == [[[3.0, 0.0], [], [3.0, 0.0]], [[], [3.0, -1.0], [3.0, -1.0]], [[3.0, 0.0], [], [3.0, 0.0]]]
