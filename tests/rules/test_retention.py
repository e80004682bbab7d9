"""Settings: what the broker makes of what it is given."""

from __future__ import annotations

import pytest

from rmqtool.rules.retention import NAMES, Setting, settings_of, settings_of_node
from rmqtool.rules.versions import NEWEST, OLDEST, Version

V49, V50, V51 = Version(4, 9, 8), Version(5, 0, 0), Version(5, 1, 4)


def shown(name: str, version: Version = NEWEST, option: str | None = None, conf: str | None = None) -> Setting:
    """One setting, given in broker.conf or as an option."""
    settings = settings_of({} if conf is None else {name: conf}, {} if option is None else {name: option}, version)
    return next(setting for setting in settings.shown if setting.name == name)


def test_defaults() -> None:
    """Those of the Java classes, and each setting is shown once."""
    settings = settings_of({}, {}, NEWEST)
    assert (settings.file_reserved_time, settings.delete_when, settings.disk_max_used_space_ratio) == (72, "04", 75)
    assert (settings.warning_level, settings.forcibly_level) == (0.9, 0.85)
    assert settings.clean_file_forcibly_enable
    assert (settings.delete_file_batch_max, settings.clean_resource_interval) == (10, 10_000)
    assert (settings.replicas_per_disk_partition, settings.logical_threshold) == (1, 0.8)
    assert settings.reserved_ms == 72 * 3_600_000
    assert sorted(setting.name for setting in settings.shown) == sorted(NAMES)
    assert {(setting.given, setting.why) for setting in settings.shown} == {(None, None)}


def test_an_option_comes_before_broker_conf() -> None:
    assert shown("fileReservedTime", option="24", conf="48") == Setting("fileReservedTime", "24", 24)


@pytest.mark.parametrize(
    ("given", "effective", "why"),
    [
        ("48", 48, None),
        ("-1", -1, None),
        ("+7", 7, None),
        ("048", 48, None),
        ("48 ", 72, "blank"),
        ("many", 72, "not a whole number"),
        ("", 72, "not a whole number"),
        ("1.5", 72, "not a whole number"),
        ("2147483648", 72, "not a whole number"),
    ],
)
def test_whole_numbers(given: str, effective: int, why: str | None) -> None:
    """As Integer#parseInt reads them; what it refuses is ignored (`MixAll#properties2Object`)."""
    found = shown("fileReservedTime", conf=given)
    assert (found.given, found.effective) == (given, effective)
    assert (found.why is None) == (why is None)
    assert (why or "") in (found.why or "")
    assert ("because of a blank" in (found.why or "")) == (why == "blank")


@pytest.mark.parametrize(("given", "effective"), [("5", 10), ("10", 10), ("75", 75), ("95", 95), ("99", 95)])
def test_the_ratio_is_kept_between_10_and_95(given: str, effective: int) -> None:
    found = shown("diskMaxUsedSpaceRatio", OLDEST, conf=given)
    assert found.effective == effective
    assert (found.why is not None) == (given in ("5", "99"))


@pytest.mark.parametrize(
    ("name", "given", "effective"),
    [
        ("diskSpaceWarningLevelRatio", "95", 90),
        ("diskSpaceWarningLevelRatio", "20", 35),
        ("diskSpaceWarningLevelRatio", "80", 80),
        ("diskSpaceCleanForciblyRatio", "95", 85),
        ("diskSpaceCleanForciblyRatio", "10", 30),
        ("diskSpaceCleanForciblyRatio", "80 ", 85),
    ],
)
def test_levels_of_the_disk_since_5(name: str, given: str, effective: int) -> None:
    """Percent in broker.conf, kept in bounds."""
    for version in (V50, V51):
        found = shown(name, version, conf=given)
        assert found.effective == effective
        assert ("kept between" in (found.why or "")) == (given in ("95", "20", "10"))


def test_levels_of_the_disk_before_5() -> None:
    """Properties of the JVM, without bounds, which an option stands for; broker.conf does not set them."""
    name = "diskSpaceWarningLevelRatio"
    assert shown(name, V49, conf="50").effective == 90
    assert "-Drocketmq.broker" in (shown(name, V49, conf="50").why or "")
    assert shown(name, V49, option="99.5").effective == 99.5
    assert settings_of({}, {name: "99.5"}, V49).warning_level == 0.995
    assert settings_of({}, {}, V49).forcibly_level == 0.85


def test_settings_that_came_with_5() -> None:
    for name, given, before in (("deleteFileBatchMax", "3", 10), ("replicasPerDiskPartition", "2", 1)):
        assert shown(name, V49, conf=given).effective == before
        assert "since 5.0.0" in (shown(name, V49, conf=given).why or "")
        assert shown(name, V50, conf=given).effective == int(given)


@pytest.mark.parametrize(("given", "effective"), [("0", 1), ("-3", 1), ("1", 1), ("4", 4)])
def test_at_least_one_file_goes(given: str, effective: int) -> None:
    """The broker counts after it has deleted."""
    found = shown("deleteFileBatchMax", conf=given)
    assert found.effective == effective
    assert (found.why is None) == (effective == int(given))


@pytest.mark.parametrize(
    ("given", "effective", "odd"),
    [
        ("true", True, False),
        ("TRUE", True, False),
        ("false", False, False),
        ("true ", False, True),
        ("yes", False, True),
    ],
)
def test_flags(given: str, effective: bool, odd: bool) -> None:
    """Boolean#parseBoolean: a blank after `true` makes it false."""
    found = shown("cleanFileForciblyEnable", conf=given)
    assert (found.effective, found.why is not None) == (effective, odd)


def test_text_is_trimmed_since_5_2() -> None:
    trimmed = shown("deleteWhen", Version(5, 2, 0), conf="04 ")
    assert (trimmed.effective, "trimmed" in (trimmed.why or "")) == ("04", True)
    assert shown("deleteWhen", V51, conf="04 ") == Setting("deleteWhen", "04 ", "04 ")
    assert shown("deleteWhen", conf="04") == Setting("deleteWhen", "04", "04")


@pytest.mark.parametrize(("given", "effective"), [("0.5 ", 0.5), ("1e-1", 0.1), ("x", 0.8), ("", 0.8), (".5d", 0.5)])
def test_fractions(given: str, effective: float) -> None:
    """Double#parseDouble cuts blanks off."""
    assert shown("logicalDiskSpaceCleanForciblyThreshold", conf=given).effective == effective


def test_a_dledger_node_has_a_cleaner_of_its_own() -> None:
    """It keeps files an hour longer, at least one, and of the rest reads one flag, until 4.9."""
    conf = {
        "fileReservedTime": "48",
        "diskSpaceWarningLevelRatio": "80",
        "diskSpaceCleanForciblyRatio": "70",
        "deleteFileBatchMax": "3",
        "replicasPerDiskPartition": "2",
        "diskMaxUsedSpaceRatio": "50",
    }
    given = settings_of(conf, {}, V50)
    node = settings_of_node(given, V50)
    own = {"fileReservedTime": 49, "diskSpaceWarningLevelRatio": 90, "diskSpaceCleanForciblyRatio": 85}
    own |= {"deleteFileBatchMax": 10, "replicasPerDiskPartition": 1}
    assert {each.name: each.effective for each in node.shown if each.why} == own
    assert (node.file_reserved_time, node.warning_level, node.forcibly_level) == (49, 0.9, 0.85)
    assert (node.delete_file_batch_max, node.replicas_per_disk_partition) == (10, 1)
    assert {*node.shown} - {*given.shown} == {each for each in node.shown if each.why}
    assert node.expires(7) == 7 + 49 * 3_600_000
    assert settings_of_node(settings_of({"fileReservedTime": "-5"}, {}, V50), V50).file_reserved_time == 1


@pytest.mark.parametrize(
    ("version", "flag", "expected"), [(V49, "false", False), (V49, "true", True), (V50, "false", True)]
)
def test_a_dledger_node_reads_one_flag_until_4_9(version: Version, flag: str, expected: bool) -> None:
    node = settings_of_node(settings_of({"cleanFileForciblyEnable": flag}, {}, version), version)
    assert node.clean_file_forcibly_enable == expected
