"""What decides does no I/O: a module is pure unless it is on the list."""

from tools.purity import impurities, needless

FORBIDDEN = {"os", "asyncio"}


def test_a_module_that_is_on_no_list_may_not_import_what_does_io() -> None:
    imports = {"app.pure": {"json"}, "app.new": {"os"}}
    assert impurities(imports, [], FORBIDDEN) == [["app.new", "os"]]


def test_nor_may_it_by_another_module() -> None:
    imports = {"app.new": {"app.deep", "json"}, "app.deep": {"app.io"}, "app.io": {"asyncio"}}
    ways = impurities(imports, ["app.io"], FORBIDDEN)
    assert ways == [["app.deep", "app.io", "asyncio"], ["app.new", "app.deep", "app.io", "asyncio"]]


def test_modules_on_the_list_may_and_a_pattern_names_all_of_a_package() -> None:
    imports = {"app.cli.main": {"os"}, "app.cli.more": {"app.cli.main"}, "app.server": {"asyncio"}}
    assert impurities(imports, ["app.cli.*", "app.server"], FORBIDDEN) == []


def test_modules_that_import_each_other_are_looked_at_once() -> None:
    imports = {"app.a": {"app.b"}, "app.b": {"app.a"}}
    assert impurities(imports, [], FORBIDDEN) == []


def test_what_is_on_the_list_without_need_is_found() -> None:
    imports = {"app.io": {"os"}, "app.pure": {"json"}}
    assert needless(imports, ["app.io", "app.pure", "app.gone"], FORBIDDEN) == ["app.pure", "app.gone"]


def test_a_module_of_our_own_that_is_called_like_a_forbidden_one_is_none() -> None:
    imports = {"os": {"json"}, "app.a": {"os"}}
    assert impurities(imports, [], FORBIDDEN) == []
