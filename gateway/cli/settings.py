"""`dragoman settings`: the table of settings."""

from gateway.cli.exits import Exit
from gateway.cli.output import print_json, print_table
from gateway.config import SETTINGS, Setting


def print_settings(as_json: bool) -> Exit:
    if as_json:
        print_json(
            [
                {
                    "name": setting.name,
                    "default": setting.default,
                    "environment": setting.environment_name,
                    "is_secret": setting.is_secret,
                    "doc": setting.doc,
                }
                for setting in SETTINGS.values()
            ]
        )
        return Exit.OK
    print_table(
        ("setting", "default", "environment", "what it is"),
        [
            (setting.name, _shown_default(setting), setting.environment_name, setting.doc)
            for setting in SETTINGS.values()
        ],
    )
    return Exit.OK


def _shown_default(setting: Setting) -> str:
    return ",".join(setting.default) if setting.is_list else str(setting.default)
