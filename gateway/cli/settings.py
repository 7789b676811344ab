"""`dragoman settings`: the table of settings."""

from rich.console import Console
from rich.table import Table

from gateway.config import SETTINGS


def print_settings() -> None:
    table = Table("setting", "default", "environment", "what it is", box=None, pad_edge=False)
    for setting in SETTINGS.values():
        default = ",".join(setting.default) if setting.is_list else str(setting.default)
        table.add_row(setting.name, default, setting.environment_name, setting.doc)
    Console().print(table)
