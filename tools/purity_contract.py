"""The contract of import-linter that holds `tools.purity`: pyproject.toml lists the modules that do I/O."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

from tools.purity import impurities, needless


class PureByDefault(Contract):
    type_name = "pure_by_default"

    does_io = fields.ListField(subfield=fields.StringField())
    forbidden_modules = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots = {str(root) for root in self.session_options["root_packages"]}
        imports = {
            module: graph.find_modules_directly_imported_by(module)
            for module in graph.modules
            if module.split(".")[0] in roots
        }
        # import-linter's fields have no types of their values.
        listed: Any = self.does_io
        forbidden: Any = self.forbidden_modules
        ways = impurities(imports, listed, forbidden)
        unneeded = needless(imports, listed, forbidden)
        return ContractCheck(kept=not ways and not unneeded, metadata={"ways": ways, "unneeded": unneeded})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for way in check.metadata["ways"]:
            output.print_error(f"{way[0]} is pure by default, but imports {' -> '.join(way[1:])}")
        for pattern in check.metadata["unneeded"]:
            output.print_error(f"{pattern} is listed in does_io, but nothing of it does any: take it out")
