"""Sentences that core writes down in English, as a Chinese page prints them."""

import re

import pytest

from flagperf.report.phrases import PHRASES, in_chinese

ASCII_SENTENCE = re.compile(r"[a-z]+ [a-z]+ [a-z]+")


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("stopped by the user", "被用户中止"),
        (
            "failed: rank 1: killed by SIGKILL; see logs/rank-00001.log",
            "failed：rank 1：被SIGKILL终止，见logs/rank-00001.log",
        ),
        (
            "ranks 0, 1 did not succeed: rank 0 ended as failed (ValueError: no)",
            "rank 0, 1未成功：rank 0以failed结束（ValueError: no）",
        ),
        (
            "no memory was sampled of devices a, b of node 0: the probe was not ready within 60 s",
            "没有采到节点0的设备a, b的存储：探针未在60秒内就绪",
        ),
        ("device a of node 0 used 5 of 4 bytes at 3 ns", "节点0的设备a在3 ns使用了4字节中的5字节"),
        ("no peak is known for vendor v, model M 1, precision row bf16", "没有已知的峰值：厂商v，型号M 1，精度行bf16"),
        ("docker: not found", "docker：未找到"),
    ],
)
def test_our_own_words_are_translated_part_by_part(english, chinese):
    assert in_chinese(english) == chinese


def test_the_words_of_others_stay_as_they_were_said():
    for words in ("CUDA error: device-side assert", "", "{braces} and %s", "node balance: 3", "a\nb"):
        assert in_chinese(words) == words


@pytest.mark.parametrize("english", PHRASES)
def test_both_sides_of_a_phrase_have_the_same_parts(english):
    assert set(re.findall(r"{#?(\w+)}", english)) == set(re.findall(r"{(\w+)}", PHRASES[english]))


@pytest.mark.parametrize("english", PHRASES)
def test_every_phrase_is_reached_and_none_leaves_an_english_sentence(english):
    """A phrase that a more general one before it catches would never be used."""
    filled = re.sub(r"{#\w+}", "7", re.sub(r"{(?!#)\w+}", "X", english))
    wanted = re.sub(r"{(\w+)}", lambda part: "7" if f"{{#{part[1]}}}" in english else "X", PHRASES[english])
    assert in_chinese(filled) == wanted
    assert not ASCII_SENTENCE.search(in_chinese(filled))
