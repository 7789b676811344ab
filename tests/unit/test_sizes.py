"""Modules and functions stay short: the tool that says so, and that they are."""

from tools.sizes import (
    FUNCTION_MAX,
    FUNCTION_P50,
    GENERATED,
    LONGER_MODULES,
    PRODUCT,
    Function,
    functions_of,
    out_of_bounds,
    sources,
    spread_of,
    too_long,
)


def of_lines(*lengths: int) -> list[Function]:
    return [Function(length, f"gateway/a.py:{number} f") for number, length in enumerate(lengths)]


def test_a_function_counts_from_def_to_its_last_line_and_so_does_one_inside_it() -> None:
    source = (
        "@decorated\ndef outer(\n  a: int,\n) -> int:\n  async def inner() -> None:\n    pass\n  return a\n"
    )
    assert list(functions_of(source, "gateway/a.py")) == [
        Function(6, "gateway/a.py:2 outer"),
        Function(2, "gateway/a.py:5 inner"),
    ]


def test_a_function_over_the_bound_is_named() -> None:
    assert out_of_bounds(of_lines(*[5] * 20, FUNCTION_MAX)) == []
    (sentence,) = out_of_bounds(of_lines(*[5] * 20, FUNCTION_MAX + 1))
    assert sentence.startswith(f"gateway/a.py:20 f has {FUNCTION_MAX + 1} lines")


def test_functions_that_grow_all_together_are_noticed() -> None:
    assert spread_of(of_lines(*range(1, 11)))[1:] == (6, 10, 10)
    (sentence,) = out_of_bounds(of_lines(*[FUNCTION_P50 + 1] * 20))
    assert sentence.startswith("half of the functions")


def test_a_module_over_the_bound_of_its_directory_is_named_unless_it_is_listed() -> None:
    lines = {"gateway/a.py": 501, "gateway/b.py": 500, "tests/unit/test_c.py": 650}
    (sentence,) = too_long(lines, {})
    assert sentence.startswith("gateway/a.py has 501 lines")
    assert too_long(lines, {"gateway/a.py": "because"}) == []


def test_a_listed_module_that_became_short_or_is_gone_must_leave_the_list() -> None:
    lines = {"gateway/a.py": 500}
    listed = {"gateway/a.py": "because", "gateway/gone.py": "because"}
    assert [sentence.split(" ")[0] for sentence in too_long(lines, listed)] == list(listed)


def test_modules_and_functions_of_the_tree_are_within_bounds() -> None:
    texts = sources()
    assert not any(path.startswith(GENERATED) for path in texts)
    assert too_long({path: text.count("\n") for path, text in texts.items()}, LONGER_MODULES) == []
    product = {path: text for path, text in texts.items() if path.startswith(PRODUCT)}
    assert out_of_bounds([one for path, text in product.items() for one in functions_of(text, path)]) == []
