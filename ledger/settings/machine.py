"""Client quotas and configs, as a machine of the registry."""

from ledger.machine import Machine
from ledger.settings.apply import client_quotas_set, resource_configs_set
from ledger.settings.decide import set_client_quotas, set_resource_configs
from ledger.settings.records import (
    CLIENT_QUOTAS_SET,
    RESOURCE_CONFIGS_SET,
    ClientQuotasSet,
    ResourceConfigsSet,
)
from ledger.settings.requests import SetClientQuotas, SetResourceConfigs
from ledger.settings.rows import SECTIONS

SETTINGS = Machine(
    decide={SetClientQuotas: set_client_quotas, SetResourceConfigs: set_resource_configs},
    formats=(CLIENT_QUOTAS_SET, RESOURCE_CONFIGS_SET),
    apply={ClientQuotasSet: client_quotas_set, ResourceConfigsSet: resource_configs_set},
    sections=SECTIONS,
)
