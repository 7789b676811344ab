"""Kafka's request and response messages.

`codec` encodes and decodes any of them; `generated` holds one module an API with its classes and schema,
written by `tools/generate_messages.py`. Bodies only: headers are in `gateway.wire.header`.

Names: a class is called what Kafka's definition calls the struct (`MetadataResponseTopic`, `FetchPartition`).
Where request and response of one API both have a struct of that name, the message's name goes in front
(`DescribeQuorumRequestTopicData`). Fields are Kafka's in snake_case. A class holds the fields of all served
versions; one that a version does not carry is left out when encoding and has Kafka's default after decoding.

Values: integers are int, `float64` float, strings str, bytes bytes; uuids are their 16 raw bytes, zero
`ZERO_UUID`; records are bytes or, when decoded, a view into the frame. None stands for null only.
"""
