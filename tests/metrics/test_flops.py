"""FLOPs per token: by hand on a small model, and against figures published for real ones."""

import pytest

from flagperf.metrics.flops import FORMULAS, ModelFacts, utilisation


def facts(parameters=0, matmul=0, layers=0, heads=1, head_size=1, sequence=1, causal=False, nominal=None, lora=None):
    return ModelFacts(parameters, matmul, layers, heads, head_size, sequence, causal, nominal, lora)


# L H Q T = 2 x 3 x 5 x 7 = 210
SMALL = facts(1000, 800, 2, 3, 5, 7, causal=False, nominal=900, lora=10)
CAUSAL = facts(1000, 800, 2, 3, 5, 7, causal=True, nominal=900, lora=10)


@pytest.mark.parametrize(
    ("formula", "full", "causal"),
    [
        ("nominal-6n", 6 * 900, 6 * 900),
        ("nominal-2n", 2 * 900, 2 * 900),
        ("palm", 6000 + 12 * 210, 6000 + 12 * 210),
        ("palm-infer", 2000 + 4 * 210, 2000 + 4 * 210),
        ("exact", 4800 + 12 * 210, 4800 + 6 * 210),
        ("exact-lora", 3200 + 60 + 12 * 210, 3200 + 60 + 6 * 210),
        ("exact-infer", 1600 + 4 * 210, 1600 + 2 * 210),
    ],
)
def test_formula_by_hand(formula, full, causal):
    assert FORMULAS[formula](SMALL) == full
    assert FORMULAS[formula](CAUSAL) == causal


def test_every_formula_is_tested_by_hand():
    assert set(FORMULAS) == {"nominal-6n", "nominal-2n", "palm", "palm-infer", "exact", "exact-lora", "exact-infer"}


def test_nominal_falls_back_to_all_parameters():
    assert FORMULAS["nominal-6n"](facts(parameters=1000)) == 6000
    assert FORMULAS["nominal-2n"](facts(parameters=1000)) == 2000


def llama2_7b(causal):
    return facts(6_738_415_616, 6_607_077_376, 32, 32, 128, 512, causal, nominal=7_000_000_000, lora=4_194_304)


LLAMA2_70B = facts(68_976_648_192, 68_713_185_280, 80, 64, 128, 4096, causal=True, nominal=70_000_000_000)
PALM_540B = facts(540_350_000_000, 0, 118, 48, 256, 2048)
PALM_540B_NO_ATTENTION = facts(540_350_000_000)
GLM = facts(334_688_256, 333_316_096, 24, 16, 64, 512)
DISTILBERT = facts(66_955_010, 42_467_328, 6, 12, 64, 512)
AQUILA = facts(nominal=34_000_000_000)
FROZEN_7B = facts(matmul=7_000_000_000, lora=0)


@pytest.mark.parametrize(
    ("model", "formula", "flops"),
    [
        (llama2_7b(causal=False), "exact-lora", 27_258_781_696),
        (llama2_7b(causal=True), "exact-lora", 26_856_128_512),
        (LLAMA2_70B, "palm", 446_072_143_872),
        (LLAMA2_70B, "exact", 428_385_239_040),
        (GLM, "exact", 2_150_891_520),
        (DISTILBERT, "exact", 283_115_520),
    ],
)
def test_flops_per_token_of_a_real_model(model, formula, flops):
    assert FORMULAS[formula](model) == flops


@pytest.mark.parametrize(
    ("example", "tokens_per_second", "model", "formula", "peak", "percent", "tolerance"),
    [
        ("llama2_7b as published", 4017, llama2_7b(False), "nominal-2n", 156e12, 36.05, 0.06),
        ("4N over the fp16 peak", 4017, FROZEN_7B, "exact-lora", 312e12, 36.05, 0.01),
        ("attention full", 4017, llama2_7b(False), "exact-lora", 312e12, 35.10, 0.01),
        ("attention half", 4017, llama2_7b(True), "exact-lora", 312e12, 34.58, 0.01),
        ("llama2_7b by nominal-6n", 4017, llama2_7b(False), "nominal-6n", 312e12, 54.07, 0.01),
        ("aquila on 8", 8724 / 8, AQUILA, "nominal-2n", 312e12, 23.77, 0.05),
        ("70B TP8PP4", 641.93, LLAMA2_70B, "nominal-6n", 989e12, 27.26, 0.1),
        ("70B TP4PP8", 791.37, LLAMA2_70B, "nominal-6n", 989e12, 33.61, 0.05),
        ("70B GAS 1024", 908.29, LLAMA2_70B, "nominal-6n", 989e12, 38.57, 0.05),
        ("70B fp32", 253.61, LLAMA2_70B, "nominal-6n", 495e12, 21.52, 0.05),
        ("palm", 908.29, LLAMA2_70B, "palm", 989e12, 40.97, 0.01),
        ("exact", 908.29, LLAMA2_70B, "exact", 989e12, 39.34, 0.01),
        ("without attention", 238.3e3 / 6144, PALM_540B_NO_ATTENTION, "palm", 275e12, 45.73, 0.05),
        ("with attention", 238.3e3 / 6144, PALM_540B, "palm", 275e12, 46.23, 0.05),
        ("glm 1x8", 42.4 / 8 * 512, GLM, "nominal-6n", 156e12, 3.49, 0.11),
        ("glm 1x8 second", 43.5 / 8 * 512, GLM, "nominal-6n", 156e12, 3.58, 0.11),
        ("glm 1x1", 5.5 * 512, GLM, "nominal-6n", 156e12, 3.62, 0.11),
        ("glm 2x8", 84.9 / 16 * 512, GLM, "nominal-6n", 156e12, 3.50, 0.11),
        ("glm, 10 candidates", 42.4 / 8 * 10 * 512, GLM, "exact", 312e12, 18.71, 0.01),
        ("distilbert of TF32", 287.9 * 512, DISTILBERT, "exact", 156e12, 26.75, 0.05),
        ("distilbert of FP32", 287.9 * 512, DISTILBERT, "exact", 19.5e12, 214.0, 0.05),
    ],
)
def test_published_utilisation(example, tokens_per_second, model, formula, peak, percent, tolerance):
    share = utilisation(tokens_per_second, FORMULAS[formula](model), peak)
    assert share * 100 == pytest.approx(percent, abs=tolerance), example
