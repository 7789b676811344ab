"""Copies records from one topic to another in capitals as a stream, or reads both topics as a batch."""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, upper

SPOKEN = "spark-example-spoken"
SHOUTED = "spark-example-shouted"


def stream(spark: SparkSession, bootstrap: str, directory: str, available_now: bool) -> None:
    """Continues from the checkpoint in `directory`, until it is stopped or, if `available_now`, at the end of
    the topic."""
    spoken = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", SPOKEN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load()
    )
    shouted = spoken.select(col("key"), upper(col("value").cast("string")).alias("value"))
    writer = (
        shouted.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", SHOUTED)
        .option("checkpointLocation", directory)
    )
    if available_now:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


def batch(spark: SparkSession, bootstrap: str, directory: str) -> None:
    """Writes what both topics hold at this moment into JSON files below `directory`."""
    for topic in (SPOKEN, SHOUTED):
        records: DataFrame = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .load()
        )
        lines = records.select("partition", "offset", col("value").cast("string").alias("value"))
        lines.write.mode("overwrite").json(f"{directory}/{topic}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=["stream", "catch-up", "batch"], help="done in this order")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--directory", required=True, help="of the checkpoint and of a batch's files")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("shout").getOrCreate()
    for what in arguments.what:
        if what == "batch":
            batch(spark, arguments.bootstrap, f"{arguments.directory}/batch")
        else:
            stream(spark, arguments.bootstrap, f"{arguments.directory}/checkpoint", what == "catch-up")


if __name__ == "__main__":
    main()
