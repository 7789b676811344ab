"""Merges every hour, on Spark: copy to the DAGs of Airflow 3.

The worker needs Dragoman with the extra `spark`, Java 17 or newer, and a certificate of one of
internal.principals; the variables below say where they are. Credentials of the store are read from the
environment of worker and executors, as the gateway reads its own.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

SETTINGS = "/etc/dragoman/gateway.toml"
"""With the internal.listen of the gateway as this worker reaches it."""
MASTER = "spark://spark:7077"
TLS = {
    "DRAGOMAN_CLIENT_TLS_CA": "/etc/dragoman/ca.pem",
    "DRAGOMAN_CLIENT_TLS_CERT": "/etc/dragoman/jobs.pem",
    "DRAGOMAN_CLIENT_TLS_KEY": "/etc/dragoman/jobs.key",
}

with DAG(
    "dragoman_merging",
    schedule="@hourly",
    start_date=datetime(2025, 1, 1),
    catchup=False,
    # Two jobs at once would do no harm, and merge nothing more.
    max_active_runs=1,
):
    BashOperator(
        task_id="segments",
        bash_command=f"dragoman compact segments --config {SETTINGS} --engine spark --master {MASTER}",
        env=TLS,
        append_env=True,
        # A job that was ended leaves nothing to mend: the next one merges what is left.
        retries=2,
        retry_delay=timedelta(minutes=5),
        # Airflow ends the command with SIGTERM, and the job ends with the command.
        execution_timeout=timedelta(hours=6),
    )
