"""The default root: the platform's user cache directory, and never one that others prepared."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from neuron_compile.cache.location import default_root


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """No account, as for a number given to a container; the temporary directory is `tmp_path`."""

    def nobody(uid: int):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"neuron-compile-{os.getuid()}"


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"HOME": "/h"}, "linux", "/h/.cache/neuron-compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "linux", "/x/neuron-compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "linux", "/h/.cache/neuron-compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "linux", "/h/.cache/neuron-compile"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "darwin", "/h/Library/Caches/neuron-compile"),
    ],
)
def test_the_user_cache_directory_of_the_platform(environ, platform, expected):
    assert default_root(environ, platform=platform) == Path(expected)


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_home_in_the_environment_the_account_says_it(monkeypatch, home):
    class Account:
        pw_dir = "/account"

    monkeypatch.setattr(pwd, "getpwuid", lambda uid: Account)
    assert default_root(home, platform="linux") == Path("/account/.cache/neuron-compile")


def test_without_any_home_a_private_temporary_directory_is_used(homeless, caplog):
    assert default_root({}, platform="linux") == homeless
    assert homeless.stat().st_mode & 0o777 == 0o700
    assert default_root({}, platform="linux") == homeless
    assert len(caplog.records) == 1


@pytest.mark.parametrize("prepare", ["link", "open", "file", "other"])
def test_a_temporary_directory_that_others_may_write_to_is_not_used(
    homeless, caplog, tmp_path, monkeypatch, prepare
):
    if prepare == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        homeless.symlink_to(tmp_path / "theirs")
    elif prepare == "file":
        homeless.write_text("")
    else:
        homeless.mkdir(mode=0o700)
        homeless.chmod(0o777 if prepare == "open" else 0o700)
    if prepare == "other":  # the directory belongs to another user than the one who runs
        uid = os.getuid()
        homeless.rename(tmp_path / f"neuron-compile-{uid + 1}")
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert default_root({}, platform="linux") is None
    assert len(caplog.records) == 1


def test_a_temporary_directory_that_cannot_be_made_is_no_error(monkeypatch, homeless, caplog):
    monkeypatch.setattr(tempfile, "tempdir", str(homeless / "missing"))
    assert default_root({}, platform="linux") is None
    assert len(caplog.records) == 1
