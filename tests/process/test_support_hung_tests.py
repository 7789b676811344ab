"""A test that hangs for good fails, and others run after it; tried by pytest on a small tree of its own."""

import pytest

HANGS = """
import asyncio, pytest, uvloop

async def hang():
    while True:
        # Where the handler of a signal raises, the loop goes on.
        await asyncio.sleep(0.01)

@pytest.mark.timeout(1)
def test_hangs_in_a_loop():
    uvloop.run(hang())

def test_ends(): pass

def test_after_it(): pass
"""


@pytest.mark.parametrize("processes", ["1", "0"])
def test_a_test_that_its_timeout_does_not_end_ends_its_process(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    processes: str,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    monkeypatch.setenv("DRAGOMAN_TEST_GRACE_S", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(test_some=HANGS)
    plugins = ("-p", "tests.support.hung_tests", "--import-mode=importlib", "-p", "no:cacheprovider")
    done = pytester.runpytest_subprocess(*plugins, "-n", processes, timeout=60)
    assert done.ret != 0
    done.stderr.fnmatch_lines(["*in test_hangs_in_a_loop*"])
    if processes == "1":
        done.assert_outcomes(failed=1, passed=2)
        done.stdout.fnmatch_lines(["*crashed while running*test_hangs_in_a_loop*"])
